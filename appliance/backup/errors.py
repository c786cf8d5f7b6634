"""What can go wrong with a backup, said to an operator."""

from appliance.errors import ForOperator


class BackupError(ForOperator):
    """A backup cannot be taken, read or restored. Says why and what to do."""


class NothingToBackUp(BackupError):
    """The box has no ledger yet."""
