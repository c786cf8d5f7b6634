"""What every engine is told beside requests, and the order of those that wait."""

from msgspec.structs import replace

from appliance.engine.commands import Expect, Pause, Reprioritise, Slow, Steer, Submit
from appliance.engine.reports import Pong, Started, Stats
from appliance.supervisor import Supervisor
from tests.unit.engine_parts import make_submit
from tests.unit.supervisor_parts import (
    FakeChild,
    Nursery,
    make_supervisor,
    next_child,
    nursery,
    running,
    until,
)

__all__ = ["nursery", "running"]
STEER = Steer(policy="expected-cost", forecast=True, tau=0.7, b_cells=512)
TABLE = Expect("r1", (8, 64), (0.9, 0.2))


def order_of(child: FakeChild, *kinds: type) -> list[type]:
    return [type(command) for command in child.heard if isinstance(command, kinds)]


async def test_engine_hears_how_it_is_steered_before_any_request(nursery: Nursery) -> None:
    made = make_supervisor()
    made.orders.steer(STEER)
    await made.start()
    made.submit(make_submit("r1"))
    assert order_of(nursery.child, Steer, Submit) == [Steer, Submit]
    assert STEER in nursery.child.heard
    await made.stop()


async def test_next_engine_is_steered_like_the_last_and_knows_what_to_expect(
    nursery: Nursery, running: Supervisor
) -> None:
    running.pause(True)
    running.slow(True)
    running.submit(make_submit("r1"))
    running.orders.expect(TABLE)
    running.orders.steer(STEER)
    nursery.child.die(1)
    child = await next_child(nursery, running)
    kinds = (Pause, Slow, Steer, Submit, Expect)
    assert order_of(child, *kinds) == list(kinds)
    assert TABLE in child.heard
    assert STEER in child.heard


async def test_nothing_is_said_to_an_engine_that_is_not_ready(nursery: Nursery) -> None:
    nursery.prepare = lambda child: setattr(child, "ready", None)
    made = make_supervisor(start_timeout_s=0.05)
    made.orders.steer(STEER)
    made.orders.steer(replace(STEER, b_cells=1))
    assert not nursery.children
    await made.stop()


async def test_what_to_expect_of_a_request_that_has_ended_is_not_told(
    nursery: Nursery, running: Supervisor
) -> None:
    running.orders.expect(TABLE)
    assert order_of(nursery.child, Expect) == []


async def test_moved_request_keeps_its_new_place_when_the_engine_restarts(
    nursery: Nursery, running: Supervisor
) -> None:
    ticket = running.submit(make_submit("r1"))
    assert running.orders.batch == 0
    running.orders.reprioritise(ticket, 1, "b")
    assert Reprioritise("r1", 1, "b") in nursery.child.heard
    assert running.orders.batch == 1
    nursery.child.die(1)
    child = await next_child(nursery, running)
    submits = [command for command in child.heard if isinstance(command, Submit)]
    assert [(one.priority, one.pool) for one in submits] == [(1, "b")]


async def test_open_batch_requests_and_starts_are_counted(
    nursery: Nursery, running: Supervisor
) -> None:
    one = running.submit(replace(make_submit("r1"), pool="b"))
    running.submit(make_submit("r2"))
    nursery.child.tell(Started("r1", 1.0, 0))
    await until(lambda: one.started_at is not None)
    assert (running.orders.batch, running.orders.starts) == (1, 1)
    nursery.child.die(1)
    await next_child(nursery, running)
    assert running.orders.batch == 0, "it had started, so it ended with the engine"


async def test_places_in_the_queue_are_those_that_the_engine_has_told(
    nursery: Nursery, running: Supervisor
) -> None:
    tickets = {name: running.submit(make_submit(name)) for name in ("r1", "r2", "r3")}
    assert [ticket.position for ticket in tickets.values()] == [0, 1, 2]
    nursery.child.answers = False
    nursery.child.say(Pong(1.0, Stats(), (), ("r3", "r1", "r2")))
    await until(lambda: running.snapshot.order)
    assert [ticket.position for ticket in tickets.values()] == [1, 2, 0]
    batch = running.submit(replace(make_submit("r4"), pool="b", priority=1))
    late = running.submit(make_submit("r5"))
    assert (late.position, batch.position) == (3, 4), "not told yet: pool A first"
    first = running.submit(make_submit("r6", priority=-1))
    assert first.position == 0
    assert [ticket.id for ticket in running.waiting()] == ["r6", "r3", "r1", "r2", "r5", "r4"]


async def test_order_of_an_engine_that_is_gone_is_forgotten(
    nursery: Nursery, running: Supervisor
) -> None:
    tickets = [running.submit(make_submit(name)) for name in ("r1", "r2")]
    nursery.child.answers = False
    nursery.child.say(Pong(1.0, Stats(), (), ("r2", "r1")))
    await until(lambda: running.snapshot.order)
    nursery.child.die(1)
    await next_child(nursery, running)
    assert [ticket.position for ticket in tickets] == [0, 1]


async def test_counters_of_the_pools_go_on_over_a_restart_of_the_engine(
    nursery: Nursery, running: Supervisor
) -> None:
    nursery.child.stats = Stats(overflows=3, b_evictions=2, saved=2, restored=1, b_used=9)
    await until(lambda: running.snapshot.stats.overflows == 3)
    nursery.child.die(1)
    child = await next_child(nursery, running)
    child.stats = Stats(overflows=1, b_evictions=1)
    await until(lambda: running.snapshot.stats.overflows == 4)
    stats = running.snapshot.stats
    assert (stats.b_evictions, stats.saved, stats.restored, stats.b_used) == (3, 2, 1, 0)
