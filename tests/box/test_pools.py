"""Two pools and several keys on a real box: a flood of one kind leaves the others their turn."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.accounts.keys import FILE_NAME, KeyStore
from tests.box.asking import Asked, ask
from tests.box.running import RunningBox

PLACES = 2
LONG = 3000
"""Tokens of a request that keeps its place until its client leaves."""
FLOOD = 60
SCOPES = {"boss": ["admin"], "busy": ["infer"], "quiet": ["infer"]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pools")


@pytest.fixture(scope="module")
def keys(home: Path) -> dict[str, str]:
    store = KeyStore(home / "state" / FILE_NAME)
    return {name: store.create(name, scopes) for name, scopes in SCOPES.items()}


@pytest.fixture(scope="module")
def shared(home: Path, keys: dict[str, str]) -> Iterator[RunningBox]:
    with RunningBox.start(
        home,
        engine={"max_sequences": PLACES, "draft_tokens": 0, "context": 8192},
        limits={"queue_requests": 2 * FLOOD},
    ) as running:
        yield running


class Boss:
    """Asks the box as its operator does, with each request's key."""

    def __init__(self, box: RunningBox, keys: dict[str, str]) -> None:
        self.box, self._keys = box, keys

    def ask(self, name: str, prompt: str = "Once upon a time", **fields: Any) -> Asked:
        return ask(self.box, prompt, headers=self._bearer(name), **fields)

    def rows(self, state: str) -> list[dict[str, Any]]:
        answer = self.box.http.get("/admin/requests", headers=self._bearer("boss"))
        return [row for row in answer.json()["requests"] if row["state"] == state]

    def tell(self, path: str) -> None:
        answer = self.box.http.post(path, headers=self._bearer("boss"))
        assert answer.status_code == 200, answer.text

    def wait_for(self, state: str, count: int) -> None:
        self.box.wait_until(lambda: len(self.rows(state)) == count, what=f"{count} {state}")

    def wait_idle(self) -> None:
        self.wait_for("running", 0)
        self.wait_for("waiting", 0)

    def _bearer(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._keys[name]}"}


@pytest.fixture
def boss(shared: RunningBox, keys: dict[str, str]) -> Boss:
    made = Boss(shared, keys)
    made.wait_idle()
    return made


def assert_whole(asked: Asked) -> None:
    asked.wait()
    assert (asked.status, asked.problem, asked.errors) == (200, "", [])
    assert len(asked.token_ids) == asked.body["max_tokens"]


def test_interactive_request_is_not_held_up_by_a_flood_of_batch_requests(boss: Boss) -> None:
    flex = {"max_tokens": LONG, "service_tier": "flex"}
    running = [boss.ask("busy", **flex).wait_for_tokens(5) for _ in range(PLACES)]
    told = [list(asked.token_ids) for asked in running]
    waiting = [boss.ask("busy", **flex) for _ in range(6)]
    boss.wait_for("waiting", len(waiting))
    for number in range(3):
        assert_whole(boss.ask("busy", f"Chat {number}.", max_tokens=8))
    assert not any(asked.over for asked in (*running, *waiting))
    for asked, tokens in zip(running, told, strict=True):
        asked.wait_for_tokens(len(tokens) + 2)
        assert asked.token_ids[: len(tokens)] == tokens
    for asked in (*running, *waiting):
        asked.hang_up()
    boss.wait_idle()


def test_flood_of_tiny_requests_does_not_keep_another_key_waiting(boss: Boss) -> None:
    boss.tell("/admin/hold")
    flood = [
        boss.ask("busy", f"{number}: the quick brown fox jumps over", max_tokens=1)
        for number in range(FLOOD)
    ]
    boss.wait_for("waiting", FLOOD)
    late = boss.ask("quiet", max_tokens=1)
    boss.wait_for("waiting", FLOOD + 1)
    boss.tell("/admin/release")
    for asked in (*flood, late):
        assert_whole(asked)
    ends = [line for line in boss.box.log.splitlines() if "outcome=length" in line]
    (place,) = [at for at, line in enumerate(ends[-FLOOD - 1 :]) if "key=quiet" in line]
    assert place < FLOOD / 2
