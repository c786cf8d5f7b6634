"""The official client beyond chats: texts, embeddings, models, errors, headers, many at a time."""

import asyncio
import math
from typing import Any

import openai
import pytest

from tests.box.answered import IDS, MODEL, check_usage, extra, ids_for, joined, text_of
from tests.box.running import RunningBox
from tests.box.wire import HELLO, saying


def similarity(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


# -- completions, embeddings, models ---------------------------------------------------------------


def test_texts_and_token_ids_are_completed(box: RunningBox) -> None:
    client = box.client()
    ids = ids_for(box, "Once upon a time")
    for prompt in ("Once upon a time", ids):
        answer = client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=5, extra_body={**IDS, "ignore_eos": True}
        )
        check_usage(answer)
        assert extra(answer, "prompt_token_ids") == ids
        assert answer.object == "text_completion"
        assert answer.choices[0].finish_reason == "length"
        assert answer.choices[0].text == text_of(box, extra(answer.choices[0], "token_ids"))


def test_several_prompts_give_their_choices_in_order(box: RunningBox) -> None:
    answer = box.client().completions.create(
        model=MODEL, prompt=["One", "Two and three"], n=2, max_tokens=2,
        extra_body={**IDS, "ignore_eos": True},
    )  # fmt: skip
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    check_usage(answer)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8


def test_a_completion_streams_and_tells_its_log_probabilities(box: RunningBox) -> None:
    options: Any = {
        "model": MODEL, "prompt": "Once upon a time", "max_tokens": 5, "logprobs": 2,
        "extra_body": IDS,
    }  # fmt: skip
    whole = box.client().completions.create(**options).choices[0]
    assert whole.logprobs is not None
    assert "".join(whole.logprobs.tokens or []) == whole.text
    starts = whole.logprobs.text_offset or []
    for start, token in zip(starts, whole.logprobs.tokens or [], strict=True):
        assert whole.text[start:].startswith(token)
    assert all(len(top) == 2 for top in whole.logprobs.top_logprobs or [])

    chunks = list(box.client().completions.create(**options, stream=True))
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    told = [t for c in chunks for x in c.choices if x.logprobs for t in x.logprobs.tokens or []]
    assert "".join(told) == text
    assert chunks[-1].choices[0].finish_reason in ("length", "stop")


