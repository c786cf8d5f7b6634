"""What daemon and engine say: whatever is sent arrives, in whatever pieces; garbage is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.commands import (
    Cancel,
    Command,
    Expect,
    Load,
    Pause,
    Ping,
    Reprioritise,
    Sampling,
    Shutdown,
    Steer,
    Submit,
)
from appliance.engine.framing import (
    MAX_FRAME,
    Frames,
    OutOfStep,
    decode_command,
    decode_report,
    frame,
)
from appliance.engine.reports import (
    Batch,
    Counts,
    Delta,
    Fatal,
    Finished,
    Pong,
    Prefill,
    Ready,
    Report,
    Signals,
    SlotState,
    Started,
    Stats,
    TokenLogprob,
)

small = st.integers(0, 2**31)
texts = st.text(max_size=8)
seconds = st.floats(0, 1e9)
tokens = st.lists(small, max_size=5).map(tuple)
pools = st.sampled_from(("a", "b"))
samplings = st.builds(
    Sampling,
    seed=st.none() | st.integers(0, 2**63),
    logit_bias=st.lists(st.tuples(small, st.floats(allow_nan=False)), max_size=3).map(tuple),
)
logprobs = st.builds(TokenLogprob, small, seconds, st.lists(st.tuples(small, seconds)).map(tuple))
counts = st.builds(Counts, *[small] * 6, *[seconds] * 3, small)
slots = st.builds(SlotState, small, texts, small, st.just("decode"), *[small] * 5, pool=pools)
events = st.one_of(
    st.builds(Started, texts, seconds, small),
    st.builds(Prefill, texts, small, small, small, seconds),
    st.builds(Signals, texts, small, small, *[st.floats(allow_nan=False)] * 3),
    st.builds(Delta, texts, small, texts, tokens, st.lists(logprobs, max_size=2).map(tuple)),
    st.builds(
        Finished, texts, small, st.just("stop"), st.just("word"), texts, counts, message=texts
    ),
)
submits = st.builds(
    Submit,
    id=texts,
    prompt=tokens,
    max_tokens=small,
    sampling=samplings,
    stop=st.lists(texts, max_size=2).map(tuple),
    grammar=st.none() | texts,
    deadline=st.none() | seconds,
    lora=st.lists(st.tuples(small, seconds), max_size=2).map(tuple),
)
loads = st.builds(
    Load,
    texts,
    *[small] * 6,
    st.integers(-1, 99),
    st.just("auto"),
    st.just("f16"),
    *[small] * 3,
    lora=st.lists(st.tuples(texts, seconds), max_size=2).map(tuple),
)
expects = st.builds(Expect, texts, tokens, st.lists(seconds, max_size=5).map(tuple))
commands = st.one_of(
    submits,
    loads,
    st.builds(Cancel, texts, st.sampled_from(["cancelled", "deadline"])),
    st.builds(Ping, seconds),
    st.builds(Pause, st.booleans()),
    expects,
    st.builds(Steer, b_cells=small, tau=seconds, expected=expects),
    st.builds(Reprioritise, texts, small, pools),
    st.just(Shutdown()),
)
stats = st.builds(Stats, steps=small, compute_seconds=seconds)
reports = st.one_of(
    st.builds(Batch, st.lists(events, max_size=4).map(tuple), stats),
    st.builds(
        Pong, seconds, stats, st.lists(slots, max_size=2).map(tuple), st.lists(texts).map(tuple)
    ),
    st.builds(Ready, texts, *[small] * 10, st.booleans(), texts, seconds),
    st.builds(Fatal, texts),
)


def bodies(data: bytes) -> list[bytes]:
    frames = Frames()
    frames.feed(data)
    return list(frames)


@given(commands)
def test_command_arrives_as_it_was_sent(command: Command) -> None:
    (body,) = bodies(frame(command))
    assert decode_command(body) == command


@given(reports)
def test_report_arrives_as_it_was_sent(report: Report) -> None:
    (body,) = bodies(frame(report))
    assert decode_report(body) == report


@given(st.lists(reports, max_size=4), st.integers(1, 7))
def test_messages_arrive_in_order_in_whatever_pieces(sent: list[Report], size: int) -> None:
    data = b"".join(map(frame, sent))
    frames, received = Frames(), []
    for at in range(0, len(data), size):
        frames.feed(data[at : at + size])
        received += [decode_report(body) for body in frames]
    assert received == sent


def test_infinite_bias_survives_the_journey() -> None:
    sampling = Sampling(logit_bias=((1, float("-inf")),))
    (body,) = bodies(frame(Submit(id="a", prompt=(1,), max_tokens=1, sampling=sampling)))
    received = decode_command(body)
    assert isinstance(received, Submit)
    assert received.sampling == sampling


@given(st.binary(max_size=40))
def test_garbage_raises_only_out_of_step(data: bytes) -> None:
    for decode in (decode_command, decode_report):
        try:
            decode(data)
        except OutOfStep:
            continue


def test_impossible_length_is_out_of_step() -> None:
    frames = Frames()
    frames.feed((MAX_FRAME + 1).to_bytes(4, "little"))
    with pytest.raises(OutOfStep, match="at most"):
        list(frames)


def test_report_is_no_command_and_the_reverse() -> None:
    with pytest.raises(OutOfStep):
        decode_command(bodies(frame(Fatal("x")))[0])
    with pytest.raises(OutOfStep):
        decode_report(bodies(frame(Shutdown()))[0])
