"""The gate before the queue: what joins it, what is sent away, and when it should come back."""

from dataclasses import dataclass

import pytest

from appliance.admission import Admission
from appliance.engine.reports import Stats
from appliance.errors import ApiError, Overloaded, Unavailable
from appliance.snapshot import EngineSnapshot, QueueSnapshot


@dataclass
class Standing:
    """A queue that stands still."""

    queue: QueueSnapshot
    snapshot: EngineSnapshot


def make_admission(
    running: int = 0, waiting: int = 0, waiting_tokens: int = 0, speed: float = 0.0
) -> Admission:
    """`speed`: prompt tokens per second that the engine has shown."""
    stats = Stats(prompt_tokens=int(speed * 10), prompt_seconds=10.0) if speed else Stats()
    standing = Standing(
        QueueSnapshot(running=running, waiting=waiting, waiting_tokens=waiting_tokens),
        EngineSnapshot(stats=stats),
    )
    return Admission(standing, max_requests=4, max_tokens=1000, max_running=2)


def refusal(admission: Admission, tokens: int = 10, deadline_s: float | None = None) -> ApiError:
    with pytest.raises(ApiError) as caught:
        admission.admit(tokens, 100, deadline_s)
    return caught.value


def test_empty_box_admits() -> None:
    make_admission().admit(10, 100, None)


def test_queue_with_room_admits() -> None:
    make_admission(running=2, waiting=3, waiting_tokens=900).admit(100, 100, None)


def test_full_queue_is_429_and_names_its_bound() -> None:
    error = refusal(make_admission(running=2, waiting=4))
    assert isinstance(error, Overloaded)
    assert (error.status, error.code) == (429, "queue_full")
    assert "limits.queue_requests = 4" in error.message


def test_queue_full_of_tokens_is_429_and_names_its_bound() -> None:
    error = refusal(make_admission(running=2, waiting=1, waiting_tokens=991))
    assert error.status == 429
    assert "limits.queue_tokens = 1000" in error.message


def test_prompt_larger_than_the_queue_runs_when_nothing_is_ahead() -> None:
    make_admission().admit(5000, 100, None)


def test_draining_box_is_503_whatever_its_queue() -> None:
    admission = make_admission()
    admission.drain(True)
    error = refusal(admission)
    assert isinstance(error, Unavailable)
    assert (error.status, error.code) == (503, "draining")
    assert "Retry-After" in error.headers
    admission.drain(False)
    admission.admit(10, 100, None)


@pytest.mark.parametrize(
    ("waiting_tokens", "speed", "seconds"),
    [(900, 100.0, 9), (900, 10.0, 60), (900, 9000.0, 1), (900, 0.0, 9), (900, 0.1, 60)],
)
def test_retry_after_is_how_long_the_queue_takes(
    waiting_tokens: int, speed: float, seconds: int
) -> None:
    error = refusal(make_admission(2, 4, waiting_tokens, speed))
    assert error.headers["Retry-After"] == str(seconds)


def test_deadline_that_the_queue_outlasts_is_refused_at_once() -> None:
    error = refusal(make_admission(2, 1, 900, speed=100.0), deadline_s=5.0)
    assert (error.status, error.code) == (429, "deadline_unreachable")
    assert "9 s" in error.message


def test_deadline_that_the_queue_keeps_is_admitted() -> None:
    make_admission(2, 1, 900, speed=100.0).admit(10, 100, 10.0)
    make_admission().admit(10, 100, 0.001)
