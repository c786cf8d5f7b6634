"""From one model to another while the box serves: nobody is left hanging, and what cannot be served
changes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.models import Store, packaged_model
from tests.box.asking import ask, check_complete
from tests.box.other_models import add_broken, add_other, break_in_place, model_use
from tests.box.running import RunningBox

PACKAGED = packaged_model().stem
LONG = 7900
"""Tokens that take longer than any test."""


class Box(RunningBox):
    """With a word on what it serves."""

    state_dir: Path
    other_sha256: str

    def use(self, name: str, **options: Any) -> httpx.Response:
        return self.admin("POST", "/admin/model", json={"use": name}, **options)

    def model(self) -> dict[str, Any]:
        found: dict[str, Any] = self.admin("GET", "/admin/model").json()
        return found

    def phase(self) -> str:
        return str(self.model()["switch"]["phase"])

    def end(self, name: str) -> dict[str, Any]:
        """How the switch to it ended."""
        self.wait_until(lambda: self.phase() == "none", timeout=180, what="the switch is over")
        last: dict[str, Any] = self.model()["switch"]["last"]
        assert last["target"] == name
        return last

    def models(self) -> tuple[str, str]:
        """The one that is served, and another that could be."""
        served = str(self.model()["name"])
        return served, PACKAGED if served == "other" else "other"

    def selected(self) -> str | None:
        return Store(self.state_dir).selected()

    def prompt_tokens(self) -> int:
        """Of one chat: the models' templates differ."""
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "temperature": 0}
        answer = self.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["usage"]["prompt_tokens"])

    def newest(self) -> dict[str, Any]:
        """The newest final row."""
        rows: list[dict[str, Any]] = self.admin("GET", "/admin/history?limit=1").json()["requests"]
        return rows[0]

    def actions(self, since: str) -> list[dict[str, Any]]:
        """What operators did, newest first, down to the newest action of that name."""
        rows = self.admin("GET", "/admin/actions").json()["actions"]
        names = [row["action"] for row in rows]
        return list(rows[: names.index(since) + 1])


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    home = tmp_path_factory.mktemp("switch")
    other = add_other(home / "state", "other")
    add_broken(home / "state", "broken")
    engine, control = {"context": 8192}, {"admission": "fill"}  # two long ones run at a time
    with Box.start(home, engine=engine, control=control, server={"drain_s": 600}) as running:
        running.state_dir, running.other_sha256 = home / "state", other
        yield running


def test_command_has_the_box_go_over_to_another_model_while_its_port_stays_open(box: Box) -> None:
    name, another = box.models()
    pid, before = box.engine().pid, box.prompt_tokens()
    done = model_use(box.state_dir, another, STEELYARD_ADMIN_KEY=box.admin_key)
    assert done.returncode == 0, done.stderr
    assert f"{another} is served; for " in done.stdout
    end = box.end(another)
    assert (end["result"], end["source"], end["why"], end["note"]) == ("switched", name, "", "")
    assert end["away_s"] > 0
    now = box.model()
    assert (now["name"], now["packaged"]) == (another, another == PACKAGED)
    assert now["sha256"] == box.http.get("/props").json()["model_sha256"]
    assert (now["sha256"] == box.other_sha256) == (another == "other")
    chosen = None if another == PACKAGED else another
    assert now["selected"] == box.selected() == chosen, "the next start serves it too"
    assert box.http.get("/v1/models").json()["data"][0]["id"] == another
    assert box.http.get("/readyz").json()["model"]["name"] == another
    assert f'model="{another}"' in box.http.get("/metrics").text
    assert box.engine().pid != pid
    assert box.prompt_tokens() != before, "its own template is used"
    box.wait_until(lambda: box.newest()["model"] == another, what="its row is written")
    assert box.newest()["model_sha256"] == now["sha256"]
    ended, asked = box.actions("model.use")
    assert (ended["action"], ended["target"]) == ("model.switched", another)
    assert ended["key_name"] == asked["key_name"] != ""
    assert asked["detail"] == {"from": name}
    assert box.use(another).json() == {"status": "serving", "target": another}
    box.wait_idle()
    frames = box.admin("GET", "/events?once=1").text
    (state,) = [line for line in frames.splitlines() if '"type":"state"' in line]
    chain = json.loads(state.removeprefix("data: "))["chain"]
    assert chain["tok_ledger"] == chain["tok_engine"] > 0, "counters go on across models"


