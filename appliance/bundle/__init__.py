"""Signed bundles: made on a connected machine, installed and updated from without a network."""
