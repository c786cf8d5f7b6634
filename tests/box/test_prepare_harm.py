"""Requests that are made to end the prepare process: it stays, or nobody else is hurt."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from appliance import models
from appliance.config import ModelConfig
from appliance.errors import BadRequest
from appliance.prepare.client import Preparer
from appliance.prepare.messages import MOST_BYTES, ChatJob, PrepareLimits, TokenizeJob

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = str(models.locate(ModelConfig()))
PATIENT = PrepareLimits(template_s=60.0, prepare_s=60.0, grammar_compile_s=60.0)
"""A machine that is busy with other things is nobody's fault."""
HALF = '{{ "\\ud800" }}'
"""Of a template: half a character, as no text may hold it."""
TEMPLATE = "{% if half %}" + HALF + "{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def preparer() -> AsyncIterator[Preparer]:
    made = Preparer(MODEL, PATIENT, TEMPLATE)
    await made.start()
    yield made
    await made.stop()


def user(text: str) -> ChatJob:
    return ChatJob(messages=[{"role": "user", "content": text}])


def called(arguments: str) -> ChatJob:
    """A chat in which the model has called a function so."""
    function = {"name": "f", "arguments": arguments}
    call = {"id": "a", "type": "function", "function": function}
    return ChatJob(messages=[{"role": "assistant", "content": None, "tool_calls": [call]}])


@pytest.mark.parametrize(
    "arguments", ['{"a": "\\ud800"}', '{"\\udfff": 1}', '{"a": [{"b": "x\\ud83d"}]}']
)
async def test_half_a_character_in_a_calls_arguments_is_shown_as_it_came(
    preparer: Preparer, arguments: str
) -> None:
    before = preparer.snapshot().restarts
    prepared = await preparer.chat(called(arguments))
    assert arguments in prepared.text
    assert preparer.snapshot().restarts == before


async def test_whole_characters_in_a_calls_arguments_reach_the_template(
    preparer: Preparer,
) -> None:
    prepared = await preparer.chat(called('{"a": "\\ud83d\\ude00"}'))
    assert "😀" in prepared.text


async def test_a_prompt_that_is_no_text_is_refused_and_the_process_stays(
    preparer: Preparer,
) -> None:
    before = preparer.snapshot()
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(BadRequest, match="surrogates") as caught:
        await preparer.chat(ChatJob(messages=messages, template_kwargs={"half": True}))
    assert caught.value.status == 400
    assert (await preparer.chat(user("hello"))).prompt
    assert preparer.snapshot().pid == before.pid


async def test_a_text_too_large_to_count_is_refused_and_the_process_stays(
    preparer: Preparer,
) -> None:
    before = preparer.snapshot()
    with pytest.raises(BadRequest, match="split it") as caught:
        await preparer.tokenize(TokenizeJob("x" * (MOST_BYTES + 1)))
    assert (caught.value.param, caught.value.code) == ("content", "too_large")
    assert preparer.snapshot().pid == before.pid


async def test_jobs_behind_several_that_overrun_their_time_are_done_all_the_same() -> None:
    limits = PrepareLimits(60.0, grammar_compile_s=0.05, prepare_s=60.0, grammar_bytes=10**8)
    preparer = Preparer(MODEL, limits, TEMPLATE)
    await preparer.start()
    rules = "\n".join(f'r{i} ::= "a{i}" | r{i + 1}' for i in range(60_000))
    grammar = f'root ::= r0\n{rules}\nr60000 ::= "z"'
    slow = ChatJob(messages=user("x").messages, grammar=grammar, grammar_type="gbnf")
    jobs = [asyncio.create_task(preparer.chat(slow)) for _ in range(4)]
    rendered = asyncio.create_task(preparer.render(user("hello")))
    for job in jobs:
        with pytest.raises(BadRequest) as caught:
            await job
        assert caught.value.code == "grammar_timeout"
    assert await rendered == "hello"
    assert preparer.snapshot().timeouts == 4
    await preparer.stop()