def test_what_runs_may_end_and_all_others_are_told_to_come_again(box: Box) -> None:
    name, another = box.models()
    first, last = (ask(box, max_tokens=LONG).wait_for_tokens() for _ in range(2))
    box.admin("POST", "/admin/hold")
    waiting = [ask(box, max_tokens=5, stream=stream) for stream in (True, False)]
    box.wait_for_waiting(2)
    assert box.use(another).json() == {"status": "switching", "target": another}
    for victim in waiting:
        (error,) = victim.wait().errors
        assert (error["type"], error["code"]) == ("unavailable_error", "switching")
        assert not victim.finished_properly
    assert waiting[1].status == 503
    assert int(waiting[1].headers["retry-after"]) >= 1
    assert box.phase() == "draining"
    refused = ask(box).wait()
    assert (refused.status, refused.errors[0]["code"]) == (503, "switching")
    assert int(refused.headers["retry-after"]) >= 1
    assert box.http.post("/tokenize", json={"content": "x"}).status_code == 503
    assert box.http.get("/health").status_code == 200
    ready = box.http.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "switching")
    assert ready.json()["failing"] == ["model"]
    assert '"kind":"model","phase":"draining"' in box.admin("GET", "/events?once=1").text
    assert box.use(name).status_code == 409, "one at a time"
    for stream in (first, last):
        stream.wait_for_tokens(len(stream.token_ids) + 2)  # it drains for as long as one runs
        assert box.phase() == "draining"
        stream.hang_up()
    assert box.end(another)["result"] == "switched"
    assert box.http.get("/readyz").json()["engine"]["paused"], "a hold holds on"
    held = ask(box, max_tokens=5)
    box.wait_for_waiting(1)
    box.admin("POST", "/admin/release")
    check_complete(box, held)


def test_model_that_does_not_load_is_given_up_before_anybody_notices(box: Box) -> None:
    before = box.model()
    stream = ask(box, max_tokens=LONG).wait_for_tokens()
    pid = box.engine().pid
    assert box.use("broken").status_code == 202
    end = box.end("broken")
    assert end["result"] == "kept"
    assert "the engine" in end["why"]
    assert end["away_s"] == 0
    assert box.engine().pid == pid
    assert not stream.over
    assert not stream.errors
    stream.hang_up()
    now = box.model()
    assert (now["name"], now["selected"]) == (before["name"], before["selected"])
    assert box.http.get("/readyz").status_code == 200
    kept, _ = box.actions("model.use")
    assert (kept["action"], kept["target"]) == ("model.kept", "broken")
    assert kept["detail"]["why"] == end["why"]


def test_model_that_fails_after_it_was_tried_gives_way_to_the_former(box: Box) -> None:
    before = box.model()
    add_other(box.state_dir, "failing")
    last = ask(box, max_tokens=LONG).wait_for_tokens()
    assert box.use("failing").status_code == 202
    box.wait_until(lambda: box.phase() == "draining", timeout=180, what="it was tried")
    break_in_place(box.state_dir, "failing")
    last.hang_up()
    end = box.end("failing")
    assert end["result"] == "returned"
    assert "the engine" in end["why"]
    now = box.model()
    assert (now["name"], now["selected"]) == (before["name"], before["selected"])
    check_complete(box, ask(box))
    returned, _ = box.actions("model.use")
    assert (returned["action"], returned["detail"]["why"]) == ("model.returned", end["why"])
    damaged = model_use(box.state_dir, "failing", STEELYARD_API_KEY=box.admin_key)
    assert damaged.returncode == 1
    assert "SHA-256" in damaged.stderr, "its file is read again before it is tried"
    assert f"{before['name']} served on all the while" in damaged.stderr


def test_what_cannot_be_used_is_refused_at_once(box: Box) -> None:
    unknown = box.use("othr")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert "other" in unknown.json()["error"]["message"], "the nearest is named"
    assert box.http.post("/admin/model", json={"use": "other"}).status_code == 401
    assert box.use("").status_code == 400
    assert box.phase() == "none"
