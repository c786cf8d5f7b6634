"""Answers of the box that are not what this console expects."""

import msgspec

UNREADABLE = (msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError)
"""What reading an answer of another version can raise."""
