"""Chats that are streamed, and calls of tools."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from appliance.api.box import Box
from appliance.engine.commands import Submit
from appliance.engine.reports import Delta, Finished, Prefill, Started
from appliance.prepare.messages import Prepared
from tests.unit.api_box import client_of, counts, make_box, saying
from tests.unit.chat_parts import PATH, chunks, post, submitted


async def test_a_stream_has_openai_shape(tmp_path: Path) -> None:
    first, *middle, last = await chunks(make_box(tmp_path))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert [c["choices"][0]["delta"] for c in middle] == [{"content": "Hel"}, {"content": "lo"}]
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["timings"]["predicted_n"] == 3
    assert {c["id"] for c in (first, *middle, last)} == {first["id"]}
    assert {c["object"] for c in (first, *middle, last)} == {"chat.completion.chunk"}
    assert all(c["choices"][0]["finish_reason"] is None for c in (first, *middle))
    assert all("usage" not in c for c in (first, *middle, last))
    assert first["system_fingerprint"].startswith("b")


async def test_a_stream_has_the_headers_of_one(tmp_path: Path) -> None:
    answer = await post(make_box(tmp_path), stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["cache-control"] == "no-store"
    assert "content-length" not in answer.headers


async def test_the_usage_chunk_comes_last_and_only_when_asked(tmp_path: Path) -> None:
    options = {"include_usage": True}
    *_, final, usage = await chunks(make_box(tmp_path), stream_options=options)
    assert final["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert usage["timings"]["predicted_n"] == 3


async def test_each_choice_of_a_stream_opens_and_closes_once(tmp_path: Path) -> None:
    found = await chunks(make_box(tmp_path), n=2)
    for index in (0, 1):
        own = [c["choices"][0] for c in found if c["choices"][0]["index"] == index]
        assert [c["delta"].get("role") for c in own].count("assistant") == 1
        assert "".join(c["delta"].get("content") or "" for c in own) == "Hello"
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == ["stop"]


async def test_streamed_token_ids_and_logprobs_join_to_the_answer(tmp_path: Path) -> None:
    found = await chunks(
        make_box(tmp_path, saying("H", "i")), return_token_ids=True, logprobs=True, top_logprobs=1
    )
    assert found[0]["prompt_token_ids"] == [104, 105]
    ids = [t for c in found for t in c["choices"][0].get("token_ids", [])]
    assert ids == [72, 105, 0]
    entries = [
        e for c in found for e in ((c["choices"][0].get("logprobs") or {}).get("content") or [])
    ]
    assert "".join(e["token"] for e in entries) == "Hi"
    assert entries[0]["bytes"] == [72]
    assert len(entries[0]["top_logprobs"]) == 2


async def test_timings_come_with_every_token_when_asked(tmp_path: Path) -> None:
    found = await chunks(make_box(tmp_path), timings_per_token=True)
    predicted = [c["timings"]["predicted_n"] for c in found if "timings" in c]
    assert predicted == [1, 2, 3]


async def test_prefill_progress_is_streamed_when_asked(tmp_path: Path) -> None:
    def script(submit: Submit) -> list[Any]:
        steps = [Prefill(submit.id, 2, 0, done, 1.0) for done in (1, 2)]
        return [*steps, *saying("a")(submit)]

    box = make_box(tmp_path, script)
    found = await chunks(box, return_progress=True)
    progress = [c["prompt_progress"] for c in found if "prompt_progress" in c]
    assert [p["processed"] for p in progress] == [1, 2]
    assert progress[0] == {"total": 2, "cache": 0, "processed": 1, "time_ms": 1.0}
    assert submitted(box).progress


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "look", "arguments": {"at": "sky"}}</tool_call>'


def tool_box(tmp_path: Path, *texts: str) -> Box:
    def script(submit: Submit) -> list[Any]:
        steps: list[Any] = [Started(submit.id, 1.0, 0)]
        said = texts if submit.stream else ("".join(texts),)
        steps += [Delta(submit.id, 0, text, (7,)) for text in said]
        return [*steps, Finished(submit.id, 0, "stop", "eos", "", counts(2, len(texts)))]

    box = make_box(tmp_path, script)
    preparer: Any = box.preparer
    preparer.prepared = Prepared(prompt=(), text="", output="tools", tools_format="hermes")
    return box


async def test_a_tool_call_is_parsed(tmp_path: Path) -> None:
    body = (await post(tool_box(tmp_path, CALL), tools=[TOOL])).json()
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert call["type"] == "function"
    assert call["function"]["name"] == "look"
    assert json.loads(call["function"]["arguments"]) == {"at": "sky"}


async def test_a_tool_call_is_streamed_in_parts(tmp_path: Path) -> None:
    pieces = [CALL[i : i + 3] for i in range(0, len(CALL), 3)]
    found = await chunks(tool_box(tmp_path, *pieces), tools=[TOOL])
    calls = [d for c in found for d in c["choices"][0]["delta"].get("tool_calls", [])]
    assert calls[0]["index"] == 0
    assert calls[0]["type"] == "function"
    assert calls[0]["function"] == {"name": "look", "arguments": ""}
    assert all("id" not in call for call in calls[1:])
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    assert json.loads(arguments) == {"at": "sky"}
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_does_not_parse_is_content(tmp_path: Path, stream: bool) -> None:
    broken = '<tool_call>{"name": </tool_call> oops'
    box = tool_box(tmp_path, broken)
    if stream:
        found = await chunks(box, tools=[TOOL])
        text = "".join(c["choices"][0]["delta"].get("content") or "" for c in found)
        reason = found[-1]["choices"][0]["finish_reason"]
    else:
        choice = (await post(box, tools=[TOOL])).json()["choices"][0]
        text, reason = choice["message"]["content"], choice["finish_reason"]
    assert text == broken
    assert reason == "stop"


async def test_the_job_is_what_the_prepare_process_takes(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    schema = {"name": "s", "schema": {"type": "object"}, "strict": True}
    body = {
        "messages": [
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"role": "assistant", "content": "c"},
        ],
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": schema},
        "continue_final_message": True,
        "chat_template_kwargs": {"thinking": False},
    }
    await client_of(box).post(PATH, json=body)
    preparer: Any = box.preparer
    job = preparer.jobs[-1]
    assert job.messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "c"},
    ]
    assert job.tools == [TOOL]
    assert job.tool_choice == body["tool_choice"]
    assert job.response_format == {"type": "json_schema", "json_schema": schema}
    assert (job.parallel_tool_calls, job.continue_final_message) == (False, True)
    assert job.add_generation_prompt is False
    assert job.template_kwargs == {"thinking": False}


async def test_the_openai_client_reads_answers_and_streams(tmp_path: Path) -> None:
    sdk = openai.AsyncOpenAI(
        base_url="http://localhost:8421/v1",
        api_key="none",
        http_client=client_of(make_box(tmp_path)),  # type: ignore[arg-type]
    )
    messages: Any = [{"role": "user", "content": "hi"}]
    whole = await sdk.chat.completions.create(model="default", messages=messages, logprobs=True)
    assert whole.choices[0].message.content == "Hello"
    assert whole._request_id is not None
    stream = await sdk.chat.completions.create(
        model="default", messages=messages, stream=True, stream_options={"include_usage": True}
    )
    text = ""
    usage = None
    async for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    assert text == "Hello"
    assert usage is not None
    assert usage.completion_tokens == 3
    back = [*messages, whole.choices[0].message, {"role": "user", "content": "more"}]
    again = await sdk.chat.completions.create(model="default", messages=back)
    assert again.choices[0].finish_reason == "stop"
