"""The commands of `steelyard` that have files of their own; cli.py puts them together."""
