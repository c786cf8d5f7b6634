"""Generating answers: paced, held, retried, kept."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.calibrate import generate
from appliance.calibrate.answers import Kept, NoRoom, Wanted, gathered, missing
from appliance.calibrate.client import BoxAway, Client, Refused
from appliance.calibrate.generate import CannotGenerate, Generation, Orders, Outcome, Progress
from appliance.calibrate.pace import Load, Pace, Room
from appliance.calibrate.seeds import seed_of
from appliance.calibrate.status import Wish
from appliance.forecast.dataset import Answered, BadDataset, Signal, read
from tests.unit.calibrate_box import SAMPLING, Fake, answered, fake_box, prompt

# -- pace ----------------------------------------------------------------------------------------


@given(
    st.integers(1, 64), st.floats(0.01, 1), st.integers(0, 99), st.integers(0, 99),
    st.integers(0, 64),
)  # fmt: skip
def test_room_is_never_more_than_the_share_and_none_while_others_wait(
    places: int, share: float, running: int, waiting: int, ours: int
) -> None:
    free = Room(places, share).free(Load(running, waiting), ours)
    assert 0 <= free <= max(1, int(places * share))
    if waiting and running + waiting > ours:
        assert free == 0


def test_room_shrinks_by_what_others_run() -> None:
    room = Room(places=8, share=0.5)
    assert room.free(Load(0, 0), 0) == 4
    assert room.free(Load(4, 0), 4) == 4
    assert room.free(Load(5, 0), 2) == 1


def test_pace_leaves_out_the_time_it_was_held() -> None:
    pace = Pace(now=100.0)
    pace.see(110.0, 10)
    pace.see(1110.0, 10, idle=True)
    pace.see(1120.0, 20)
    assert pace.rate == pytest.approx(1.0)
    assert pace.eta_s(30) == pytest.approx(30.0)


def test_pace_knows_nothing_before_anything_was_done() -> None:
    pace = Pace(now=0.0)
    pace.see(5.0, 0)
    assert pace.rate is None
    assert pace.eta_s(3) is None
    assert pace.eta_s(0) == 0.0


def test_seeds_are_those_that_they_were() -> None:
    assert seed_of("ifeval-2247", 0) == 1506598543  # of answers made before this code
    assert seed_of("a", 0) != seed_of("a", 1)


# -- answers -------------------------------------------------------------------------------------


def test_every_first_sample_is_wanted_before_any_second() -> None:
    wanted = missing([prompt("a"), prompt("b")], [answered("a", 0)], SAMPLING)
    assert [(one.prompt.id, one.sample) for one in wanted] == [("b", 0), ("a", 1), ("b", 1)]


def test_answers_drawn_otherwise_are_none_to_this() -> None:
    wanted = missing([prompt("a")], [answered("a", 0, temperature=0.0)], SAMPLING)
    assert [one.sample for one in wanted] == [0, 1]


def test_answers_of_several_files_count_once_and_only_to_these_prompts(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    write(first, answered("a", tokens=3), answered("x"))
    write(second, answered("a", tokens=9), answered("a", 1))
    found = gathered([first, second], [prompt("a")])
    assert [(one.sample, one.completion_tokens) for one in found] == [(0, 3), (1, 7)]


def test_an_answer_without_a_token_is_an_error_that_names_it(tmp_path: Path) -> None:
    write(tmp_path / "1", answered("a", tokens=0))
    with pytest.raises(BadDataset, match="'a' has no token"):
        gathered([tmp_path / "1"], [prompt("a")])


def write(path: Path, *answers: Answered) -> None:
    with Kept(path) as kept:
        for one in answers:
            kept.add(one)


def test_half_a_line_of_a_crash_is_cut_off_before_more_is_written(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    write(path, answered("a"))
    with path.open("ab") as file:
        file.write(b'{"id": "b", "sam')
    with Kept(path) as kept:
        assert kept.torn
        kept.add(answered("c"))
    assert [one.id for one in read(path, Answered)] == ["a", "c"]


def test_a_full_disk_leaves_whole_lines_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with Kept(path) as kept:
            kept.add(answered("a"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, hard))
            with pytest.raises(NoRoom, match="Make room on the disk"):
                kept.add(answered("b"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert [one.id for one in read(path, Answered)] == ["a"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NoRoom, match="cannot be written"), Kept(tmp_path / "file" / "a"):
        pass


# -- the client ----------------------------------------------------------------------------------


def test_an_answer_is_asked_for_as_the_lowest_of_clients() -> None:
    with fake_box() as box:
        found = Client(box.url).answer(Wanted(prompt("a"), 1), SAMPLING)
    (asked,) = box.asked
    assert asked["service_tier"] == "flex"
    assert asked["metadata"] == {"scenario": "calibration"}
    assert asked["return_token_ids"] is True
    assert asked["seed"] == seed_of("a", 1)
    assert found.token_ids == (1, 2, 3)
    assert found.signals == (Signal(8, -1.5, 2.0, -0.5),)
    assert not found.censored


def test_a_daemon_that_knows_no_signals_is_asked_without_and_not_asked_again() -> None:
    with fake_box() as box:
        box.knows_signals = False
        client = Client(box.url)
        client.answer(Wanted(prompt("a"), 0), SAMPLING)
        client.answer(Wanted(prompt("b"), 0), SAMPLING)
    assert ["return_signals" in body for body in box.asked] == [True, False, False]


def test_what_passes_and_what_stays_are_told_apart() -> None:
    with fake_box() as box:
        client = Client(box.url)
        box.down_for = 1
        with pytest.raises(BoxAway, match="the engine restarts"):
            client.answer(Wanted(prompt("a"), 0), SAMPLING)
        box.refuses = (400, "too long")
        with pytest.raises(Refused, match="too long"):
            client.answer(Wanted(prompt("a"), 0), SAMPLING)
    with pytest.raises(BoxAway, match="does not answer"):
        client.facts()


@pytest.mark.parametrize("url", ["ftp://box", "http://", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is no URL"):
        Client(url)


def test_something_else_on_the_port_is_no_box(tmp_path: Path) -> None:
    with fake_box() as box:
        client = Client(box.url)
        with pytest.raises(Refused, match="is not a steelyard"):
            client._ask("GET", "/metrics")


# -- the loop ------------------------------------------------------------------------------------


def run(
    box: Fake, path: Path, names: str = "abcde", wished: Callable[[], Wish] = lambda: "go",
    until: float | None = None, clock: Callable[[], float] | None = None,
) -> tuple[Outcome, list[Progress]]:  # fmt: skip
    told: list[Progress] = []
    wanted = [Wanted(prompt(name), 0) for name in names]
    orders = Orders(Room(4, 0.5), wished, told.append, until, clock or time.monotonic, 0.01)
    with Kept(path / "answers.jsonl") as kept:
        return Generation(Client(box.url), kept, wanted, SAMPLING, orders).run(), told


def kept_in(path: Path) -> set[str]:
    return {one.id for one in read(path / "answers.jsonl", Answered)}


def test_all_that_is_missing_is_generated_and_kept(tmp_path: Path) -> None:
    with fake_box() as box:
        outcome, told = run(box, tmp_path)
    assert kept_in(tmp_path) == set("abcde") == {one.id for one in outcome.answers}
    assert not outcome.stopped
    assert told[-1].done == told[-1].total == 5


def test_a_daemon_that_restarts_in_the_middle_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "BACKOFF_S", (0.01,))
    with fake_box() as box:
        box.down_for = 3
        _, told = run(box, tmp_path)
    assert kept_in(tmp_path) == set("abcde")
    assert "box" in {progress.waits for progress in told}


def test_a_daemon_that_stays_away_ends_it_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "BACKOFF_S", (0.0,))
    monkeypatch.setattr(generate, "AWAY_S", 0.05)
    with fake_box() as box:
        gone = Fake(url=box.url)
    with pytest.raises(CannotGenerate, match="Start it"):
        run(gone, tmp_path)


def test_nothing_is_asked_while_others_wait(tmp_path: Path) -> None:
    with fake_box() as box:
        box.running, box.waiting = 4, 2
        seen: list[str] = []

        def wished() -> Wish:
            seen.append("")
            if len(seen) == 5:
                assert not box.asked
                box.running = box.waiting = 0
            return "go"

        _, told = run(box, tmp_path, wished=wished)
    assert "others" in {progress.waits for progress in told}
    assert kept_in(tmp_path) == set("abcde")


def test_held_it_asks_nothing_and_goes_on_afterwards(tmp_path: Path) -> None:
    with fake_box() as box:
        seen: list[str] = []

        def wished() -> Wish:
            seen.append("")
            return "hold" if len(seen) < 5 else "go"

        _, told = run(box, tmp_path, wished=wished)
    assert [progress.waits for progress in told[:4]] == ["operator"] * 4
    assert kept_in(tmp_path) == set("abcde")


def test_stopped_it_ends_at_once_though_answers_are_under_way(tmp_path: Path) -> None:
    with fake_box() as box:
        box.gate.clear()
        outcome, _ = run(box, tmp_path, wished=lambda: "stop" if box.started.is_set() else "go")
    assert outcome.stopped
    assert kept_in(tmp_path) == set()


def test_it_stops_when_its_time_is_over(tmp_path: Path) -> None:
    with fake_box() as box:
        outcome, _ = run(box, tmp_path, until=10.0, clock=lambda: 11.0)
    assert outcome.stopped
    assert not box.asked


def test_a_prompt_that_is_refused_is_left_out_and_the_reason_kept(tmp_path: Path) -> None:
    with fake_box() as box:
        box.refuses = (400, "the prompt is too long")
        outcome, _ = run(box, tmp_path, names="ab")
    assert outcome.refused == {"a": "the prompt is too long", "b": "the prompt is too long"}


def test_where_every_prompt_is_refused_it_gives_up_and_says_why(tmp_path: Path) -> None:
    with fake_box() as box:
        box.refuses = (400, "the chat template fails")
        with pytest.raises(CannotGenerate, match="because the chat template fails"):
            run(box, tmp_path, names="abcdefgh")


def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    with fake_box() as box:
        run(box, tmp_path)
    assert threading.active_count() <= before  # others may end meanwhile
    assert os.path.getsize(tmp_path / "answers.jsonl") > 0
