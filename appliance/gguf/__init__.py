"""GGUF files, checked with our own bounded reader before llama.cpp opens them."""

from appliance.gguf.adapter import Adapter, is_adapter, misfit, read_adapter
from appliance.gguf.header import Header, read
from appliance.gguf.parts import part_name, paths_of, stem_of
from appliance.gguf.reader import BadModel

__all__ = [
    "Adapter", "BadModel", "Header", "is_adapter", "misfit", "part_name", "paths_of", "read",
    "read_adapter", "stem_of",
]  # fmt: skip
