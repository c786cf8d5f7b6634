"""Those who listen to the feed: each has the newest frame of each kind, and holds up no other."""

import asyncio
from pathlib import Path

import pytest

from appliance import frames
from appliance.api.box import Box
from appliance.api.feed import KEPT_LISTENERS, KINDS, MOST_LISTENERS, Feed, Listener
from appliance.api.watch import Watch
from appliance.errors import Unavailable
from appliance.frames import Live, Rows, State
from tests.unit.api_box import make_box
from tests.unit.feed_parts import NOW, set_engine


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = make_box(tmp_path)
    set_engine(made, last_progress=NOW - 0.04)
    return made


# -- the feed ------------------------------------------------------------------------------------


def kinds_in(data: bytes) -> list[str]:
    return [line[7:] for line in data.decode().split("\n") if line.startswith("event: ")]


def frames_in(data: bytes) -> list[frames.Frame]:
    lines = data.decode().split("\n")
    return [frames.decode.decode(line[6:]) for line in lines if line.startswith("data: ")]


async def test_a_listener_has_a_frame_of_each_kind_at_once(box: Box) -> None:
    feed = Feed(Watch(box))
    data = await feed.listen(KINDS).next()
    assert data is not None
    assert kinds_in(data) == ["live", "rows", "state"]
    assert [type(frame) for frame in frames_in(data)] == [Live, Rows, State]
    await feed.close()


async def test_frames_are_numbered_through_so_that_a_gap_shows(box: Box) -> None:
    feed = Feed(Watch(box))
    ear = feed.listen(["live"])
    seen: list[int] = []
    async with asyncio.timeout(30):
        while len(seen) < 13:
            (live,) = frames_in(await ear.next() or b"")
            assert isinstance(live, Live)
            seen.append(live.seq)
            feed.made(["live"])  # somebody asks for one frame in between
    assert seen == list(range(seen[0], seen[0] + 13))
    await feed.close()


async def test_a_slow_listener_misses_frames_and_holds_one_of_each_kind() -> None:
    listener = Listener(["live", "rows"])
    for number in range(100):
        listener.offer("live", b"live%d" % number)
        listener.offer("rows", b"rows%d" % number)
        listener.offer("state", b"never")
    assert await listener.next() == b"live99rows99"


async def test_all_listeners_are_given_the_same_bytes(box: Box) -> None:
    feed = Feed(Watch(box))
    ears = [feed.listen(["live"]) for _ in range(5)]
    for ear in ears:
        await ear.next()
    async with asyncio.timeout(30):
        told = [await ear.next() for ear in ears]
    assert len({id(data) for data in told}) <= 5
    assert len(set(told)) == 1
    await feed.close()


async def test_live_comes_more_often_than_rows_and_rows_than_state(box: Box) -> None:
    feed = Feed(Watch(box))
    ear = feed.listen(KINDS)
    seen: list[str] = []
    async with asyncio.timeout(60):
        while seen.count("state") < 3:
            seen += kinds_in(await ear.next() or b"")
    assert seen.count("live") > seen.count("rows") > seen.count("state")
    await feed.close()


async def test_nothing_is_made_for_kinds_that_nobody_wants(box: Box) -> None:
    watch = Watch(box)
    feed = Feed(watch)
    ear = feed.listen(["live"])
    watch.rows = watch.state = None  # type: ignore[assignment,method-assign]
    async with asyncio.timeout(30):
        for _ in range(12):
            assert kinds_in(await ear.next() or b"") == ["live"]
    await feed.close()


async def test_listeners_are_bounded(box: Box) -> None:
    feed = Feed(Watch(box))
    ears = [feed.listen(["live"], operator=True) for _ in range(MOST_LISTENERS)]
    for operator in (True, False):
        with pytest.raises(Unavailable, match="16 consoles are open") as refused:
            feed.listen(["live"], operator=operator)
        assert refused.value.code == "too_many_consoles"
    feed.leave(ears[0])
    feed.listen(["live"])
    await feed.close()


async def test_who_is_no_operator_cannot_take_every_place(box: Box) -> None:
    feed = Feed(Watch(box))
    theirs = MOST_LISTENERS - KEPT_LISTENERS
    ears = [feed.listen(["live"]) for _ in range(theirs)]
    with pytest.raises(Unavailable, match=f"other 4 places are kept .* one of the {theirs}"):
        feed.listen(["live"])
    operators = [feed.listen(["live"], operator=True) for _ in range(KEPT_LISTENERS)]
    with pytest.raises(Unavailable, match="16 consoles are open"):
        feed.listen(["live"], operator=True)
    feed.leave(operators[0])
    with pytest.raises(Unavailable, match="admin"):
        feed.listen(["live"])
    feed.leave(ears[0])
    feed.listen(["live"])
    await feed.close()


async def test_operators_leave_their_usual_share_to_others(box: Box) -> None:
    feed = Feed(Watch(box))
    for _ in range(KEPT_LISTENERS):
        feed.listen(["live"], operator=True)
    for _ in range(MOST_LISTENERS - KEPT_LISTENERS):
        feed.listen(["live"])
    await feed.close()


async def test_the_end_reaches_every_listener(box: Box) -> None:
    feed = Feed(Watch(box))
    ears = [feed.listen(KINDS) for _ in range(3)]
    feed.end()
    assert [await ear.next() for ear in ears] == [None] * 3
    assert await feed.listen(KINDS).next() is None
    await feed.close()


async def test_a_frame_that_cannot_be_made_does_not_end_the_feed(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(box)
    feed = Feed(watch)
    ear = feed.listen(["live"])
    await ear.next()
    whole = watch.live
    watch.live = lambda now, wall: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    async with asyncio.timeout(30):
        while "could not be made" not in caplog.text:
            await asyncio.sleep(0)
        watch.live = whole  # type: ignore[method-assign]
        assert await ear.next()
    await feed.close()


async def test_the_past_and_alarms_go_on_without_listeners(box: Box) -> None:
    feed = Feed(Watch(box))
    feed.start()
    async with asyncio.timeout(30):
        while len(feed.watch.past().values["running"]) < 2:
            await asyncio.sleep(0.05)
    await feed.close()
