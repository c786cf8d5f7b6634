"""TLS: the box's own CA and certificate, or files from the configuration, kept fresh while the box
runs. `TlsState` is what the daemon holds."""

from appliance.tls.errors import TlsError
from appliance.tls.state import TlsState, in_clear, tls_on

__all__ = ["TlsError", "TlsState", "in_clear", "tls_on"]
