"""`steelyard support`: what a stranger needs to help with this box, and nothing that opens it.

`parts.py` gathers, `redact.py` strikes secrets out of every byte, `pack.py` writes the archive.
"""
