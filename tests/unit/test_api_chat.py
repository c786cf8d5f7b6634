"""Chats: what goes to the engine, and the answers whole and streamed."""

from pathlib import Path
from typing import Any

import pytest

from appliance.config import ModelConfig
from appliance.engine.commands import Submit
from appliance.engine.reports import Finished
from appliance.errors import BadRequest, Overloaded, Unavailable
from appliance.prepare.messages import Prepared
from tests.unit.api_box import chat, client_of, counts, make_box, saying
from tests.unit.chat_parts import PATH, chunks, post, submitted


async def test_a_chat_is_answered_in_openai_shape(tmp_path: Path) -> None:
    answer = await post(make_box(tmp_path))
    body = answer.json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["system_fingerprint"].startswith("b")
    assert body["model"] == "tiny"
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"hidden_tokens": 1},
    }
    assert body["timings"]["predicted_n"] == 3
    assert body["timings"]["predicted_per_second"] == pytest.approx(2 / 0.1)
    assert "token_ids" not in choice
    assert "service_tier" not in body
    assert answer.headers["x-queue-position"] == "0"


async def test_defaults_come_from_the_config_and_the_context(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    await post(box)
    request = submitted(box)
    assert request.max_tokens == box.n_ctx - 2
    assert request.sampling.temperature == box.config.sampling.temperature
    assert request.sampling.seed is not None
    assert request.sampling.logprobs == -1
    assert (request.n, request.stop, request.stream, request.deadline) == (1, (), False, None)


async def test_every_parameter_reaches_the_engine(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    answer = await post(
        box,
        model="default",
        max_completion_tokens=7,
        n=2,
        stop=["x", "y"],
        seed=5,
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        typical_p=0.9,
        presence_penalty=1,
        frequency_penalty=-1,
        repeat_penalty=1.1,
        repeat_last_n=-1,
        logit_bias={"5": -100, "6": 2},
        logprobs=True,
        top_logprobs=2,
        ignore_eos=True,
        cache_prompt=False,
        service_tier="flex",
        deadline_s=9,
    )
    assert answer.status_code == 200
    assert answer.json()["service_tier"] == "flex"
    request, sampling = submitted(box), submitted(box).sampling
    assert (request.max_tokens, request.n, request.stop) == (7, 2, ("x", "y"))
    assert (request.priority, request.cache_prompt) == (1, False)
    assert request.deadline is not None
    assert (sampling.seed, sampling.temperature, sampling.top_p, sampling.top_k) == (5, 0, 0.5, 3)
    assert (sampling.min_p, sampling.typical_p) == (0.1, 0.9)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert (sampling.repeat_penalty, sampling.repeat_last_n) == (1.1, -1)
    assert sampling.logit_bias == ((5, -100.0), (6, 2.0))
    assert (sampling.logprobs, sampling.ignore_eos) == (2, True)


async def test_llama_servers_form_of_logit_bias_can_forbid(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    await post(box, logit_bias=[[5, False], [6, 1.5]])
    assert submitted(box).sampling.logit_bias == ((5, float("-inf")), (6, 1.5))


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63 - 1])
async def test_large_seeds_are_folded_so_that_every_choice_has_one(
    tmp_path: Path, seed: int
) -> None:
    box = make_box(tmp_path)
    await post(box, seed=seed)
    folded = submitted(box).sampling.seed
    assert folded is not None
    assert 0 <= folded < 2**31 - 1


async def test_seed_minus_one_is_a_fresh_one(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    seeds = set()
    for _ in range(3):
        await post(box, seed=-1)
        seeds.add(submitted(box).sampling.seed)
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 9}, "n"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": "x" * 257}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"logprobs": True, "top_logprobs": 6}, "top_logprobs"),
        ({"logit_bias": {"256": 1}}, "logit_bias"),
        ({"logit_bias": {"hello": 1}}, "logit_bias"),
        ({"grammar": "x" * 65537}, "grammar"),
    ],
)
async def test_bounds_of_the_config_name_their_field(
    tmp_path: Path, more: dict[str, Any], param: str
) -> None:
    answer = await post(make_box(tmp_path, limits={"top_logprobs": 5}), **more)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("name", ["default", "tiny", "gpt-4o", None])
