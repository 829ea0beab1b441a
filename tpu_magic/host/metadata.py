"""Instance attributes from Google's metadata server: one try, a short timeout, never an error."""

from __future__ import annotations

from collections.abc import Mapping

# The server's fixed address. Its name would need a look-up, which no timeout bounds.
ADDRESS = "169.254.169.254"
TIMEOUT_S = 1.0
_OK = 200


def attribute(key: str, environ: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> str | None:
    """Return an instance attribute, or None where there is no such server or attribute.

    Parameters
    ----------
    key
        `agent-worker-number`, `worker-network-endpoints`, `tpu-env`, …
    environ
        `GCE_METADATA_IP` or `GCE_METADATA_HOST` overrides the address, as in the libraries.
    timeout_s
        Seconds for connecting and for each read.
    """
    import http.client

    address = environ.get("GCE_METADATA_IP") or environ.get("GCE_METADATA_HOST") or ADDRESS
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request(
            "GET",
            f"/computeMetadata/v1/instance/attributes/{key}",
            headers={"Metadata-Flavor": "Google"},
        )
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return text if response.status == _OK else None


def tpu_env(text: str) -> dict[str, str]:
    """Read the `tpu-env` attribute: flat YAML, one `NAME: 'value'` a line."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip().strip("'\"") for name, value in pairs}
