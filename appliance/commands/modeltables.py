"""What `steelyard model list` and `verify` print, and how `steelyard model` writes figures.

Names, licences and templates come out of files that somebody else made: `plain` before a terminal.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from appliance.models import Stored

NO_LICENCE = "the file names none: find out before you use it"


def size(count: int) -> str:
    """Bytes in decimal units, as files are sold."""
    if count >= 10**9:
        return f"{count / 1e9:.2f} GB"
    return f"{count / 1e6:.1f} MB" if count >= 10**6 else f"{count / 1e3:.1f} kB"


def parameters(count: int) -> str:
    """How many weights, as models are named."""
    if count >= 10**9:
        return f"{count / 1e9:.1f} B"
    return f"{count / 1e6:.0f} M" if count >= 10**6 else f"{count / 1e3:.0f} k"


def one_line(stored: "Stored") -> str:
    """A model of the box, in short."""
    parts = f" in {len(stored.files)} parts" if len(stored.files) > 1 else ""
    return (
        f"`{stored.name}`: {stored.architecture}, {parameters(stored.parameters)}, "
        f"{stored.quantisation}, {size(stored.size)}{parts}; licence: "
        f"{first_line(stored.licence) or NO_LICENCE}"
    )


def table(models: Sequence["Stored"], selected: str | None, configured: str) -> str:
    """One line for each model; the one that is served has a star."""
    rows = [("", "NAME", "SIZE", "PARAMETERS", "TYPE", "LICENCE", "ADDED")]
    for model in models:
        served = not configured and (model.packaged if selected is None else model.name == selected)
        rows.append(
            (
                "*" if served else "",
                model.name,
                size(model.size),
                parameters(model.parameters),
                f"{model.architecture} {model.quantisation}",
                first_line(model.licence) or "?",
                model.added[:10] or "came with the box",
            )
        )
        rows += [
            ("", f"  + {lora.name}", size(lora.size), "", "LoRA", "", "") for lora in model.lora
        ]
    note = f"\nmodel.path is set, so none of these is served but {configured}" if configured else ""
    return aligned(rows) + note


def list_json(
    models: Sequence["Stored"], selected: str | None, configured: str, broken: Sequence[str]
) -> str:
    return json_text(
        {
            "selected": selected,
            "configured": configured or None,
            "models": [facts_of(model) for model in models],
            "problems": list(broken),
        }
    )


def verified(found: Mapping[str, str]) -> str:
    """`found`: for each name why it is not sound, or nothing."""
    if not found:
        return "the box holds no model but the one that came with it"
    return "\n".join(f"{name}: {problem or 'ok'}" for name, problem in found.items())


def verified_json(found: Mapping[str, str], broken: Sequence[str]) -> str:
    models = [{"name": name, "ok": not why, "problem": why or None} for name, why in found.items()]
    return json_text({"models": models, "problems": list(broken)})


def facts_of(stored: "Stored") -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(
        {name: getattr(stored, name) for name in stored.__struct_fields__ if name != "folder"}
    )
    return {
        **facts,
        "path": str(stored.path),
        "bytes": stored.size,
        "sha256": stored.sha256,
    }


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def first_line(text: str) -> str:
    """Licences may be whole texts."""
    return cut(text.strip().splitlines()[0].strip()) if text.strip() else ""


def cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)
