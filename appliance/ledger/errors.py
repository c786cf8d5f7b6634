"""What can go wrong with the ledger, said to an operator."""


class LedgerError(Exception):
    """The ledger cannot be read, written or trusted. Says why and what to do."""
