"""The search, on a machine whose speed is scripted."""

import dataclasses
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.tune.dimensions import Machine, dimensions, sizes, thread_counts
from appliance.tune.search import BETTER, CannotRun, Dimension, Found, Search, faster
from appliance.tune.settings import Answers, Mix, Sameness, Settings, Timing, compare

BASE = Settings(
    threads=4, threads_batch=4, batch=512, ubatch=512, flash_attention="auto", kv_type="f16",
    gpu_layers=-1,
)  # fmt: skip
MIX = Mix(100, 100)
MACHINE = Machine(
    cores=4, cpus=8, layers=30, offloads=False, context=8192, other_answers=False
)  # fmt: skip

Speed = Callable[[Settings], float]


class Scripted:
    """A bench. `speed` gives milliseconds per token, `drift` what the machine makes of the n-th
    measurement; `refuses` cannot run."""

    def __init__(
        self,
        speed: Speed,
        *,
        drift: Callable[[int], float] = lambda n: 1.0,
        changes: Callable[[Settings], Sameness] = lambda s: "same bits",
        refuses: Callable[[Settings], bool] = lambda s: False,
    ) -> None:
        self._speed, self._drift, self._changes, self._refuses = speed, drift, changes, refuses
        self.measured: list[Settings] = []
        self.open: set[Settings] = set()

    def measure(self, settings: Settings) -> Timing:
        if self._refuses(settings):
            raise CannotRun("too little memory")
        self.measured.append(settings)
        self.open.add(settings)
        ms = self._speed(settings) * self._drift(len(self.measured))
        return Timing(ms, (ms, ms))

    def sameness(self, settings: Settings, base: Settings) -> Sameness:
        return self._changes(settings)

    def keep(self, *wanted: Settings) -> None:
        self.open &= set(wanted)


def found_by(bench: Scripted, tries: list[Dimension], *, other_answers: bool = False) -> Found:
    search = Search(bench, BASE, tries, MIX, pairs=5, other_answers=other_answers)
    shares = list(search.run())
    assert shares == sorted(shares)
    assert shares[-1] < 1
    assert search.found is not None
    assert len(bench.open) <= 2
    return search.found


def every(machine: Machine = MACHINE) -> list[Dimension]:
    return dimensions(machine, frozenset())


def test_each_setting_finds_its_best_and_the_gains_multiply() -> None:
    def speed(settings: Settings) -> float:
        return (
            {8: 1.3, 4: 1.0, 3: 0.8, 2: 0.9, 1: 1.5}[settings.threads]
            * (0.5 if settings.flash_attention == "off" else 1.0)
            * {128: 0.9, 256: 0.7}.get(settings.ubatch, 1.0)
        )

    found = found_by(Scripted(speed), every())
    assert found.best == msgspec.structs.replace(
        BASE, threads=3, threads_batch=3, flash_attention="off", ubatch=256
    )
    assert found.ratio == pytest.approx(0.8 * 0.5 * 0.7)
    assert [trial.change for trial in found.trials if trial.verdict == "taken"] == [
        {"threads": 3, "threads_batch": 3}, {"flash_attention": "off"}, {"ubatch": 128},
        {"ubatch": 256},
    ]  # fmt: skip


def test_nothing_is_taken_where_nothing_is_faster() -> None:
    found = found_by(Scripted(lambda settings: 1.0), every())
    assert (found.best, found.ratio) == (BASE, 1.0)
    assert {trial.verdict for trial in found.trials} == {"no faster"}


def test_a_machine_that_gets_slower_and_slower_is_no_reason_to_change() -> None:
    found = found_by(Scripted(lambda s: 1.0, drift=lambda n: 1.02**n), every())
    assert found.best == BASE


def test_a_gain_shows_through_a_drift_larger_than_itself() -> None:
    bench = Scripted(
        lambda settings: 0.8 if settings.flash_attention == "off" else 1.0,
        drift=lambda n: 1.01**n,
    )
    assert found_by(bench, every()).best.flash_attention == "off"


def test_a_hopeless_setting_is_measured_once() -> None:
    bench = Scripted(lambda settings: 3.0 if settings.threads == 1 else 1.0)
    found_by(bench, every())
    alone = [settings for settings in bench.measured if settings.threads == 1]
    assert len(alone) == 2  # one to warm it


