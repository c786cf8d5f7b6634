"""Fairness between keys: who was served more goes after others; being away earns nothing."""

from appliance.engine.fair import BAND, Fairness

BUSY, QUIET, NEW = (False, "busy"), (False, "quiet"), (False, "new")
BATCH = (True, "busy")


def both(**served: float) -> Fairness:
    fair = Fairness()
    fair.arrive(BUSY)
    fair.arrive(QUIET)
    for key in (BUSY, QUIET):
        fair.charge(key, served.get(key[1], 0.0))
    return fair


def test_key_that_was_served_more_than_a_band_goes_after_the_other() -> None:
    assert both(busy=BAND + 1).ahead([BUSY, QUIET]) == {BUSY}
    assert both(busy=BAND - 1).ahead([BUSY, QUIET]) == frozenset()


def test_key_that_is_alone_in_the_queue_is_never_ahead() -> None:
    assert both(busy=10 * BAND).ahead([BUSY, BUSY]) == frozenset()


def test_newcomer_begins_where_the_least_served_stands() -> None:
    fair = both(busy=50 * BAND, quiet=40 * BAND)
    fair.arrive(NEW)
    assert fair.ahead([BUSY, QUIET, NEW]) == {BUSY}
    fair.charge(NEW, 2 * BAND)
    assert fair.ahead([BUSY, QUIET, NEW]) == {BUSY, NEW}


def test_key_that_left_and_comes_back_has_not_been_forgiven() -> None:
    fair = both(busy=10 * BAND)
    fair.leave(BUSY)
    fair.arrive(BUSY)
    assert fair.ahead([BUSY, QUIET]) == {BUSY}


def test_nothing_is_remembered_once_nobody_is_there() -> None:
    fair = both(busy=10 * BAND)
    fair.leave(BUSY)
    fair.leave(QUIET)
    fair.arrive(BUSY)
    fair.arrive(QUIET)
    assert fair.ahead([BUSY, QUIET]) == frozenset()


def test_batch_work_of_a_key_is_not_held_against_its_chats() -> None:
    fair = both()
    fair.arrive(BATCH)
    fair.charge(BATCH, 100 * BAND)
    assert fair.ahead([BUSY, QUIET, BATCH]) == frozenset()


def test_newcomer_is_not_measured_by_the_other_pool() -> None:
    fair = both(busy=50 * BAND, quiet=50 * BAND)
    fair.arrive(BATCH)
    fair.arrive(NEW)
    assert fair.ahead([BUSY, QUIET, NEW, BATCH]) == frozenset()
