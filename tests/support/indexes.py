"""A package index that misbehaves."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def breaking_index(wheel: str):
    """Serve an index whose one wheel breaks off half-way."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.endswith(".whl"):
                self.send_response(200)
                self.send_header("Content-Length", "100000")
                self.end_headers()
                self.wfile.write(b"PK" + bytes(1000))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<a href="/{wheel}">{wheel}</a>'.encode())

        def do_HEAD(self):
            self.send_error(405)

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()
