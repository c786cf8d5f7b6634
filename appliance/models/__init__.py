"""The models of the box: found, checked, kept."""

from appliance.gguf import BadModel
from appliance.models.chosen import ModelFile, check, check_stored, locate, selected
from appliance.models.fingerprints import CACHE_ENTRIES, CACHE_NAME, fingerprint
from appliance.models.memory import memory_free, memory_need
from appliance.models.packaged import (
    ENCODER_PACKAGE,
    MODEL_PACKAGE,
    TOKENIZER_FILE,
    TOKENIZER_PACKAGE,
    EncoderFiles,
    encoder_files,
    packaged_model,
)
from appliance.models.store import Store
from appliance.models.stored import Stored, StoredFile, StoredLora, joint_sha256

__all__ = [
    "CACHE_ENTRIES", "CACHE_NAME", "ENCODER_PACKAGE", "MODEL_PACKAGE", "TOKENIZER_FILE",
    "TOKENIZER_PACKAGE", "BadModel", "EncoderFiles", "ModelFile", "Store", "Stored",
    "StoredFile", "StoredLora", "check", "check_stored", "encoder_files",
    "fingerprint", "joint_sha256", "locate", "memory_free", "memory_need",
    "packaged_model", "selected",
]  # fmt: skip
