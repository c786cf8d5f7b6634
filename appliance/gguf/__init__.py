"""GGUF files, checked with our own bounded reader before llama.cpp opens them."""

from appliance.gguf.header import Header, read
from appliance.gguf.reader import BadModel

__all__ = ["BadModel", "Header", "read"]
