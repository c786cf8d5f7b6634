"""Reading, decoding and checking of request bodies."""

import contextlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.bodies import OBJECT_FIELDS, decode, ignored_header, parse
from appliance.api.chat_shapes import ChatRequest
from appliance.api.text_shapes import CompletionRequest, EmbeddingRequest, prompts_of
from appliance.errors import BadRequest
from tests.unit.api_box import chat, client_of, make_box

USER = {"role": "user", "content": "hi"}


def refused(kind: Any, data: dict[str, Any]) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        parse(kind, data, report=False)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b'"text"',
        b"null",
        b"{",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        b"\x00",
        b'{"a":' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode(body, 64)


def test_nesting_is_bounded_exactly() -> None:
    fits = b'{"a":' + b"[" * 3 + b"]" * 3 + b"}"
    assert decode(fits, 4) == {"a": [[[]]]}
    with pytest.raises(BadRequest, match="3 deep"):
        decode(fits, 3)


def test_brackets_inside_text_are_no_nesting() -> None:
    assert decode(json.dumps({"a": "[" * 500}).encode(), 4)


def test_objects_with_too_many_fields_are_refused_before_they_are_looked_at() -> None:
    body = json.dumps({str(i): 0 for i in range(OBJECT_FIELDS + 1)}).encode()
    with pytest.raises(BadRequest, match="fields"):
        decode(body, 64)


@given(st.binary(max_size=64))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    with contextlib.suppress(BadRequest):
        assert isinstance(decode(body, 8), dict)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
field_names = st.sampled_from(sorted(ChatRequest.names())) | st.text(max_size=6)


@given(st.dictionaries(field_names, json_values, max_size=4), st.booleans())
def test_any_object_is_parsed_or_refused_with_one_error(data: dict[str, Any], report: bool) -> None:
    with contextlib.suppress(BadRequest):
        parse(ChatRequest, data, report=report)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [5]}, "messages.0"),
        ({"messages": [{"content": "hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, None),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages.0.content.0",
        ),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 10**12}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"stop": 5}, "stop"),
        ({"stop": [5]}, "stop.0"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": [[5]]}, "logit_bias.0.1"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"store": True}, "store"),
        ({"mirostat": 2}, "mirostat"),
    ],
)
def test_a_wrong_value_names_its_field(change: dict[str, Any], param: str | None) -> None:
    fault = refused(ChatRequest, {"messages": [USER], **change})
    if param is not None:
        assert fault.param == param
        assert param in fault.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"top_logprobs": 2}, "needs logprobs"),
        ({"stream_options": {}}, "needs stream"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "disagree"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "exclude"),
        ({"continue_final_message": True}, "assistant"),
        ({"tool_choice": "required"}, "needs tools"),
        ({"grammar": "x", "response_format": {"type": "json_object"}}, "not both"),
        ({"grammar_type": "gbnf"}, "needs grammar"),
        ({"response_format": {"type": "json_schema"}}, "needs the field json_schema"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(change: dict[str, Any], said: str) -> None:
    assert said in refused(ChatRequest, {"messages": [USER], **change}).message


def test_an_unknown_field_names_the_nearest_valid_one() -> None:
    fault = refused(ChatRequest, {"messages": [USER], "temprature": 1})
    assert fault.param == "temprature"
    assert "'temperature'" in fault.message


def test_an_unknown_field_inside_is_named_with_its_path() -> None:
    content = [{"type": "text", "text": "a", "txet": "b"}]
    fault = refused(ChatRequest, {"messages": [{"role": "user", "content": content}]})
    assert fault.param == "messages.0.content.0.txet"
    assert "'text'" in fault.message


def test_reported_fields_are_left_out_and_listed() -> None:
    content = [{"type": "text", "text": "a", "extra": 1}]
    data = {
        "messages": [USER, {"role": "user", "content": content, "mood": "good"}],
        "best": 1,
        "id_slot": 3,
    }
    shape, ignored = parse(ChatRequest, data, report=True)
    assert sorted(ignored) == ["best", "id_slot", "messages.1.content.0.extra", "messages.1.mood"]
    assert shape.messages[1].text() == "a"


def test_report_does_not_forgive_wrong_values() -> None:
    with pytest.raises(BadRequest) as caught:
        parse(ChatRequest, {"messages": [USER], "extra": 1, "temperature": "x"}, report=True)
    assert caught.value.code in ("unknown_field", "invalid_value")


def test_null_means_the_default_everywhere() -> None:
    nulls = {name: None for name in ChatRequest.names() if name != "messages"}
    shape, ignored = parse(ChatRequest, {"messages": [USER], **nulls}, report=False)
    assert ignored == ()
    assert shape.limit is None


def test_a_message_as_openai_clients_send_it_back_is_taken() -> None:
    back = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    }
    shape, _ = parse(ChatRequest, {"messages": [USER, back]}, report=False)
    plain = shape.messages[1].plain()
    assert plain["content"] == ""
    assert plain["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert "audio" not in plain


@pytest.mark.parametrize(
    ("prompt", "many"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_every_form_of_prompt_is_a_list_of_prompts(prompt: Any, many: Any) -> None:
    shape, _ = parse(CompletionRequest, {"prompt": prompt}, report=False)
    assert prompts_of(shape.prompt) == many


@pytest.mark.parametrize("prompt", [[], 5, [1, "a"], [[]], [[-1]], ["a"] * 65, {"a": 1}])
def test_what_is_no_prompt_is_refused(prompt: Any) -> None:
    fault = refused(CompletionRequest, {"prompt": prompt})
    assert fault.param is not None
    assert fault.param.startswith("prompt")


@pytest.mark.parametrize("field", ["echo", "suffix", "best_of"])
def test_what_completions_does_not_do_is_refused_by_name(field: str) -> None:
    value: Any = {"echo": True, "suffix": "x", "best_of": 3}[field]
    assert field in refused(CompletionRequest, {"prompt": "a", field: value}).message


def test_only_full_vectors_are_offered() -> None:
    assert refused(EmbeddingRequest, {"input": "a", "dimensions": 64}).param == "dimensions"


def test_a_million_wrong_items_make_one_error() -> None:
    fault = refused(CompletionRequest, {"prompt": [1.5] * 1_000_000})
    assert len(fault.message) < 500


def test_the_header_of_ignored_fields_cannot_be_broken_by_their_names() -> None:
    assert ignored_header(["a\r\nSet-Cookie: x", "é"]) == {
        "X-Ignored-Params": "a??Set-Cookie??x, ?"
    }
    assert ignored_header([]) == {}


async def test_a_declared_size_over_the_limit_is_413(tmp_path: Path) -> None:
    box = make_box(tmp_path, limits={"body_bytes": 1024})
    answer = await client_of(box).post("/v1/completions", json={"prompt": "x" * 2000})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    assert answer.headers["connection"] == "close"


async def test_a_chunked_body_over_the_limit_is_413(tmp_path: Path) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 512

    box = make_box(tmp_path, limits={"body_bytes": 1024})
    async with client_of(box) as client:
        answer = await client.post("/v1/completions", content=endless())
    assert answer.status_code == 413
    assert sent < 10


async def test_a_large_body_is_decoded_off_the_loop_and_still_answered(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    body = chat(user="x" * 600_000)
    answer = await client_of(box).post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "user"


async def test_any_content_type_is_taken_as_json(tmp_path: Path) -> None:
    async with client_of(make_box(tmp_path)) as client:
        answer: httpx.Response = await client.post(
            "/v1/chat/completions",
            content=json.dumps(chat()),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
    assert answer.status_code == 200
