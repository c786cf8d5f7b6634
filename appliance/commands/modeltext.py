"""What `steelyard model info` and `drift` print, as text and as JSON."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from appliance.commands.modeltables import (
    NO_LICENCE,
    aligned,
    cut,
    facts_of,
    first_line,
    json_text,
    parameters,
    size,
)
from appliance.models.memory import verdict

if TYPE_CHECKING:
    from appliance.commands.modelexamined import Examined
    from appliance.gguf import Adapter
    from appliance.prepare.retokenizing import Drift


# -- info ------------------------------------------------------------------------------------------


def info(found: "Examined") -> str:
    """All of it, for a person."""
    blocks = [_facts(found), _memory(found), _template(found)]
    return "\n\n".join("\n".join(block) for block in blocks)


def warnings(found: "Examined") -> list[str]:
    """What an operator should know at once."""
    lines = [f"chat template: {problem}" for problem in found.lint.problems]
    if found.has is not None and (said := verdict(found.need, found.has)).level != "fits":
        lines.append(f"memory: {said.text}")
    return [*lines, *_refused(found), *_long(found)]


def info_json(found: "Examined") -> str:
    header, need = found.header, found.need
    return json_text(
        {
            "path": str(found.path),
            "name": header.name,
            "architecture": header.architecture,
            "parameters": header.n_params,
            "quantisation": header.file_type,
            "bytes": header.file_size,
            "parts": header.parts,
            "context": header.n_ctx_train,
            "layers": header.n_layers,
            "tokens": header.n_vocab,
            "tokenizer": header.tokenizer,
            "pre_tokenizer": header.pre_tokenizer,
            "licence": {"name": header.licence, "link": header.licence_link},
            "stored": facts_of(found.stored) if found.stored is not None else None,
            "memory": {
                **asdict(need),
                "cells_per_sequence": need.cells_per_sequence,
                "per_sequence": need.per_sequence,
                "total": need.total,
                "kv_type": found.kv_type,
            },
            "available": asdict(found.has) if found.has is not None else None,
            "verdict": asdict(verdict(need, found.has)) if found.has is not None else None,
            "refused": _refused(found),
            "gpus": [asdict(gpu) for gpu in found.gpus],
            "template": {"text": found.template, **msgspec.to_builtins(found.lint)},
        }
    )


def _facts(found: "Examined") -> list[str]:
    header, stored = found.header, found.stored
    parts = f" in {header.parts} parts" if header.parts > 1 else ""
    rows = [
        ("file", f"{found.path} ({size(header.file_size)}{parts})"),
        ("model", f"{header.name or '(no name)'}: {header.architecture}"),
        ("weights", f"{parameters(header.n_params)}, {header.file_type} ({_types(found)})"),
        ("context", f"{header.n_ctx_train} tokens, as it was trained"),
        ("attention", _heads(found)),
        (
            "tokenizer",
            f"{_joined(header.tokenizer, header.pre_tokenizer)}, {header.n_vocab} tokens",
        ),
        ("licence", _licence(found)),
    ]
    if stored is not None:
        rows.append(("added", f"{stored.added} from {stored.source}"))
        rows.append(("SHA-256", stored.sha256))
        rows += [("LoRA", f"{lora.name} ({size(lora.size)})") for lora in stored.lora]
    return _rows(rows)


def _licence(found: "Examined") -> str:
    stored, header = found.stored, found.header
    name = first_line(stored.licence if stored is not None else header.licence)
    link = f" ({header.licence_link})" if header.licence_link else ""
    kept = stored is not None and stored.licence_file
    text = (
        f"; its text: {stored.folder / stored.licence_file}" if stored is not None and kept else ""
    )
    return (name or NO_LICENCE) + link + text


def _heads(found: "Examined") -> str:
    header = found.header
    heads, shared = max(header.n_head, default=0), max(header.n_head_kv, default=0)
    grouped = f", {shared} with keys of their own" if shared != heads else ""
    length = f"{header.key_length}"
    if header.value_length != header.key_length:
        length += f" and {header.value_length}"
    return f"{header.n_layers} layers, {heads} heads{grouped}, {length} numbers each"


def _types(found: "Examined") -> str:
    return ", ".join(f"{count} {name}" for name, count in found.header.quantization[:4])


def _memory(found: "Examined") -> list[str]:
    need = found.need
    lines = [f"Memory, for {need.cells} tokens of context in {found.kv_type}:"]
    rows = [
        ("weights", size(need.weights), "mapped from the file"),
        ("cache", size(need.kv), f"{size(need.kv_per_token)} a token"),
        ("", "", f"{need.cells_per_sequence} tokens, {size(need.per_sequence)}, for each of "
         f"{need.sequences} sequences"),
        ("outputs", size(need.outputs), "at most"),
        ("compute", size(need.compute), "an estimate"),
        ("together", size(need.total), "with the engine's process"),
    ]  # fmt: skip
    if need.state:
        rows.insert(3, ("state", size(need.state), "of recurrent layers"))
    lines += [f"  {name:10}{figure:>10}  {note}" for name, figure, note in rows]
    if need.windowed:
        lines.append(
            f"Layers with a sliding window ({found.header.cache.window} tokens) are kept whole, so "
            f"that prefixes can be shared; with the window alone it would be {size(need.windowed)}."
        )
    lines += [*_refused(found), *_long(found)]
    if found.has is not None:
        where = "this control group may use" if found.has.limited else "the machine has"
        lines.append(
            f"Of {size(found.has.total)} that {where}, {size(found.has.available)} are free now. "
            f"{verdict(need, found.has).text}"
        )
    for gpu in found.gpus:
        fits = "all of it fits" if need.total <= gpu.free else "not all of it fits"
        lines.append(f"{gpu.name}: {size(gpu.free)} of {size(gpu.total)} are free; {fits}.")
    return lines


def _refused(found: "Examined") -> list[str]:
    if not any(found.header.cache.recurrent):
        return []
    return [
        "It keeps recurrent state, whose prefixes cannot be shared or rewound: the engine serves "
        "attention-only models and will refuse it."
    ]


def _long(found: "Examined") -> list[str]:
    trained = found.header.n_ctx_train
    if found.context <= trained:
        return []
    return [
        f"It was trained for {trained} tokens of context, and engine.context is {found.context}: "
        "what goes beyond is likely to be worse."
    ]


def _template(found: "Examined") -> list[str]:
    checked = found.lint
    where = {
        "model": "the model's own",
        "configuration": "set by the box or its configuration",
        "fallback": "ChatML, since the model brings none",
    }[checked.source]
    lines = [f"Chat template ({where}):"]
    lines += [f"  {line}" for line in found.template.splitlines()]
    if checked.generation_prompt:
        lines.append(f"An answer is opened with {checked.generation_prompt!r}.")
    if not checked.problems:
        lines.append("It shows questions, answers and system messages.")
    return lines + [f"! {problem}" for problem in checked.problems] + list(checked.notes)


# -- adapters --------------------------------------------------------------------------------------


def adapter(path: Path, found: "Adapter", *, as_json: bool) -> str:
    """A LoRA adapter's facts."""
    if as_json:
        facts: dict[str, Any] = asdict(found)
        return json_text({"path": str(path), "lora": True, **facts, "shapes": len(found.shapes)})
    return "\n".join(
        _rows(
            [
                ("file", f"{path} ({size(found.size)})"),
                ("LoRA", f"for {found.architecture} models, {found.name or '(no name)'}"),
                ("rank", f"{found.rank}, alpha {found.alpha:g}"),
                ("changes", f"{len(found.shapes)} tensors"),
                ("licence", first_line(found.licence) or NO_LICENCE),
            ]
        )
    )


# -- drift -----------------------------------------------------------------------------------------


def drift(found: "Drift") -> str:
    """What changes for clients, for a person."""
    if found.same:
        return "\n".join(["The tokenizers are the same.", *found.meaning])
    changes = [("", "BEFORE", "AFTER")]
    changes += [(change.what, cut(change.before), cut(change.after)) for change in found.changes]
    changes.append(("tokens with the same id", f"{found.shared}", ""))
    counts = [("TEXT", "BYTES", "BEFORE", "AFTER", "")]
    counts += [
        (c.text, f"{c.bytes}", f"{c.before}", f"{c.after}", f"{c.ratio - 1:+.0%}")
        for c in found.counts
    ]
    return "\n".join([aligned(changes), "", aligned(counts), "", *found.meaning])


def drift_json(found: "Drift") -> str:
    return json_text(msgspec.to_builtins(found))


# -- inside ----------------------------------------------------------------------------------------


def _joined(*words: str) -> str:
    return " ".join(word for word in words if word)


def _rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name:10} {value}" for name, value in rows]
