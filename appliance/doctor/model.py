"""Area `model`: the file that is served, or would be: there, whole, unchanged, with a chat template
that serves chats."""

import asyncio
from collections.abc import Iterator

from appliance.doctor.finding import Finding, fail, ok, size, warn
from appliance.doctor.ground import Ground
from appliance.gguf import BadModel
from appliance.models import ModelFile
from appliance.prepare.chatml import CHATML
from appliance.prepare.lint import Lint, lint


def look(ground: Ground) -> Iterator[Finding]:
    try:
        model = ground.model
    except BadModel as error:
        yield fail(
            "model.file",
            str(error),
            "`steelyard model list` and `steelyard model verify` tell of those in the store",
        )
        return
    header = model.header
    yield ok(
        "model.file",
        f"{model.name}: {header.architecture}, {header.file_type}, {size(header.file_size)}, "
        f"SHA-256 {model.sha256}",
    )
    template = model.chat_template or (CHATML if model.packaged else None)
    yield template_finding(asyncio.run(lint(model.path, template, header.chat_template)), model)


def template_finding(found: Lint, model: ModelFile) -> Finding:
    """What the chat template does to chats."""
    whose = "the packaged model's ChatML" if model.packaged and not model.chat_template else (
        "that of model.chat_template" if model.chat_template else f"the {found.source}'s"
    )  # fmt: skip
    if found.problems:
        return warn(
            "model.template",
            f"{whose}: {' '.join(found.problems)}",
            "`steelyard model info` shows it; set model.chat_template to a better one",
        )
    return ok("model.template", f"{whose}: shows questions, answers and system messages")
