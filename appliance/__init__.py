"""Steelyard: an on-prem LLM box that tells what a request will cost before it runs."""

__version__ = "0.1.0"