def test_what_changes_answers_is_left_unless_it_may() -> None:
    def bench() -> Scripted:
        return Scripted(
            lambda settings: 0.5 if settings.flash_attention == "off" else 1.0,
            changes=lambda s: "same tokens" if s.flash_attention == "off" else "same bits",
        )

    left = found_by(bench(), every())
    assert left.best == BASE
    (trial,) = [one for one in left.trials if one.change == {"flash_attention": "off"}]
    assert (trial.verdict, trial.ratio) == ("other answers", 0.5)
    taken = found_by(bench(), every(), other_answers=True)
    assert taken.best.flash_attention == "off"


def test_settings_that_do_not_run_are_passed_over_with_their_reason() -> None:
    found = found_by(Scripted(lambda s: 1.0, refuses=lambda s: s.batch == 2048), every())
    (trial,) = [one for one in found.trials if one.change.get("batch") == 2048]
    assert (trial.verdict, trial.why, trial.ratio) == ("failed", "too little memory", None)


def test_an_engine_that_does_not_run_at_all_ends_the_search() -> None:
    with pytest.raises(CannotRun, match="too little memory"):
        found_by(Scripted(lambda s: 1.0, refuses=lambda s: True), [])


def test_gains_that_do_not_last_are_not_kept() -> None:
    """Fast while it is tried, slow when all is confirmed."""
    bench = Scripted(lambda s: 1.0)
    alone = [dimension for dimension in every() if dimension[0] == "flash attention"]
    once = 2 + 2 * 5

    def speed(settings: Settings) -> float:
        early = len(bench.measured) <= once
        return 0.5 if settings.flash_attention == "off" and early else 1.0

    bench._speed = speed
    found = found_by(bench, alone)
    assert (found.best, found.ratio) == (BASE, 1.0)
    assert [trial.verdict for trial in found.trials] == ["taken", "no faster"]


@given(st.lists(st.floats(0.5, 1.5), min_size=5, max_size=5))
def test_faster_means_the_median_and_all_but_one(ratios: list[float]) -> None:
    judged = faster(ratios)
    assert judged == (sorted(ratios)[2] < BETTER and sum(r >= 1 for r in ratios) <= 1)


def test_what_the_operator_named_is_not_tried() -> None:
    named = frozenset({"threads", "threads_batch", "flash_attention"})
    assert [name for name, _ in dimensions(MACHINE, named)] == ["micro-batch", "batch"]


def test_a_gpu_is_tried_with_fewer_layers_and_other_formats_only_on_request() -> None:
    machine = Machine(cores=2, cpus=2, layers=8, offloads=True, context=512, other_answers=True)
    tries = dict(dimensions(machine, frozenset()))
    assert [one.gpu_layers for one in tries["gpu layers"](BASE)] == [6, 4, 2, 0]
    assert [one.kv_type for one in tries["KV type"](BASE)] == ["bf16", "q8_0", "f32"]
    assert "KV type" not in dict(dimensions(MACHINE, frozenset()))


def test_a_micro_batch_is_never_larger_than_the_batch() -> None:
    for _, candidates in every():
        assert all(one.ubatch <= one.batch for one in candidates(BASE))


@pytest.mark.parametrize(
    ("cores", "cpus", "counts"),
    [(1, 1, [1]), (2, 2, [2, 1]), (4, 8, [8, 4, 3, 2, 1]), (6, 6, [6, 5, 3, 1])],
)
def test_thread_counts(cores: int, cpus: int, counts: list[int]) -> None:
    assert thread_counts(dataclasses.replace(MACHINE, cores=cores, cpus=cpus)) == counts


def test_a_small_context_bounds_the_batch() -> None:
    assert sizes(300) == [128, 256]


def test_answers_are_compared_to_the_bit_and_to_the_token() -> None:
    ours = Answers(((1, 2),), "aa")
    assert compare(ours, Answers(((1, 2),), "aa")) == "same bits"
    assert compare(ours, Answers(((1, 2),), "ab")) == "same tokens"
    assert compare(ours, Answers(((1, 3),), "ab")) == "other tokens"


def test_the_cost_weighs_prompt_and_answer_by_the_mix() -> None:
    assert Timing(0.5, (10.0, 2.0)).cost(Mix(100, 10)) == 50 + 60
