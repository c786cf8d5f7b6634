"""What clients of llama-server rely on, as its own tests state it, and what we do better.

Sizes of prompts are told by /tokenize and by the ids in the answers, never assumed.
"""

import asyncio
import json
import math
import threading
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.box.asking import Asked
from tests.box.running import RunningBox
from tests.box.wire import HELLO, chat, error_of, events_of, refused, saying

PATH = "/v1/chat/completions"
LONG = "A very long story of the sea. " * 400
"""More tokens than the context of 2048 holds."""


def answered(box: RunningBox, body: dict[str, Any], path: str = PATH) -> dict[str, Any]:
    answer = box.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def streamed(box: RunningBox, body: dict[str, Any], path: str = PATH) -> list[dict[str, Any]]:
    answer = box.http.post(path, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    return events_of(answer.text)


def totals(box: RunningBox) -> dict[str, float]:
    """Every sample without labels."""
    families = text_string_to_metric_families(box.http.get("/metrics").text)
    return {s.name: s.value for family in families for s in family.samples if not s.labels}


# -- the stream's form -----------------------------------------------------------------------------


def test_the_first_delta_has_the_role_and_the_last_has_no_content(box: RunningBox) -> None:
    first, *middle, last = streamed(box, chat(max_tokens=3, ignore_eos=True))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert len({chunk["id"] for chunk in (first, *middle, last)}) == 1
    for chunk in middle:
        assert set(chunk["choices"][0]["delta"]) == {"content"}
        assert chunk["choices"][0]["finish_reason"] is None
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["choices"][0]["delta"] == {}
    assert {chunk["object"] for chunk in (first, *middle, last)} == {"chat.completion.chunk"}


def test_every_answer_and_chunk_names_the_build(box: RunningBox) -> None:
    whole = answered(box, chat(max_tokens=1))
    chunks = streamed(box, chat(max_tokens=1))
    prints = {answer["system_fingerprint"] for answer in (whole, *chunks)}
    assert len(prints) == 1
    assert prints.pop().startswith("b")


def test_a_stream_ends_with_done_and_llama_servers_own_does_not(box: RunningBox) -> None:
    openai = box.http.post(PATH, json=chat(max_tokens=1, stream=True)).text
    native = box.http.post("/completion", json={"prompt": "x", "n_predict": 1, "stream": True}).text
    assert openai.endswith("data: [DONE]\n\n")
    assert "[DONE]" not in native


def test_usage_comes_after_the_choices_and_only_when_asked_for(box: RunningBox) -> None:
    plain = streamed(box, chat(max_tokens=1))
    assert all("usage" not in chunk for chunk in plain)
    *_, finish, usage = streamed(box, chat(max_tokens=1, stream_options={"include_usage": True}))
    assert finish["choices"][0]["finish_reason"] is not None
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 1


def test_timings_are_on_the_last_chunk_and_on_all_if_asked_for(box: RunningBox) -> None:
    *early, last = streamed(box, chat(max_tokens=3, ignore_eos=True))
    assert all("timings" not in chunk for chunk in early)
    assert last["timings"]["predicted_n"] == 3
    _, *told, last = streamed(box, chat(max_tokens=3, ignore_eos=True, timings_per_token=True))
    assert [chunk["timings"]["predicted_n"] for chunk in told] == sorted(
        chunk["timings"]["predicted_n"] for chunk in told
    )
    assert last["timings"]["predicted_n"] == 3


def test_progress_of_a_long_prompt_rises_to_its_total(box: RunningBox) -> None:
    body = chat(
        messages=[{"role": "user", "content": "Numbers: " + " ".join(map(str, range(300)))}],
        max_tokens=1,
        return_progress=True,
        stream_options={"include_usage": True},
    )
    chunks = streamed(box, body)
    progress = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    total = chunks[-1]["usage"]["prompt_tokens"]
    done = [entry["processed"] for entry in progress]
    assert len(progress) >= 2, "a prompt larger than a step is told about more than once"
    assert done == sorted(set(done))
    assert done[-1] == total
    assert {entry["total"] for entry in progress} == {total}


# -- counts ----------------------------------------------------------------------------------------


def test_the_same_prompt_again_is_found_in_the_cache(box: RunningBox) -> None:
    body = chat(messages=[{"role": "user", "content": "Tell me of herring."}], max_tokens=1)
    first, second = answered(box, body)["usage"], answered(box, body)["usage"]
    assert first["prompt_tokens"] == second["prompt_tokens"]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in (first, second)]
    assert cached[0] < cached[1] == second["prompt_tokens"] - 1


