"""What can go wrong with certificates."""


class TlsError(Exception):
    """TLS cannot be set up as configured. Says why and what to do."""
