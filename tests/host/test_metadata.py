from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from tpu_magic.host import metadata


@contextmanager
def server(answers):
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers["Metadata-Flavor"]))
            key = self.path.rpartition("/")[2]
            self.send_response(200 if key in answers else 404)
            self.end_headers()
            self.wfile.write(answers.get(key, "not found").encode())

        def log_message(self, *words):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{running.server_port}", seen
        finally:
            running.shutdown()
            thread.join()


def test_an_attribute_is_asked_for_as_the_server_wants_it():
    with server({"agent-worker-number": "3"}) as (address, seen):
        environ = {"GCE_METADATA_HOST": address}
        assert metadata.attribute("agent-worker-number", environ) == "3"
        assert metadata.attribute("tpu-env", environ) is None
    path = "/computeMetadata/v1/instance/attributes/agent-worker-number"
    assert seen[0] == (path, "Google")


def test_the_address_variable_goes_before_the_name():
    with server({"x": "1"}) as (address, _):
        environ = {"GCE_METADATA_IP": address, "GCE_METADATA_HOST": "127.0.0.1:1"}
        assert metadata.attribute("x", environ) == "1"


def test_a_refused_connection_is_no_answer():
    assert metadata.attribute("x", {"GCE_METADATA_IP": "127.0.0.1:1"}, timeout_s=1) is None


def test_tpu_env_is_read():
    text = (
        "ACCELERATOR_TYPE: 'v4-8'\nZONE: 'us-central2-b'\nNODE_ID: 'mine'\nHOST_BOUNDS: '1,1,1'\n\n"
    )
    assert metadata.tpu_env(text)["ZONE"] == "us-central2-b"
    assert metadata.tpu_env(text)["NODE_ID"] == "mine"
    assert metadata.tpu_env("") == {}