def test_a_request_may_do_without_the_cache(box: RunningBox) -> None:
    body = chat(max_tokens=1, cache_prompt=False)
    answered(box, body)
    assert answered(box, body)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_usage_of_several_choices_counts_each_of_them(box: RunningBox) -> None:
    body = chat(n=3, max_tokens=3, ignore_eos=True, return_token_ids=True)
    found = answered(box, body)
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2]
    assert found["usage"]["completion_tokens"] == 9
    assert found["usage"]["prompt_tokens"] == len(found["prompt_token_ids"])
    usage = streamed(box, {**body, "stream_options": {"include_usage": True}})[-1]["usage"]
    assert usage["completion_tokens"] == 9


@pytest.mark.parametrize("stream", [False, True])
def test_no_tokens_asked_for_means_none_generated(box: RunningBox, stream: bool) -> None:
    body = chat(max_tokens=0, return_token_ids=True)
    if stream:
        events = streamed(box, {**body, "stream_options": {"include_usage": True}})
        usage = events[-1]["usage"]
        content = [c["delta"].get("content") for e in events for c in e["choices"]]
        assert not any(content)
    else:
        found = answered(box, body)
        usage = found["usage"]
        (choice,) = found["choices"]
        assert (choice["message"]["content"], choice["token_ids"]) == ("", [])
        assert choice["finish_reason"] == "length"
    assert usage["completion_tokens"] == 0
    assert usage["prompt_tokens"] > 0


def test_tokens_that_do_not_show_are_named_in_the_usage(box: RunningBox) -> None:
    found = answered(box, chat(**saying("one two three"), stop=[" three"], return_token_ids=True))
    assert found["choices"][0]["message"]["content"] == "one two"
    usage = found["usage"]
    hidden = usage["completion_tokens_details"]["hidden_tokens"]
    shown = box.http.post("/tokenize", json={"content": "one two"}).json()["tokens"]
    ids = found["choices"][0]["token_ids"]
    assert hidden >= 1
    assert usage["completion_tokens"] == len(ids)
    text = box.http.post("/detokenize", json={"tokens": ids[: len(ids) - hidden]}).json()["content"]
    assert text == "one two"
    assert len(ids) - hidden >= len(shown)


def test_the_rate_of_generation_leaves_the_first_token_to_the_prompt(box: RunningBox) -> None:
    timings = answered(box, chat(max_tokens=6, ignore_eos=True))["timings"]
    assert timings["predicted_n"] == 6
    assert timings["predicted_per_token_ms"] * 5 == pytest.approx(timings["predicted_ms"])
    assert timings["predicted_per_second"] * timings["predicted_ms"] == pytest.approx(5000)
    one = answered(box, chat(max_tokens=1))["timings"]
    for timing in (timings, one, answered(box, chat(max_tokens=0))["timings"]):
        assert all(math.isfinite(value) and value >= 0 for value in timing.values())


