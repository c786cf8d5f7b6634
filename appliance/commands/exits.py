"""What a command's exit code says. 0: it did what was asked, and all it looked at is sound."""

FAILED = 1
"""It could not be done, or something it looked at is not sound."""
USAGE = 2
"""The command line or the configuration cannot be used."""
INTERRUPTED = 130
"""By the operator, as shells have it."""
