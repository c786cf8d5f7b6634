"""Settings shared by all tests; pytest's own are in pyproject.toml."""

from hypothesis import settings

# The machine may be busy: what is found counts, not how long an example took.
settings.register_profile("steelyard", deadline=None)
settings.load_profile("steelyard")
