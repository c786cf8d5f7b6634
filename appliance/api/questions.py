"""From a checked body to what a forecast is made of."""

from collections.abc import Sequence

from appliance.api.chat_shapes import ChatRequest
from appliance.api.shapes import Generation
from appliance.engine.commands import Submit
from appliance.forecast.question import Format, Question, Turn
from appliance.prepare.messages import Prepared


def questions_of(
    shape: Generation, prompts: Sequence[Prepared], submits: Sequence[Submit]
) -> list[Question]:
    """One question a prompt."""
    return [
        Question(
            turns=_turns(shape, prepared),
            prompt=submit.prompt,
            route="chat" if isinstance(shape, ChatRequest) else "completion",
            max_tokens=_most(submit),
            temperature=submit.sampling.temperature,
            top_p=submit.sampling.top_p,
            format=_format(shape, prepared),
            # With a budget, too, the length is not the model's own choice.
            ignore_eos=submit.sampling.ignore_eos or submit.budget is not None,
        )
        for prepared, submit in zip(prompts, submits, strict=True)
    ]


def _most(submit: Submit) -> int:
    return submit.max_tokens if submit.budget is None else submit.budget.tokens


def _turns(shape: Generation, prepared: Prepared) -> tuple[Turn, ...]:
    if not isinstance(shape, ChatRequest):
        return (Turn("user", prepared.text),)
    return tuple(Turn(message.role, message.text() or "") for message in shape.messages)


def _format(shape: Generation, prepared: Prepared) -> Format:
    """What the answer must look like."""
    if prepared.output == "tools":
        return "tools"
    wanted = shape.response_format if isinstance(shape, ChatRequest) else None
    if shape.json_schema is not None or (wanted is not None and wanted.type == "json_schema"):
        return "schema"
    if wanted is not None and wanted.type == "json_object":
        return "schema" if wanted.schema_ is not None else "json"
    return "grammar" if shape.grammar is not None else "text"
