"""A real box as its consoles see it: frames arrive, follow what happens, and hold nothing up."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from appliance import frames
from appliance.frames import Frame, Live, Rows, State
from tests.box.asking import ask
from tests.box.conftest import Start
from tests.box.running import RunningBox

END_S = 60.0
LONG = 1900
"""Tokens that no request reaches before its test ends it."""


class Console:
    """Reads `/events` on a thread of its own, and keeps every frame."""

    def __init__(self, box: RunningBox, query: str = "") -> None:
        self.frames: list[Frame] = []
        self.ended = False
        """The stream ended as a stream should."""
        address = urlsplit(box.url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        self._connection.request("GET", f"/events{query}", headers={"X-Api-Key": box.admin_key})
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @classmethod
    @contextmanager
    def of(cls, box: RunningBox, query: str = "") -> Iterator[Self]:
        console = cls(box, query)
        try:
            yield console
        finally:
            console.close()

    def _read(self) -> None:
        try:
            for line in self._response:
                if line.startswith(b"data: "):
                    self.frames.append(frames.decode.decode(line[6:]))
            self.ended = True
        except (OSError, ValueError, http.client.HTTPException):
            return

    def close(self) -> None:
        if not self.ended and self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._connection.close()

    def wait(
        self, wanted: Callable[[Any], bool], kind: type[Frame] = Live, since: int | None = None
    ) -> Any:
        """The first frame of `kind` of which `wanted` holds, from now on or from frame `since`."""
        seen = len(self.frames) if since is None else since
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            for frame in self.frames[seen:]:
                seen += 1
                if isinstance(frame, kind) and wanted(frame):
                    return frame
            time.sleep(0.01)
        raise AssertionError(f"no such frame in {END_S} s, the last was {self.frames[-1:]}")

    def of_kind(self, kind: type[Frame]) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kind)]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """A box that only these tests ask."""
    with RunningBox.start(tmp_path_factory.mktemp("own")) as running:
        yield running


def agree(state: State) -> bool:
    """The ledger, the engine and the clients have counted the same tokens."""
    chain = state.chain
    return chain.tok_ledger == chain.tok_engine == chain.tok_sent


def test_frames_arrive_at_their_pace_and_follow_a_request(box: RunningBox) -> None:
    with Console.of(box) as console:
        quiet = console.wait(lambda live: live.running == 0)
        assert quiet.state in ("SERVING", "DEGRADED")  # others' answers may not be as forecast
        assert (quiet.ready, quiet.engine_state) == (True, "ready")
        asked = ask(box, max_tokens=LONG, headers={"X-Request-Id": "watched"})
        busy = console.wait(lambda live: live.running == 1 and (live.out_tok_s or 0) > 0)
        assert busy.kv_a_pct > 0
        rows = console.wait(lambda rows: rows.requests and rows.requests[0].gen_tok > 0, Rows)
        row = rows.requests[0]
        assert (row.state, row.limit_tok, row.flags) == ("decode", LONG, ("stream",))
        asked.hang_up()
        console.wait(lambda live: live.running == 0)
        ask(box, max_tokens=20).wait()
        after = console.wait(lambda live: live.running == 0 and live.e2e_p99_ms is not None)
        assert after.itl_p50_ms > 0
        assert after.e2e_p99_ms >= after.ttft_p50_ms * 0.9
        for _ in range(2):
            console.wait(lambda state: True, State)
    numbers = [live.seq for live in console.of_kind(Live)]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > len(console.of_kind(Rows)) > len(console.of_kind(State))


def test_who_reads_misses_hardly_any_frame(box: RunningBox) -> None:
    """Tried again where it may be the machine that was away."""

    def share() -> float:
        with Console.of(box, "?frames=live") as console:
            for _ in range(12):
                console.wait(lambda live: True)
        numbers = [live.seq for live in console.of_kind(Live)]
        return len(numbers) / (numbers[-1] - numbers[0] + 1)

    assert any(share() > 0.8 for _ in range(5))


def test_an_operators_act_shows_at_once(own: RunningBox) -> None:
    box = own
    with Console.of(box, "?frames=live") as console:
        console.wait(lambda live: live.state == "SERVING")
        for path, state in (("hold", "HOLDING"), ("release", "SERVING"), ("drain", "DRAINING")):
            box.admin("POST", f"/admin/{path}")
            console.wait(lambda live, state=state: live.state == state)
        box.admin("POST", "/admin/resume")
        console.wait(lambda live: live.ready)
        assert not console.of_kind(Rows)


def test_five_consoles_and_one_that_does_not_read_hold_nothing_up(box: RunningBox) -> None:
    address = urlsplit(box.url)
    deaf = socket.create_connection((address.hostname, address.port))
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(f"GET /events HTTP/1.1\r\nHost: x\r\nX-Api-Key: {box.admin_key}\r\n\r\n".encode())
    consoles = [Console(box) for _ in range(5)]
    try:
        asked = ask(box, max_tokens=60).wait()
        assert asked.finished_properly
        for console in consoles:
            console.wait(lambda live: live.running == 0)
        box.wait_until(lambda: len(told_all(consoles)) > 3, what="they are all told the same")
    finally:
        for console in consoles:
            console.close()
        deaf.close()


def told_all(consoles: list[Console]) -> set[int]:
    """Numbers of the frames that each of them got."""
    return set.intersection(*({live.seq for live in one.of_kind(Live)} for one in consoles))


def test_every_token_is_counted_alike_by_ledger_engine_and_clients(start_box: Start) -> None:
    box = start_box()
    with Console.of(box) as console:
        done = [ask(box, max_tokens=20, n=2), ask(box, max_tokens=15, stream=False)]
        gone = ask(box, max_tokens=LONG).wait_for_tokens(5)
        gone.hang_up()
        for asked in done:
            asked.wait()
        state = console.wait(lambda state: agree(state) and state.chain.tok_sent >= 60, State)
        counted = state.chain.tok_engine
        lost = ask(box, max_tokens=LONG).wait_for_tokens(20)
        before = len(console.frames)
        box.engine().kill()
        console.wait(lambda live: live.engine_state != "ready", since=before)
        lost.wait()
        box.wait_ready()
        ask(box, max_tokens=10).wait()
        state = console.wait(
            lambda state: agree(state) and state.chain.tok_engine >= counted + 30, State
        )
        assert state.process.restarts == 1
        console.wait(lambda live: live.state == "SERVING" and live.restarts_5min == 1)
        counted = [live.failed_min for live in console.of_kind(Live) if live.failed_min is not None]
        assert max(counted) == 1, "the one that the engine took along"


def test_todays_use_is_told_and_the_ledger_verifies_beside_it(own: RunningBox) -> None:
    box = own
    ask(box, max_tokens=10).wait()
    assert box.admin("POST", "/admin/audit/ledger/verify").status_code == 202
    path = "/admin/audit/ledger/verify"
    box.wait_until(lambda: box.admin("GET", path).json()["state"] != "running", what="verified")
    assert box.admin("GET", path).json()["state"] == "intact"
    with Console.of(box) as console:
        console.wait(lambda live: live.tok_today and live.tok_today > 10)
    logged = "/admin/log?filter=/v1/completions"
    box.wait_until(lambda: box.admin("GET", logged).json()["lines"], what="the log's line")
    row = box.admin("GET", "/admin/history").json()["requests"][0]
    told = box.admin("GET", f"/admin/requests/{row['id']}/tokens").json()["requests"][0]
    assert len(told["choices"][0]) == 10
    assert "".join(text for _, text in told["prompt"]).endswith("Once upon a time")


def test_a_revoked_key_is_not_told_anything_more(own: RunningBox) -> None:
    box = own
    body = {"name": "watcher", "scopes": ["metrics"]}
    secret = box.admin("POST", "/admin/keys", json=body).json()["secret"]
    with box.http.stream("GET", "/events", headers={"X-Api-Key": secret}) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("event: ")
        box.admin("DELETE", "/admin/keys/watcher")
        told = 0
        for line in lines:
            told += line.startswith("data: ")
            assert told < 600, "it goes on"


def test_a_box_that_stops_says_goodbye_to_its_consoles(own: RunningBox) -> None:
    box = own
    with Console.of(box) as console:
        console.wait(lambda live: True)
        assert box.stop() == 0
        box.wait_until(lambda: console.ended, what="the stream ended as it should")
    assert "graceful shutdown exceeded" not in box.log, "it does not wait for consoles to leave"
