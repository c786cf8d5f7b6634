"""What can go wrong with certificates."""

from appliance.errors import ForOperator


class TlsError(ForOperator):
    """TLS cannot be set up as configured. Says why and what to do."""
