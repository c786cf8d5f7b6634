"""What the daemon tells of lengths, pools and rules, on its way through the engine's loop."""

import pytest

from appliance.engine.commands import Cancel, Expect, Ping, Reprioritise, Steer
from appliance.engine.reports import Batch, Pong, Stats
from tests.unit.step_parts import Loop
from tests.unit.test_keeping import CHEAP

SHORT = Expect("", (1, 2), (0.5, 0.0))
WHOLE = Steer(policy="expected-cost", forecast=True)


def certain(name: str, length: int) -> Expect:
    return Expect(name, (length - 1, length), (1.0, 0.0))


def queue_of(loop: Loop) -> tuple[str, ...]:
    loop.engine.handle(Ping(0.0))
    pong = loop.reports[-1]
    assert isinstance(pong, Pong)
    return pong.waiting


def stats_of(loop: Loop) -> Stats:
    loop.engine.handle(Ping(0.0))
    pong = loop.reports[-1]
    assert isinstance(pong, Pong)
    return pong.stats


def test_queue_follows_what_is_expected() -> None:
    loop = Loop(max_sequences=1)
    loop.engine.handle(WHOLE)
    loop.submit("running", max_tokens=50)
    loop.step()
    for name, length in (("long", 90), ("short", 5)):
        loop.submit(name, prompt=(len(name),) * 5, max_tokens=100)
        loop.engine.handle(certain(name, length))
    assert queue_of(loop) == ("short", "long")
    loop.engine.handle(certain("long", 2))
    assert queue_of(loop) == ("long", "short")


def test_every_choice_of_a_request_is_told() -> None:
    loop = Loop(max_sequences=1)
    loop.engine.handle(WHOLE)
    loop.submit("r", n=3, max_tokens=50)
    loop.engine.handle(certain("r", 7))
    loop.step()
    remaining = loop.scheduler.expectations.remaining
    choices = [*loop.scheduler.running, *loop.scheduler.waiting]
    assert [remaining(sequence) + sequence.generated for sequence in choices] == [7, 7, 7]


@pytest.mark.parametrize(
    "command", [certain("gone", 5), Reprioritise("gone", 0, "b")], ids=["expect", "reprioritise"]
)
def test_what_is_told_of_a_request_that_is_gone_does_nothing(command: Expect) -> None:
    loop = Loop()
    loop.submit("gone")
    loop.engine.handle(Cancel("gone"))
    loop.engine.handle(command)
    loop.run()
    assert loop.stays_quiet()


def test_request_moves_to_another_pool_and_priority() -> None:
    loop = Loop(max_sequences=1)
    loop.submit("running", max_tokens=50)
    for name in ("a", "b", "c"):
        loop.submit(name, prompt=(ord(name),) * 5)
    loop.step()
    loop.engine.handle(Reprioritise("c", -1, "a"))
    loop.engine.handle(Reprioritise("a", 0, "b"))
    assert queue_of(loop) == ("c", "b", "a")
    loop.engine.handle(Reprioritise("running", 0, "b"))
    assert loop.engine.slots()[0].pool == "b"
    assert stats_of(loop).b_used > 0
    loop.run()
    assert {loop.finished(name).reason for name in ("running", "a", "b", "c")} == {"length"}


def test_stats_tell_of_both_pools() -> None:
    loop = Loop(n_cells=256)
    loop.engine.handle(Steer(expected=SHORT, b_cells=10))
    loop.submit("chat", max_tokens=50)
    loop.submit("batch", prompt=(6,) * 30, max_tokens=50, pool="b")
    loop.step(4)
    stats = stats_of(loop)
    running = {s.request.id: s for s in loop.scheduler.running}
    assert (stats.a_used, stats.b_used) == tuple(
        running[name].computed for name in ("chat", "batch")
    )
    assert stats.a_peak > stats.a_used
    assert stats.b_peak > stats.b_used
    assert stats.borrowed == stats.b_used - 10
    assert stats.a_used + stats.b_used == stats.kv_used


def test_longest_wait_is_that_of_one_that_waits() -> None:
    loop = Loop(max_sequences=1)
    loop.submit("running", max_tokens=30)
    loop.submit("waiting", max_tokens=5)
    loop.step(10)
    assert stats_of(loop).wait_max_s == pytest.approx(0.1)
    loop.run()
    assert stats_of(loop).wait_max_s == 0.0


def test_evicted_batch_request_loses_no_token_that_was_told() -> None:
    loop = Loop(max_sequences=2)
    loop.scheduler.cache.keeping.costs = CHEAP
    for name in ("x", "y"):
        loop.submit(name, prompt=(ord(name),) * 40, max_tokens=60, pool="b", stream=True)
    loop.step(10)
    told = {name: loop.tokens(name) for name in ("x", "y")}
    loop.submit("chat", max_tokens=5)
    loop.run()
    stats = stats_of(loop)
    assert stats.b_evictions == stats.saved == stats.restored == 1
    assert stats.preemptions == 1
    for name, tokens in told.items():
        assert tokens
        assert loop.tokens(name)[: len(tokens)] == tokens
        assert len(loop.tokens(name)) == 60
        assert loop.finished(name).counts.preemptions == (name == "y")


def test_overflow_is_told() -> None:
    loop = Loop(n_cells=120, cached_sequences=0)
    loop.engine.handle(Steer(expected=SHORT))
    for number in range(4):
        loop.submit(f"{number}", prompt=(number + 5,) * 10, max_tokens=60)
    loop.run()
    assert stats_of(loop).overflows > 0
    last = [report for report in loop.reports if isinstance(report, Batch)][-1]
    assert last.stats.overflows == stats_of(loop).overflows


def test_junk_changes_nothing_but_what_is_known() -> None:
    nan = float("nan")
    loop = Loop()
    loop.engine.handle(Steer(tau=nan, ageing=nan, max_wait_s=nan, b_cells=-1, forecast=True))
    loop.submit("r", max_tokens=10)
    loop.engine.handle(Expect("r", (1, 2), (nan, nan)))
    loop.run()
    assert loop.finished("r").counts.completion_tokens == 10