def test_metrics_grow_by_exactly_what_the_answers_say(box: RunningBox) -> None:
    box.wait_idle()
    before = totals(box)
    found = [
        answered(box, chat(max_tokens=4)),
        streamed(box, chat(max_tokens=3, stream_options={"include_usage": True}))[-1],
        answered(box, chat(**saying("one two three"), stop=[" two"])),
        answered(box, {"prompt": ["Tell", "me"], "max_tokens": 3}, "/v1/completions"),
    ]
    native = answered(box, {"prompt": "Once upon a time", "n_predict": 3}, "/completion")
    after = totals(box)
    grown = {name: after[name] - before[name] for name in after if name in before}
    usage = [answer["usage"] for answer in found]
    predicted = sum(u["completion_tokens"] for u in usage) + native["tokens_predicted"]
    prompt = sum(u["prompt_tokens"] for u in usage) + native["tokens_evaluated"]
    cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage)
    cached += native["tokens_cached"]
    assert grown["llamacpp:tokens_predicted_total"] == predicted
    assert grown["llamacpp:prompt_tokens_cached_total"] == cached
    assert grown["llamacpp:prompt_tokens_total"] == prompt - cached
    crabs = chat(max_tokens=4, n=2, messages=[{"role": "user", "content": "Of crabs."}])
    usage = [answered(box, crabs)["usage"]]
    once = usage[0]["prompt_tokens"] - usage[0]["prompt_tokens_details"]["cached_tokens"]
    computed = totals(box)["llamacpp:prompt_tokens_total"] - after["llamacpp:prompt_tokens_total"]
    assert once < computed <= 2 * usage[0]["prompt_tokens"], "what each choice computed for itself"
    box.wait_idle()
    after = totals(box)
    assert after["llamacpp:requests_processing"] == after["llamacpp:requests_deferred"] == 0
    box.wait_until(lambda: box.busy_slots() == 0, what="the slots are idle")


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (PATH, {"messages": [{"role": "user", "content": LONG}]}, "messages"),
        ("/v1/completions", {"prompt": LONG}, "prompt"),
        ("/completion", {"prompt": LONG}, "prompt"),
        ("/completion", {"prompt": [5] * 3000}, "prompt"),
    ],
)
def test_a_prompt_too_long_is_refused_with_both_numbers_before_any_chunk(
    box: RunningBox, path: str, body: dict[str, Any], param: str, stream: bool
) -> None:
    answer = box.http.post(path, json={**body, "stream": stream})
    error = error_of(answer)
    assert answer.status_code == 400
    assert error["type"] == "exceed_context_size_error"
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == param
    assert error["n_ctx"] == 2048
    assert error["n_prompt_tokens"] > 2048
    assert str(error["n_prompt_tokens"]) in error["message"]
    assert "2048" in error["message"]


def test_the_count_of_a_prompt_that_is_just_too_long_is_exact(box: RunningBox) -> None:
    ids = [5] * 2048
    error = refused(box.http.post("/completion", json={"prompt": ids, "n_predict": 1}))
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (2048, 2048)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        "hello",
        42,
        [],
        [None],
        ["hello"],
        [7],
        [{}],
        [{"content": "no role"}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": 42}],
        [{"role": "user", "content": {"text": "x"}}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "robot", "content": "x"}],
        [{"role": None, "content": "x"}],
        [{"role": "user", "content": "x", "colour": "red"}],
        [{"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}],
    ],
)
def test_messages_of_the_wrong_form_are_refused(box: RunningBox, messages: Any) -> None:
    error = refused(box.http.post(PATH, json={"messages": messages, "max_tokens": 1}))
    assert (error["param"] or "").startswith("messages")
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "wrong",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nope"}}}},
        {"response_format": {"type": "sound"}},
        {"response_format": "json_object"},
        {"json_schema": {"type": 12}},
        {"grammar": "root ::= ((("},
        {"grammar": "root ::= unknown"},
        {"grammar": ""},
        {"grammar": "start: /(/", "grammar_type": "lark"},
        {"grammar": "(?=x)", "grammar_type": "regex"},
    ],
)
def test_after_a_format_or_grammar_that_cannot_be_used_the_next_request_works(
    box: RunningBox, wrong: dict[str, Any]
) -> None:
    for stream in (False, True):
        error = refused(box.http.post(PATH, json=chat(**wrong, stream=stream)))
        assert error["type"] == "invalid_request_error"
    assert answered(box, chat(max_tokens=1))["usage"]["completion_tokens"] == 1