def test_embeddings_are_the_same_unit_vectors_in_both_encodings(box: RunningBox) -> None:
    client, texts = box.client(), ["The cat sleeps.", "A cat is sleeping.", "Tax law of 1842"]
    plain = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    default = client.embeddings.create(model=MODEL, input=texts)  # base64, decoded by the client
    packed = client.embeddings.create(model=MODEL, input=texts, encoding_format="base64")
    assert [item.index for item in plain.data] == [0, 1, 2]
    assert all(isinstance(item.embedding, str) for item in packed.data)
    for one, other in zip(plain.data, default.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert math.hypot(*one.embedding) == pytest.approx(1, abs=1e-4)
        assert len(one.embedding) == 384
    cat, kitten, law = (item.embedding for item in plain.data)
    assert similarity(cat, kitten) > similarity(cat, law) + 0.2
    assert plain.usage.prompt_tokens == plain.usage.total_tokens > 0


def test_embedding_usage_is_the_sum_of_its_texts(box: RunningBox) -> None:
    client, texts = box.client(), ["one", "two words", "and three more words"]
    single = [
        client.embeddings.create(model=MODEL, input=text).usage.prompt_tokens for text in texts
    ]
    together = client.embeddings.create(model=MODEL, input=texts)
    assert together.usage.prompt_tokens == sum(single)


@pytest.mark.parametrize("wrong", ["", [], ["a", ""], [[]], [-1], [10**6], ["word " * 2000]])
def test_what_cannot_be_embedded_is_the_clients_fault(box: RunningBox, wrong: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        box.client().embeddings.create(model=MODEL, input=wrong)
    assert (caught.value.param or "").startswith("input")


def test_models_are_listed_and_found_by_name(box: RunningBox) -> None:
    client = box.client()
    served, encoder = client.models.list().data
    assert client.models.retrieve("default").id == client.models.retrieve(served.id).id == served.id
    assert client.models.retrieve(encoder.id).id == encoder.id
    assert extra(served, "meta")["n_ctx"] == 2048
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-unknown")
    assert caught.value.code == "model_not_found"


# -- errors and headers ----------------------------------------------------------------------------


def test_an_unknown_model_is_not_found(box: RunningBox) -> None:
    client = box.client()
    for call in (
        lambda: client.chat.completions.create(model="gpt-unknown", messages=HELLO),
        lambda: client.completions.create(model="gpt-unknown", prompt="x"),
        lambda: client.embeddings.create(model="gpt-unknown", input="x"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        assert caught.value.code == "model_not_found"
        assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 100}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"logit_bias": {"49152": 1}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"extra_body": {"nonsense": 1}}, "nonsense"),
        ({"extra_body": {"tempratur": 1}}, "tempratur"),
    ],
)
def test_a_bad_request_names_the_field(box: RunningBox, wrong: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        box.client().chat.completions.create(model=MODEL, messages=HELLO, **wrong)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_a_client_behind_a_proxy_needs_a_key_with_the_right_scope(box: RunningBox) -> None:
    behind = {"X-Forwarded-For": "192.0.2.7"}
    with pytest.raises(openai.AuthenticationError) as unknown:
        box.client(default_headers=behind).chat.completions.create(model=MODEL, messages=HELLO)
    assert unknown.value.code == "invalid_api_key"
    admin = box.client(default_headers=behind, api_key=box.admin_key)
    with pytest.raises(openai.PermissionDeniedError) as wrong_scope:
        admin.chat.completions.create(model=MODEL, messages=HELLO)
    assert wrong_scope.value.code == "insufficient_scope"


def test_headers_tell_the_request_and_its_time(box: RunningBox) -> None:
    create = box.client().chat.completions.with_raw_response.create
    raw = create(model=MODEL, messages=HELLO, max_tokens=1)
    answer = raw.parse()
    assert raw.headers["x-request-id"].startswith("req_")
    assert answer._request_id == raw.headers["x-request-id"]
    assert int(raw.headers["openai-processing-ms"]) >= 0
    assert int(raw.headers["x-queue-position"]) == 0
    named = create(
        model=MODEL, messages=HELLO, max_tokens=1,
        extra_headers={"X-Request-Id": "mine-1", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"},
    )  # fmt: skip
    assert named.headers["x-request-id"] == "mine-1"
    assert named.headers["traceparent"].startswith(f"00-{'a' * 32}-")
    assert f"-{'b' * 16}-" not in named.headers["traceparent"]


def test_a_streams_headers_keep_proxies_from_holding_it_back(box: RunningBox) -> None:
    create = box.client().chat.completions.with_streaming_response.create
    with create(model=MODEL, messages=HELLO, max_tokens=1, stream=True) as raw:
        assert raw.headers["content-type"].startswith("text/event-stream")
        assert raw.headers["x-accel-buffering"] == "no"
        assert raw.headers["cache-control"] == "no-store"
        assert raw.headers["x-request-id"].startswith("req_")
        lines = [line for line in raw.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"


# -- asynchronous ----------------------------------------------------------------------------------


async def test_many_asynchronous_chats_each_get_their_own_answer(box: RunningBox) -> None:
    async with box.async_client() as client:

        async def whole(text: str) -> str:
            answer = await client.chat.completions.create(
                model=MODEL, messages=HELLO, extra_body={**IDS, **saying(text)}
            )
            check_usage(answer)
            return answer.choices[0].message.content or ""

        async def streamed(text: str) -> str:
            chunks = await client.chat.completions.create(
                model=MODEL, messages=HELLO, stream=True, extra_body=saying(text)
            )
            return joined([chunk async for chunk in chunks])

        texts = [f"Answer number {i} of six." for i in range(6)]
        calls = [(whole, streamed)[i % 2](text) for i, text in enumerate(texts)]
        assert await asyncio.gather(*calls) == texts


async def test_the_asynchronous_client_reaches_every_route(box: RunningBox) -> None:
    async with box.async_client() as client:
        text = await client.completions.create(
            model=MODEL, prompt="One, two,", max_tokens=3, extra_body=IDS
        )
        check_usage(text)
        chunks = await client.completions.create(
            model=MODEL, prompt="One, two,", max_tokens=3, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )  # fmt: skip
        *_, last = [chunk async for chunk in chunks]
        assert last.usage is not None
        assert last.usage.completion_tokens == 3
        found = await client.embeddings.create(model=MODEL, input=["x"])
        assert len(found.data[0].embedding) == 384
        names = [model.id async for model in client.models.list()]
        assert len(names) == 2
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-unknown")
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model=MODEL, messages=[])


async def test_closing_an_asynchronous_stream_frees_its_slot(box: RunningBox) -> None:
    async with box.async_client() as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=1500, stream=True,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        await anext(aiter(stream))
        box.wait_until(lambda: box.busy_slots() == 1, what="the slot is taken")
        await stream.close()
        box.wait_until(lambda: box.busy_slots() == 0, what="the slot is free")
