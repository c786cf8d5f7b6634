"""TLS: the box's own CA and certificate, or files from the configuration, kept fresh while the box
runs. `TlsState` is what the daemon holds."""

from appliance.config.secured import in_clear, tls_on
from appliance.tls.errors import TlsError
from appliance.tls.state import TlsState

__all__ = ["TlsError", "TlsState", "in_clear", "tls_on"]
