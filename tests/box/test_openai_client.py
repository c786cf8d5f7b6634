"""The official client's chats against a real box: what apps written for a cloud model rely on."""

import math
from typing import Any

import openai
import pytest

from tests.box.answered import IDS, MODEL, check_usage, extra, ids_for, ids_of, joined, text_of
from tests.box.running import RunningBox
from tests.box.wire import HELLO, saying


def test_a_chat_is_answered_and_counted_to_the_token(box: RunningBox) -> None:
    answer = box.client().chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=8, extra_body={**IDS, "ignore_eos": True}
    )
    check_usage(answer)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "SmolLM2-135M-Instruct.Q4_1"
    assert answer.system_fingerprint is not None
    assert answer.system_fingerprint.startswith("b")
    (choice,) = answer.choices
    assert choice.finish_reason == "length"
    assert choice.message.role == "assistant"
    assert choice.message.content == text_of(box, extra(choice, "token_ids"))


def test_the_packaged_model_knows_the_capital_of_france(box: RunningBox) -> None:
    answer = box.client().chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        max_tokens=16,
        temperature=0,
    )
    assert "Paris" in (answer.choices[0].message.content or "")


def test_a_streamed_chat_says_the_same_as_a_whole_one(box: RunningBox) -> None:
    client, text = box.client(), "The sea is blue, and só is the ský 🙂."
    whole = client.chat.completions.create(
        model=MODEL, messages=HELLO, extra_body={**IDS, **saying(text)}
    )
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=HELLO,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={**IDS, **saying(text)},
        )
    )
    assert whole.choices[0].message.content == joined(chunks) == text
    assert whole.choices[0].finish_reason == "stop"
    check_usage(whole)
    *before, last = chunks
    assert last.choices == []
    assert last.usage is not None
    assert all(chunk.usage is None for chunk in before)
    assert last.usage.completion_tokens == len(ids_of(chunks))
    assert last.usage.prompt_tokens == len(extra(chunks[0], "prompt_token_ids"))
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert reasons[-1] == "stop"
    assert not any(reasons[:-1])


def test_a_stream_without_include_usage_has_no_usage(box: RunningBox) -> None:
    chunks = list(
        box.client().chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2, stream=True)
    )
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_several_choices_are_all_told_and_all_counted(box: RunningBox) -> None:
    answer = box.client().chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=4, n=3, extra_body={**IDS, "ignore_eos": True}
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [len(extra(choice, "token_ids")) for choice in answer.choices] == [4, 4, 4]
    check_usage(answer)


def test_several_choices_stream_side_by_side(box: RunningBox) -> None:
    chunks = list(
        box.client().chat.completions.create(
            model=MODEL,
            messages=HELLO,
            max_tokens=4,
            n=3,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={**IDS, "ignore_eos": True},
        )
    )
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 12
    for index in range(3):
        own = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert own[0].delta.role == "assistant"
        assert [choice.finish_reason for choice in own if choice.finish_reason] == ["length"]
        assert own[-1].finish_reason == "length"
        ids = ids_of(chunks, index)
        assert len(ids) == 4
        assert joined(chunks, index) == text_of(box, ids)


def test_both_limits_mean_the_same_and_may_not_disagree(box: RunningBox) -> None:
    client = box.client()
    for limit in ({"max_tokens": 3}, {"max_completion_tokens": 3}):
        answer = client.chat.completions.create(
            model=MODEL, messages=HELLO, extra_body={"ignore_eos": True}, **limit
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 3
    with pytest.raises(openai.BadRequestError, match="disagree"):
        client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=3, max_completion_tokens=4
        )


@pytest.mark.parametrize("stop", [" beta", ["nothing of the kind", "eta"], ["ta gam", "gamma"]])
def test_a_stop_string_ends_the_answer_and_never_shows(box: RunningBox, stop: Any) -> None:
    text = "alpha beta gamma delta"
    first = min(text.find(s) for s in ([stop] if isinstance(stop, str) else stop) if s in text)
    options: Any = {"model": MODEL, "messages": HELLO, "stop": stop}
    client, body = box.client(), {**IDS, **saying(text)}
    whole = client.chat.completions.create(**options, extra_body=body)
    chunks = list(client.chat.completions.create(**options, stream=True, extra_body=body))
    assert whole.choices[0].message.content == joined(chunks) == text[:first]
    assert whole.choices[0].finish_reason == "stop"
    check_usage(whole)
    hidden, start = 0, 0
    for token in extra(whole.choices[0], "token_ids"):
        hidden += start >= first
        start += len(text_of(box, [token]))
    assert whole.usage is not None
    assert extra(whole.usage.completion_tokens_details, "hidden_tokens") == hidden


def test_a_seed_repeats_an_answer_and_another_seed_does_not(box: RunningBox) -> None:
    """Bit for bit only when exclusive: else rounding may move a draw over its border, as
    docs/determinism.md says."""

    def sampled(seed: int) -> list[int]:
        answer = box.client().chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=12, temperature=1.5, seed=seed,
            extra_body={**IDS, "exclusive": True, "ignore_eos": True},
        )  # fmt: skip
        ids: list[int] = extra(answer.choices[0], "token_ids")
        return ids

    assert sampled(7) == sampled(7)
    assert len({tuple(sampled(seed)) for seed in (7, 8, 9)}) > 1


