"""The settings of the model, and of the adapters that are loaded with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from appliance.config.setting import setting

_NAME = r"[^\x00-\x1f\x7f\s](?:[^\x00-\x1f\x7f]*[^\x00-\x1f\x7f\s])?"


@dataclass(frozen=True, slots=True)
class Lora:
    """One LoRA adapter, loaded with the model. Requests choose with `lora` (docs/http.md)."""

    path: str = setting("", "GGUF file of the adapter.", path=True)
    scale: float = setting(1.0, "How strongly it is applied.", low=-100, high=100)
    name: str = setting(
        "",
        "Name by which requests may call it. Empty: the file name without its ending.",
        high=256,
        pattern=_NAME,
        form="a name without line breaks or spaces around it",
    )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model is served, and under which names."""

    path: str = setting(
        "",
        "GGUF file; of a model in several files, the first. Empty: the one that was chosen with "
        "`steelyard model use`, else the one that is packaged with the box.",
        path=True,
    )
    name: str = setting(
        "",
        "Name shown to clients. Empty: the file name without its ending.",
        high=256,
        pattern=_NAME,
        form="a name without line breaks or spaces around it",
    )
    aliases: Mapping[str, str] = setting(
        MappingProxyType({}),
        'Further names that clients may ask for, each mapped to `"default"` (the model served), '
        'so that apps written for a cloud model need no change: `{ "gpt-4o" = "default" }`.',
        high=256,
        pattern=_NAME,
        form="names without line breaks or spaces around them",
    )
    sha256: str = setting(
        "",
        "SHA-256 of the file; the box refuses to start with any other. Empty: not checked.",
        pattern=r"[0-9a-fA-F]{64}",
        form="64 hexadecimal digits",
    )
    chat_template: str = setting(
        "",
        "Jinja file used instead of the model's own chat template. Empty: the model's own; for "
        "the packaged model plain ChatML, because the system prompt inside its own template "
        "makes it answer worse (docs/models.md).",
        path=True,
    )
    lora: tuple[Lora, ...] = setting(
        (),
        'LoRA adapters: `[{ path = "…", scale = 1.0, name = "…" }]`. `scale` (default 1) is how '
        "strongly one is applied to requests that name none; `name` is how requests call it "
        "(default: the file name without its ending).",
        high=16,
    )