def test_a_new_turn_and_a_continued_one_exclude_each_other(box: RunningBox) -> None:
    both = {"add_generation_prompt": True, "continue_final_message": True}
    begun = [*HELLO, {"role": "assistant", "content": "Hel"}]
    refused(box.http.post(PATH, json=chat(messages=begun, **both)))
    refused(box.http.post("/apply-template", json={"messages": begun, **both}))


# -- many at a time --------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_gives_up_leaves_its_slot_idle_long_before_its_answer_would_have_ended(
    box: RunningBox, stream: bool
) -> None:
    name = f"gave-up-{stream}"
    body = chat(max_tokens=1500, ignore_eos=True, stream=stream)
    box.wait_idle()
    asked = Asked(box, PATH, body, {"X-Request-Id": name})
    box.wait_for_running(1)
    box.wait_until(lambda: asked.events or not stream, what="it is in the middle of its answer")
    asked.hang_up()
    box.wait_until(lambda: row_of(box, name), what="its end is written down")
    (row,) = row_of(box, name)
    assert (row["outcome"], row["code"]) == ("cancelled", "client_gone")
    assert row["completion_tokens"] < 1500
    box.wait_until(lambda: box.busy_slots() == 0, what="the slot is idle")


def row_of(box: RunningBox, name: str) -> list[dict[str, Any]]:
    """None before it has ended and is written down."""
    found: list[dict[str, Any]] = box.admin("GET", f"/admin/requests/{name}").json().get("entries")
    return found or []


async def test_parallel_requests_all_complete_each_with_its_own_text(box: RunningBox) -> None:
    async with httpx.AsyncClient(base_url=box.url, timeout=120) as http:

        async def one(text: str) -> str:
            answer = await http.post(PATH, json=chat(**saying(text), max_tokens=64))
            content: str = answer.json()["choices"][0]["message"]["content"]
            return content

        texts = [f"Sentence {i}: the tide comes in and goes out again." for i in range(6)]
        assert await asyncio.gather(*map(one, texts)) == texts


def test_more_requests_than_slots_wait_their_turn(box: RunningBox) -> None:
    found: list[dict[str, Any]] = []
    body = chat(max_tokens=3, n=8, ignore_eos=True)
    threads = [threading.Thread(target=lambda: found.append(answered(box, body))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer["usage"]["completion_tokens"] for answer in found] == [24, 24, 24]


def test_a_busy_slot_tells_what_it_does(box: RunningBox) -> None:
    body = chat(max_tokens=1500, ignore_eos=True, stream=True, temperature=0.5)
    with box.http.stream("POST", PATH, json=body) as answer:
        lines = answer.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))

        def told() -> list[dict[str, Any]]:
            """The slot, once its prompt is read."""
            found = [slot for slot in box.slots() if slot["id_task"] == first["id"]]
            return [slot for slot in found if slot["next_token"][0]["n_decoded"] > 0]

        box.wait_until(told, what="the slot is shown")
        (busy,) = told()
        assert busy["is_processing"]
        assert busy["params"]["temperature"] == 0.5
        assert busy["n_prompt_tokens"] == busy["n_prompt_tokens_processed"] > 0
        assert busy["next_token"][0]["n_remain"] > 0
    box.wait_until(lambda: box.busy_slots() == 0, what="the slot is idle")


def test_no_answer_with_tools_is_ever_a_server_error(box: RunningBox) -> None:
    """Hot sampling writes calls that do not parse; they must come out as text."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for seed in range(4):
        body = chat(tools=[tool], temperature=3, top_k=0, top_p=1, min_p=0, seed=seed)
        found = answered(box, body)
        (choice,) = found["choices"]
        for call in choice["message"].get("tool_calls", ()):
            assert call["function"]["name"] == "f"
        assert streamed(box, body)[-1]["choices"][0]["finish_reason"] is not None