def test_a_bias_forces_a_token_and_forbids_one(box: RunningBox) -> None:
    client = box.client()
    (forced,) = ids_for(box, " sea")
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=3, temperature=0, logit_bias={str(forced): 100},
        extra_body=IDS,
    )  # fmt: skip
    assert extra(answer.choices[0], "token_ids") == [forced] * 3
    assert answer.choices[0].message.content == " sea sea sea"
    free = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=1, temperature=0, extra_body=IDS
    )
    (likeliest,) = extra(free.choices[0], "token_ids")
    other = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=1, temperature=0,
        logit_bias={str(likeliest): -100}, extra_body=IDS,
    )  # fmt: skip
    assert extra(other.choices[0], "token_ids") != [likeliest]


def test_log_probabilities_tell_every_shown_token_and_its_rivals(box: RunningBox) -> None:
    options: Any = {
        "model": MODEL, "messages": HELLO, "max_tokens": 6, "temperature": 0, "logprobs": True,
        "top_logprobs": 3, "extra_body": IDS,
    }  # fmt: skip
    whole = box.client().chat.completions.create(**options).choices[0]
    assert whole.logprobs is not None
    entries = whole.logprobs.content or []
    assert "".join(entry.token for entry in entries) == whole.message.content
    for entry in entries:
        assert bytes(entry.bytes or []).decode() == entry.token
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        likely = [top.logprob for top in entry.top_logprobs]
        assert likely == sorted(likely, reverse=True)
        assert entry.top_logprobs[0].token == entry.token  # at temperature 0
        assert sum(math.exp(logprob) for logprob in likely) <= 1 + 1e-6

    chunks = list(box.client().chat.completions.create(**options, stream=True))
    streamed = [
        entry
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs is not None
        for entry in choice.logprobs.content or []
    ]
    assert "".join(entry.token for entry in streamed) == joined(chunks)
    assert len(streamed) == len(ids_of(chunks))


def test_log_probabilities_without_rivals_have_empty_lists(box: RunningBox) -> None:
    (choice,) = box.client().chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=2, temperature=0, logprobs=True,
        extra_body={"ignore_eos": True},
    ).choices  # fmt: skip
    assert choice.logprobs is not None
    assert [entry.top_logprobs for entry in choice.logprobs.content or []] == [[], []]


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"min_p": 1.0}, {"top_k": 0, "top_p": 0.0}])
def test_a_narrow_choice_is_the_likeliest_token_at_any_temperature(
    box: RunningBox, narrow: dict[str, Any]
) -> None:
    (choice,) = box.client().chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=5, temperature=2, logprobs=True, top_logprobs=1,
        extra_body=narrow,
    ).choices  # fmt: skip
    assert choice.logprobs is not None
    assert choice.logprobs.content
    for entry in choice.logprobs.content:
        assert entry.token == entry.top_logprobs[0].token


def test_an_answer_that_may_not_end_goes_on_to_its_limit(box: RunningBox) -> None:
    client = box.client()
    (end,) = ids_for(box, "<|im_end|>")
    ended = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=5, logit_bias={str(end): 100}, extra_body=IDS
    )
    assert ended.choices[0].finish_reason == "stop"
    assert ended.choices[0].message.content == ""
    assert extra(ended.choices[0], "token_ids") == [end]
    assert ended.usage is not None
    assert extra(ended.usage.completion_tokens_details, "hidden_tokens") == 1
    on = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=5, logit_bias={str(end): 100},
        extra_body={**IDS, "ignore_eos": True},
    )  # fmt: skip
    assert on.choices[0].finish_reason == "length"
    assert end not in extra(on.choices[0], "token_ids")
    assert len(extra(on.choices[0], "token_ids")) == 5


def test_an_unfinished_answer_is_continued_where_it_stopped(box: RunningBox) -> None:
    answer = box.client().chat.completions.create(
        model=MODEL,
        messages=[*HELLO, {"role": "assistant", "content": "Hello, dear"}],
        max_tokens=4,
        extra_body={**IDS, "continue_final_message": True, "ignore_eos": True},
    )
    assert text_of(box, extra(answer, "prompt_token_ids")).endswith("Hello, dear")
    assert answer.choices[0].message.content == text_of(box, extra(answer.choices[0], "token_ids"))
    with pytest.raises(openai.BadRequestError, match="continue_final_message"):
        box.client().chat.completions.create(
            model=MODEL, messages=HELLO, extra_body={"continue_final_message": True}
        )


def test_metadata_tier_and_user_are_taken_and_told(box: RunningBox) -> None:
    answer = box.client().chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=1, user="clerk-7", service_tier="auto",
        metadata={"ticket": "42"},
    )  # fmt: skip
    assert answer.service_tier == "default"
    assert answer.metadata == {"ticket": "42"}
    flexible = box.client().chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=1, service_tier="flex"
    )
    assert flexible.service_tier == "flex"
    box.wait_until(lambda: "user=clerk-7" in box.log, what="the log line of the request")
    with pytest.raises(openai.BadRequestError) as caught:
        box.client().chat.completions.create(
            model=MODEL, messages=HELLO, metadata={str(i): "x" for i in range(17)}
        )
    assert caught.value.param == "metadata"
