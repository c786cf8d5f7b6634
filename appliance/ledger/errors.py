"""What can go wrong with the ledger, said to an operator."""

from appliance.errors import ForOperator


class LedgerError(ForOperator):
    """The ledger cannot be read, written or trusted. Says why and what to do."""
