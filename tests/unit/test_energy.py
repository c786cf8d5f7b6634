"""Measured energy: no microjoule is made, lost, or given twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.observe.energy import FRESH_S, QUIET_S, EnergyMeter
from appliance.observe.readings import Draw, EnergyCounter, Found

S = 10**9
J = 10**6


class Machine:
    """A meter, and the world it looks at."""

    def __init__(self, running: bool = False) -> None:
        self.meter = EnergyMeter()
        self.now = 100.0
        self.uj = 7 * J
        self.device_ns = 0
        self.look(running)

    def look(self, running: bool = False) -> None:
        counter = EnergyCounter(name="p", source="RAPL", uj=self.uj, at=self.now)
        self.tick(Found(counters=(counter,)), running)

    def tick(self, found: Found, running: bool = False) -> None:
        self.meter.tick(found, device_ns=self.device_ns, running=running, now=self.now)

    def run(self, s: float, watts: float, busy_s: float = 0.0, running: bool = False) -> None:
        """A while, then a look."""
        self.now += s
        self.uj += round(watts * s * J)
        self.device_ns += round(busy_s * S)
        self.look(running)

    def claim(self, busy_s: float, ran_s: float) -> int | None:
        return self.meter.claim(
            device_ns=round(busy_s * S), started=self.now - ran_s, now=self.now
        )[0]

    @property
    def parts(self) -> tuple[int, int, int]:
        meter = self.meter
        return meter.attributed_uj, meter.idle_uj, meter.pending_uj


def test_an_idle_box_attributes_nothing() -> None:
    box = Machine()
    for _ in range(5):
        box.run(1, 20)
    assert box.parts == (0, 100 * J, 0)
    assert box.meter.watts == pytest.approx(20)
    assert box.claim(1, 1) is None


def test_a_request_that_ran_alone_gets_what_was_drawn_meanwhile() -> None:
    box = Machine()
    box.run(1, 20)
    box.run(1, 20, running=True)
    for _ in range(4):
        box.run(1, 100, busy_s=1, running=True)
    assert box.meter.claim(device_ns=4 * S, started=box.now - 4, now=box.now) == (400 * J, "RAPL")
    assert box.parts == (400 * J, 40 * J, 0)


def test_two_requests_share_by_device_time() -> None:
    box = Machine(running=True)
    for _ in range(4):
        box.run(1, 100, busy_s=1, running=True)
    assert [box.claim(3, 4), box.claim(1, 4)] == [300 * J, 100 * J]


def test_the_part_of_an_interval_without_device_time_is_idle_at_the_idle_draw() -> None:
    box = Machine()
    box.run(1, 20)
    box.run(1, 60, busy_s=0.5)  # 20 W for half a second, 100 W for the other half
    assert box.parts == (0, 30 * J, 50 * J)


def test_before_an_idle_draw_is_known_an_interval_is_parted_by_time() -> None:
    box = Machine()
    box.run(1, 60, busy_s=0.25)
    assert box.parts == (0, 45 * J, 15 * J)


def test_a_long_step_is_not_taken_for_idleness() -> None:
    box = Machine()
    box.run(1, 20)
    box.run(1, 20, running=True)
    for _ in range(3):
        box.run(1, 100, running=True)  # the step has told no device time yet
    box.run(1, 100, busy_s=4, running=True)
    assert box.parts == (0, 40 * J, 400 * J)
    assert box.claim(4, 4) == 400 * J


def test_a_request_is_not_given_more_than_was_measured_so_far() -> None:
    box = Machine(running=True)
    box.run(1, 100, busy_s=1, running=True)
    assert box.claim(1.5, 1.5) == 100 * J
    assert box.claim(1.5, 1.5) is None


def test_a_request_of_which_less_than_half_is_measured_gets_no_figure() -> None:
    box = Machine(running=True)
    box.run(1, 100, busy_s=1, running=True)
    assert box.claim(2.5, 2.5) is None
    assert box.meter.pending_uj == 100 * J


def test_a_short_request_between_two_looks_has_the_power_last_seen() -> None:
    box = Machine()
    box.run(1, 0)
    box.run(1, 50, busy_s=0.5)
    assert box.claim(0.1, 0) == 10 * J


@pytest.mark.parametrize("device_ns", [0, -1])
def test_what_never_computed_has_no_energy(device_ns: int) -> None:
    box = Machine()
    box.run(1, 100, busy_s=1, running=True)
    assert box.meter.claim(device_ns=device_ns, started=0, now=box.now) == (None, "")


def test_an_old_measurement_tells_nothing_of_a_request_that_ends_now() -> None:
    box = Machine()
    box.run(1, 100, busy_s=1)
    box.now += FRESH_S + 1
    assert box.claim(1, 1) is None


def test_what_nobody_takes_is_idle_after_a_minute() -> None:
    box = Machine()
    box.run(1, 100, busy_s=1)
    for _ in range(round(QUIET_S)):
        assert box.meter.pending_uj == 100 * J
        box.run(1, 20)
    assert box.parts == (0, 100 * J + round(QUIET_S) * 20 * J, 0)


def test_power_times_time_is_told_as_such() -> None:
    box = Machine()
    meter = EnergyMeter()
    for now, watts in ((0.0, 10.0), (1.0, 30.0)):
        found = Found(draws=(Draw(name="gpu0", source="NVML", watts=watts, at=now),))
        meter.tick(found, device_ns=round(now * S), running=True, now=now)
    assert (meter.source, meter.measured_uj) == ("NVML power", 20 * J)
    assert meter.claim(device_ns=S, started=0.0, now=1.0) == (20 * J, "NVML power")
    assert box.meter.source == ""


def test_the_engines_counters_before_the_first_look_are_nobodys() -> None:
    box = Machine()
    box.device_ns = 10**15
    box.meter = EnergyMeter()
    box.look()
    box.run(1, 100)
    assert box.parts == (0, 100 * J, 0)


def test_a_source_that_comes_begins_a_new_reckoning() -> None:
    box = Machine()
    box.run(1, 100, busy_s=1, running=True)
    for _ in range(2):
        box.now += 1
        box.uj += 50 * J
        counters = (
            EnergyCounter(name="p", source="RAPL", uj=box.uj, at=box.now),
            EnergyCounter(name="gpu0", source="NVML", uj=box.uj, at=box.now),
        )
        box.tick(Found(counters=counters), running=True)
    assert box.meter.source == "NVML+RAPL"
    assert box.meter.joules["RAPL", "idle"] == 150 * J
    assert box.meter.pending_uj == 100 * J


def test_a_gap_in_the_measurement_is_not_filled_in() -> None:
    box = Machine()
    box.run(1, 100, busy_s=1, running=True)
    box.now, box.device_ns = box.now + 5, box.device_ns + 5 * S
    box.tick(Found(), running=True)
    assert box.meter.watts is None
    box.uj += 500 * J
    box.run(1, 100, busy_s=1, running=True)
    assert (box.meter.measured_uj, box.meter.watts) == (100 * J, None)
    box.run(1, 100, busy_s=1, running=True)
    assert box.claim(2, 2) == 200 * J


STEP = st.tuples(
    st.floats(0.0, 70.0),  # seconds
    st.integers(-5 * J, 900 * J),  # microjoules; a fall is a reset
    st.just(0) | st.integers(0, 90 * S),  # device time
    st.booleans(),  # running
    st.sampled_from(["RAPL", "RAPL", "RAPL", "both", "none", "power"]),
    st.lists(st.tuples(st.integers(-S, 100 * S), st.floats(0, 90)), max_size=4),  # claims
)


@given(st.lists(STEP, max_size=40))
def test_attributed_and_idle_are_what_was_measured_whatever_happens(
    steps: list[tuple[float, int, int, bool, str, list[tuple[int, float]]]],
) -> None:
    meter, now, uj, device_ns, given_uj = EnergyMeter(), 100.0, 0, 0, 0
    kinds: dict[tuple[str, str], int] = {}
    for seconds, gain, ns, running, what, claims in steps:
        now, uj, device_ns = now + seconds, max(0, uj + gain), device_ns + ns
        meter.tick(_found(what, uj, now), device_ns=device_ns, running=running, now=now)
        for wanted, ago in claims:
            share, source = meter.claim(device_ns=wanted, started=now - ago, now=now)
            assert (share is None) == (source == "")
            assert share is None or share > 0
            given_uj += share or 0
        assert meter.attributed_uj == given_uj
        assert min(meter.attributed_uj, meter.idle_uj, meter.pending_uj) >= 0
        assert meter.attributed_uj + meter.idle_uj + meter.pending_uj == meter.measured_uj
        assert all(meter.joules[kind] >= before for kind, before in kinds.items())
        kinds = dict(meter.joules)
    meter.settle()
    assert given_uj + meter.idle_uj == meter.measured_uj


def _found(what: str, uj: int, now: float) -> Found:
    rapl = EnergyCounter(name="p", source="RAPL", uj=uj, wraps_uj=2**40, at=now)
    nvml = EnergyCounter(name="g", source="NVML", uj=uj // 3, at=now)
    draw = Draw(name="m", source="hwmon", watts=uj / 1e8, at=now)
    return {
        "RAPL": Found(counters=(rapl,)),
        "both": Found(counters=(rapl, nvml)),
        "none": Found(),
        "power": Found(draws=(draw,)),
    }[what]


@given(
    more=st.integers(1, 500), idle=st.integers(0, 100),
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=12),
)  # fmt: skip
def test_requests_one_after_another_get_all_that_their_computing_drew(
    more: int, idle: int, lengths: list[int]
) -> None:
    """At a steady power, looked at as each one ends, to the rounding of one microjoule each."""
    box, watts = Machine(), idle + more
    box.run(2, idle)
    box.run(1, idle, running=True)
    shares = []
    for length in lengths:
        for _ in range(length):
            box.run(1, watts, busy_s=1, running=True)
        shares.append(box.claim(length, length) or 0)
    assert sum(shares) == pytest.approx(sum(lengths) * watts * J, abs=len(lengths) + 1)
