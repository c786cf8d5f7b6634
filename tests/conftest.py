"""Settings shared by all tests; pytest's own are in pyproject.toml."""

import signal

from hypothesis import HealthCheck, settings

# The machine may be busy: what is found counts, not how long an example took or was in the making.
# The examples are the same each time, so that a test fails for who broke it and not for the next
# one; `pytest --hypothesis-profile=explore` looks for new ones.
settings.register_profile(
    "steelyard", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("steelyard"), derandomize=False)
settings.load_profile("steelyard")

# A shell that starts a job in the background has it ignore SIGINT, and all that the job starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
