"""POST /v1/responses: what becomes of its body, what it answers, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.api.box import Box
from appliance.engine.commands import Submit
from appliance.engine.reports import Delta, Finished, Started
from appliance.errors import EngineFailed
from appliance.prepare.messages import Prepared
from tests.unit.api_box import client_of, counts, make_box, saying
from tests.unit.chat_parts import submitted

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
GAVE = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
CALLING = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


async def post(box: Box, **more: Any) -> Any:
    return await client_of(box).post(PATH, json={"input": "hi", **more})


async def events(box: Box, **more: Any) -> list[Any]:
    """Of a stream. Each names its type twice, and they are numbered through."""
    answer = await post(box, stream=True, **more)
    assert answer.status_code == 200
    found = []
    for block in answer.text.strip().split("\n\n"):
        kind, data = (line.partition(": ")[2] for line in block.split("\n"))
        found.append(json.loads(data))
        assert found[-1]["type"] == kind
    assert [one["sequence_number"] for one in found] == list(range(len(found)))
    return found


def with_tools(tmp_path: Path, *texts: str, reason: str = "stop") -> Box:
    """A box that says the texts, whose prepare process finds calls in them."""
    box = make_box(tmp_path, saying(*texts, reason=reason))
    preparer: Any = box.preparer
    preparer.prepared = Prepared(prompt=(), text="", output="tools", tools_format="hermes")
    return box


def job(box: Box) -> Any:
    preparer: Any = box.preparer
    return preparer.jobs[-1]


async def test_an_answer_has_openai_shape(tmp_path: Path) -> None:
    answer = await post(make_box(tmp_path), max_output_tokens=9, metadata={"a": "b"}, user="u")
    body = answer.json()
    assert (answer.status_code, body["object"], body["status"]) == (200, "response", "completed")
    assert body["id"].startswith("resp_")
    (message,) = body["output"]
    assert message["id"].startswith("msg_")
    assert (message["type"], message["role"], message["status"]) == (
        "message", "assistant", "completed",
    )  # fmt: skip
    assert message["content"] == [
        {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    ]
    assert body["usage"] == {
        "input_tokens": 2,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"hidden_tokens": 1, "reasoning_tokens": 0},
        "total_tokens": 5,
    }
    assert (body["store"], body["metadata"], body["user"]) == (False, {"a": "b"}, "u")
    assert (body["max_output_tokens"], body["error"], body["incomplete_details"]) == (9, None, None)
    assert body["X-Token-Diff-SHA256"] == answer.headers["X-Token-Diff-SHA256"]


async def test_an_answer_that_runs_out_of_tokens_says_that_it_is_incomplete(
    tmp_path: Path,
) -> None:
    box = make_box(tmp_path, saying("a", "b", reason="length"))
    body = (await post(box, max_output_tokens=2)).json()
    assert (body["status"], body["output"][0]["status"]) == ("incomplete", "incomplete")
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert submitted(box).max_tokens == 2
    *_, last = await events(box)
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")


async def test_items_become_the_messages_of_a_chat(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    said = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}]}  # fmt: skip
    asked = [
        {"role": "user", "content": [{"type": "input_text", "text": "rain?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        said,
        CALL,
        {**CALL, "call_id": "call_2", "id": "fc_2", "status": "completed"},
        GAVE,
        {**GAVE, "call_id": "call_2", "output": [{"type": "input_text", "text": "sun"}]},
    ]
    assert (await post(box, input=asked, instructions="Be brief.")).status_code == 200
    system, user, assistant, first, second = job(box).messages
    assert (system["role"], system["content"]) == ("system", "Be brief.")
    assert (user["role"], user["content"]) == ("user", "rain?")
    assert assistant["content"] == "I look."
    assert [call["id"] for call in assistant["tool_calls"]] == ["call_1", "call_2"]
    assert assistant["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert (first["role"], first["tool_call_id"], first["content"]) == ("tool", "call_1", "rain")
    assert (second["tool_call_id"], second["content"]) == ("call_2", "sun")


async def test_tools_and_formats_reach_the_prepare_process_in_a_chats_form(tmp_path: Path) -> None:
    box = with_tools(tmp_path, "x")
    other = {**TOOL, "name": "g"}
    named = {"type": "function", "name": "f"}
    await post(box, tools=[TOOL, other], tool_choice=named, parallel_tool_calls=False)
    assert job(box).tool_choice == {"type": "function", "function": {"name": "f"}}
    assert [tool["function"]["name"] for tool in job(box).tools] == ["f", "g"]
    assert job(box).tools[0]["function"]["parameters"] == {"type": "object"}
    assert not job(box).parallel_tool_calls
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{**named, "name": "g"}]}
    answer = await post(box, tools=[TOOL, other], tool_choice=allowed)
    assert ([tool["function"]["name"] for tool in job(box).tools], job(box).tool_choice) == (
        ["g"],
        "required",
    )
    assert answer.json()["tool_choice"] == allowed
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    answer = await post(box, text={"format": form})
    assert job(box).response_format == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    }
    assert answer.json()["text"] == {"format": form}


async def test_calls_are_items_of_their_own(tmp_path: Path) -> None:
    body = (await post(with_tools(tmp_path, "I look.", CALLING + "\n" + CALLING))).json()
    message, *calls = body["output"]
    assert message["content"][0]["text"] == "I look."
    assert [call["type"] for call in calls] == ["function_call"] * 2
    assert all((c["name"], json.loads(c["arguments"])) == ("f", {"a": 1}) for c in calls)
    assert len({call["call_id"] for call in calls} | {call["id"] for call in calls}) == 4


async def test_a_stream_tells_every_item_from_its_begin_to_its_end(tmp_path: Path) -> None:
    found = await events(with_tools(tmp_path, "\n", "I ", "look.", CALLING))
    delta, call = "response.output_text.delta", "response.function_call_arguments"
    kinds = [one["type"] for one in found if one["type"] != f"{call}.delta"]
    assert kinds == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added", delta, delta, "response.output_text.done",
        "response.content_part.done", "response.output_item.done",
        "response.output_item.added", f"{call}.done", "response.output_item.done",
        "response.completed",
    ]  # fmt: skip
    last = found[-1]["response"]
    message, called = last["output"]
    assert "".join(one["delta"] for one in found if one["type"] == delta) == "\nI look."
    assert message["content"][0]["text"] == "\nI look."
    arguments = [one["delta"] for one in found if one["type"] == f"{call}.delta"]
    assert "".join(arguments) == called["arguments"]
    added = [one["item"] for one in found if one["type"] == "response.output_item.added"]
    assert (added[0]["content"], added[1]["arguments"]) == ([], "")
    assert [one["status"] for one in added] == ["in_progress"] * 2
    done = [one["item"] for one in found if one["type"] == "response.output_item.done"]
    assert done == [message, called]
    assert last["usage"]["output_tokens"] == 5
    assert found[0]["response"]["output"] == []


async def test_white_space_alone_is_still_an_answer(tmp_path: Path) -> None:
    (message,) = (await post(with_tools(tmp_path, " ", "\n"))).json()["output"]
    assert message["content"][0]["text"] == " \n"
    (call,) = (await post(with_tools(tmp_path, "\n", CALLING, "\n"))).json()["output"]
    assert call["type"] == "function_call"
    (message,) = (await post(make_box(tmp_path, saying()))).json()["output"]
    assert message["content"][0]["text"] == ""


async def test_log_probabilities_come_with_the_text(tmp_path: Path) -> None:
    asked: Any = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    box = make_box(tmp_path, saying("H", "i"))
    whole = (await post(box, **asked)).json()["output"][0]["content"][0]["logprobs"]
    assert [entry["token"] for entry in whole] == ["H", "i"]
    assert len(whole[0]["top_logprobs"]) == 2
    told = await events(box, **asked)
    deltas = [one["logprobs"] for one in told if one["type"] == "response.output_text.delta"]
    assert [entry for logprobs in deltas for entry in logprobs] == whole


async def test_a_failure_amid_a_stream_ends_it_with_the_error(tmp_path: Path) -> None:
    def script(submit: Submit) -> list[Any]:
        return [
            Started(submit.id, 0.0, 0),
            Delta(submit.id, 0, "Hel", (72,)),
            Finished(submit.id, 0, "deadline", "none", "", counts(2, 1)),
        ]

    *_, failed, error = await events(make_box(tmp_path, script))
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"]["code"] == error["code"] == "deadline_exceeded"
    assert failed["response"]["output"][0]["content"][0]["text"] == "Hel"
    assert failed["response"]["usage"] == {
        "input_tokens": 2, "output_tokens": 1, "total_tokens": 3,
    }  # fmt: skip
    assert error["error"]["message"] == error["message"]
    fault = EngineFailed("gone", code="engine_crashed")
    begun, *_, error = await events(make_box(tmp_path, lambda _: [fault]))
    assert (begun["type"], error["code"]) == ("response.created", "engine_crashed")


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "no response is stored"),
        ({"conversation": "c"}, "conversation", "no conversation is stored"),
        ({"background": True}, "background", "on the connection"),
        ({"prompt": {"id": "p"}}, "prompt", "no prompt is stored"),
        ({"store": True}, "store", "no response is stored"),
        ({"tools": [{"type": "web_search"}]}, "tools.0", "tools are functions"),
        ({"tools": [TOOL, TOOL]}, None, "share a name"),
        ({"tool_choice": {"type": "function", "name": "f"}}, None, "not among the tools"),
        ({"tool_choice": "required"}, None, "needs tools"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0", "an item has type"),
        ({"input": [{"role": "user"}]}, "input.0.content", "required"),
        ({"input": [{**CALL, "arguments": None}]}, "input.0.arguments", "string"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.0.content.0",
            "takes text alone",
        ),
        ({"input": [{"type": "reasoning", "summary": []}]}, None, "reasoning alone"),
        ({"input": []}, "input", "at least 1"),
        ({"input": None}, "input", "string"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "needs the field schema"),
        ({"top_logprobs": 2}, None, "needs include"),
        ({"max_tokens": 3}, "max_tokens", "'max_output_tokens'"),
        ({"n": 2}, "n", "unknown field"),
        ({"input": "a" * 600}, "input", "prompt tokens"),
        ({"model": "gpt-5"}, "model", "no model 'gpt-5'"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_a_reason(
    tmp_path: Path, body: dict[str, Any], param: str | None, said: str
) -> None:
    box = make_box(tmp_path)
    answer = await post(box, **body)
    error = answer.json()["error"]
    assert answer.status_code == (404 if param == "model" else 400)
    assert error["param"] == param
    assert said in error["message"]
    supervisor: Any = box.supervisor
    assert not supervisor.tickets


async def test_hints_are_taken_and_named(tmp_path: Path) -> None:
    answer = await post(
        make_box(tmp_path),
        reasoning={"effort": "low"},
        include=["reasoning.encrypted_content"],
        truncation="auto",
        text={"verbosity": "low"},
    )
    assert answer.status_code == 200
    assert answer.headers["X-Ignored-Params"] == (
        "reasoning, include.reasoning.encrypted_content, truncation, text.verbosity"
    )
    assert answer.json()["truncation"] == "disabled"


async def test_its_row_has_its_route_and_every_token(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    body = (await post(box)).json()
    ledger: Any = box.ledger
    (row,) = ledger.requests
    assert (row.id, row.route) == (body["id"], PATH)
    assert (row.prompt_tokens, row.completion_tokens) == (2, 3)
