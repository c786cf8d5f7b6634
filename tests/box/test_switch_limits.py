"""A switch that must not wait, and one that is killed: the next start serves the former or the new
model, never nothing."""

import time
from pathlib import Path

from appliance.models import Store, packaged_model
from tests.box.asking import Asked, ask, check_complete
from tests.box.other_models import add_broken, add_other, model_use
from tests.box.running import RunningBox

PACKAGED = packaged_model().stem
SETTINGS: dict[str, dict[str, object]] = {
    "engine": {"context": 8192},
    "server": {"drain_s": 0.2},
    "control": {"admission": "fill"},
    "forecast": {"enabled": False},
}
"""Two long requests run at a time, although both could not come to their end together."""
LONG = 7900
"""Tokens that take longer than any test."""


class Box(RunningBox):
    """The admin key is printed by the first run alone, and the next one's lines replace it."""

    @property
    def admin_key(self) -> str:
        kept = self._log_path.parent / "key"
        if not kept.exists():
            kept.write_text(super().admin_key)
        return kept.read_text()

    def phase(self) -> str:
        return str(self.admin("GET", "/admin/model").json()["switch"]["phase"])

    def begin(self, name: str) -> None:
        answer = self.admin("POST", "/admin/model", json={"use": name})
        assert answer.status_code == 202, answer.text

    def reach(self, *phases: str) -> None:
        """Until the switch is in one of them, however short."""
        deadline = time.monotonic() + 180
        while self.phase() not in phases:
            assert time.monotonic() < deadline, f"it never came to {phases}"


def test_box_that_is_killed_or_stopped_in_a_switch_serves_the_former_or_the_new_model(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "state")
    other = add_other(store.state_dir, "other")
    add_broken(store.state_dir, "broken")
    failed = model_use(store.state_dir, "broken")
    assert failed.returncode == 1
    assert "failed: the engine" in failed.stdout
    assert store.selected() is None
    chosen = model_use(store.state_dir, "other")
    assert chosen.returncode == 0, chosen.stderr
    assert "other is served when the box starts" in chosen.stdout
    assert store.selected() == "other"
    for at in (("testing",), ("loading",), ("testing", "draining", "loading")):
        with Box.start(tmp_path, **SETTINGS) as box:
            sha256 = box.http.get("/props").json()["model_sha256"]
            assert (sha256 == other) == (store.selected() == "other")
            check_complete(box, ask(box, max_tokens=3))
            victims = [ask(box, max_tokens=LONG, stream=stream) for stream in (True, False)]
            box.wait_for_running(2)
            box.begin("other" if sha256 != other else PACKAGED)
            box.reach(*at, "none")  # what was too short to be seen is over
            if "draining" in at:
                assert box.stop() == 0, "a stop waits for no switch"
                assert "Traceback" not in box.log
            elif "loading" in at:
                check_turned_away(victims)
            box.process.kill()
            box.process.wait(60)
            for victim in victims:
                victim.wait()
        assert store.selected() in (None, "other")


def check_turned_away(victims: list[Asked]) -> None:
    """They ran for longer than the box drains."""
    for victim in victims:
        (error,) = victim.wait().errors
        assert (error["type"], error["code"]) == ("unavailable_error", "switching")
        assert not victim.finished_properly
    assert victims[1].status == 503
    assert int(victims[1].headers["retry-after"]) >= 1