async def test_every_name_of_the_model_means_it(tmp_path: Path, name: str | None) -> None:
    box = make_box(tmp_path, model=ModelConfig(aliases={"gpt-4o": "default"}))
    answer = await post(box, model=name)
    assert answer.json()["model"] == "tiny"


async def test_an_unknown_model_is_404(tmp_path: Path) -> None:
    answer = await post(make_box(tmp_path), model="gpt-5")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_over_long_prompt_is_400_with_both_numbers(tmp_path: Path, stream: bool) -> None:
    box = make_box(tmp_path)
    body = {"messages": [{"role": "user", "content": "x" * 128}], "stream": stream}
    answer = await client_of(box).post(PATH, json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (128, 128)
    assert error["param"] == "messages"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        Overloaded("full", retry_after=3),
        Unavailable("draining", retry_after=10, code="draining"),
    ],
)
async def test_refusals_are_real_statuses_also_for_streams(
    tmp_path: Path, stream: bool, fault: Any
) -> None:
    box = make_box(tmp_path)
    admission: Any = box.admission
    admission.fault = fault
    answer = await post(box, stream=stream)
    assert answer.status_code == fault.status
    assert answer.headers["retry-after"] == fault.headers["Retry-After"]
    assert answer.json()["error"]["code"] == fault.code


async def test_a_bad_template_or_grammar_is_the_clients_fault(tmp_path: Path) -> None:
    box = make_box(tmp_path)

    async def refuse(job: Any, key: str) -> Prepared:
        raise BadRequest("no", param="grammar", code="grammar_timeout")

    preparer: Any = box.preparer
    preparer.chat = refuse
    answer = await post(box, grammar="root ::= x")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "grammar_timeout"


async def test_no_tokens_are_generated_when_none_are_wanted(tmp_path: Path) -> None:
    def none(submit: Submit) -> list[Any]:
        cost = counts(len(submit.prompt), 0, hidden=0)
        return [Finished(submit.id, 0, "length", "limit", "", cost)]

    box = make_box(tmp_path, none)
    body = (await post(box, max_tokens=0)).json()
    assert submitted(box).max_tokens == 0
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["content"] == ""
    assert body["usage"]["completion_tokens"] == 0


async def test_usage_counts_every_choice(tmp_path: Path) -> None:
    box = make_box(tmp_path, saying(choice_texts=[("a",), ("b", "c")]))
    body = (await post(box, n=2)).json()
    assert [c["index"] for c in body["choices"]] == [0, 1]
    assert [c["message"]["content"] for c in body["choices"]] == ["a", "bc"]
    assert body["usage"]["completion_tokens"] == 5
    assert body["usage"]["prompt_tokens"] == 2


async def test_the_length_limit_is_told(tmp_path: Path) -> None:
    body = (await post(make_box(tmp_path, saying("a", reason="length")))).json()
    assert body["choices"][0]["finish_reason"] == "length"


async def test_token_ids_are_given_on_request(tmp_path: Path) -> None:
    body = (await post(make_box(tmp_path), return_token_ids=True)).json()
    assert body["choices"][0]["token_ids"] == [72, 108, 0]
    assert body["prompt_token_ids"] == [104, 105]


async def test_metadata_is_given_back(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    assert (await post(box, metadata={"a": "b"})).json()["metadata"] == {"a": "b"}
    assert (await chunks(box, metadata={"a": "b"}))[0]["metadata"] == {"a": "b"}


async def test_fields_without_effect_are_listed(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    answer = await post(box, prompt_cache_key="k", reasoning_effort="low", id_slot=1)
    assert answer.headers["x-ignored-params"] == "id_slot, prompt_cache_key, reasoning_effort"
    reporting = make_box(tmp_path, api={"unknown_fields": "report"})
    answer = await post(reporting, frobnicate=1)
    assert answer.status_code == 200
    assert answer.headers["x-ignored-params"] == "frobnicate"


async def test_a_deadline_may_come_as_a_header(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    headers = {"X-Request-Timeout-Ms": "1500"}
    await client_of(box).post(PATH, json=chat(), headers=headers)
    assert submitted(box).deadline is not None
    for wrong in ("0", "-1", "x", "1.5", "9" * 20):
        headers = {"X-Request-Timeout-Ms": wrong}
        answer = await client_of(box).post(PATH, json=chat(), headers=headers)
        assert answer.status_code == 400
