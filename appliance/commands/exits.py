"""How a command ends. 0: it did what was asked, and all it looked at is sound."""

from appliance.errors import ForOperator

FAILED = 1
"""It could not be done, or something it looked at is not sound."""
USAGE = 2
"""The command line or the configuration cannot be used."""
INTERRUPTED = 130
"""By the operator, as shells have it."""


class NotDone(ForOperator):
    """The box did not do it. Says why and what to do."""
