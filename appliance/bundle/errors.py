"""What can be wrong with a bundle, an install or an update. Standard library only."""


class BundleError(Exception):
    """It will not be done. Says in one sentence what happened and what to do; nothing in use was
    changed."""
