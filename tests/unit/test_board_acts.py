"""What an operator has the board do over HTTP: who may, what is asked of the board, and what an
answer says when it did not."""

import base64
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.accounts.keys import BOX
from appliance.api import boardacts
from appliance.api.box import Box
from appliance.board.orders import Outcome
from appliance.board.snapshot import BoardSnapshot, OutputState, Slot
from appliance.ledger.rows import Action
from firmware_bridge import messages as m
from firmware_bridge.commands import Command, Inhibit, Output, Refusal
from firmware_bridge.events import Done, Failed
from firmware_bridge.update import Image, Progress
from tests.unit.api_box import client_of, ledger_of, make_box
from tests.unit.update_parts import small_image, stranger, trust

DONE = Done(1, b"", 0.001)
ARMED = BoardSnapshot(
    state="armed",
    at=100.0,
    outputs=(
        OutputState(name="fan0", unit="1", now=0.45, safe=0.7, highest=1.0, until=101.8),
        OutputState(name="led", unit="1", now=None, safe=0, highest=3, until=None),
    ),
    slots=(Slot("a", "1.1.0", "confirmed"), Slot("b", "", "empty")),
    update=Progress("files", "1.2.0", 100, 400),
    inhibited_until=160.0,
)


class Keeper:
    """Keeps what is asked of the board; `outcome` becomes of it."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.images: list[Image] = []
        self.outcome: Outcome | None = DONE
        self.busy: Refusal | None = None

    def ask(self, command: Command) -> "Future[Outcome]":
        self.asked.append(command)
        future: Future[Outcome] = Future()
        if self.outcome is not None:
            future.set_result(self.outcome)
        return future

    def drive(self, name: str, value: float | None, seconds: float) -> "Future[Outcome] | None":
        if name != "fan0":
            return None
        if value is not None and value > 1:
            raise ValueError("0 to 1")
        return self.ask(Output(0, 700 if value is None else round(1000 * value), 1))

    def update(self, image: Image) -> Refusal | None:
        self.images.append(image)
        return self.busy


class Desk:
    """An operator of a box with a scripted board."""

    def __init__(self, tmp_path: Path, state: BoardSnapshot = ARMED) -> None:
        self.keeper = Keeper()
        self.box: Box = replace(make_box(tmp_path), board=lambda: state, board_keeper=self.keeper)
        self.client = client_of(self.box, peer="192.168.1.20")
        self.client.headers["X-Api-Key"] = self.box.keys.create("boss", ["admin"], by=BOX)
        self.client.headers["X-Operator"] = "alice"

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(f"/admin/board/{path}", json=body, headers=sent)

    @property
    def acts(self) -> list[Action]:
        return [row for row in ledger_of(self.box).rows if isinstance(row, Action)]


async def test_the_watchdog_is_inhibited_for_some_minutes_and_that_is_chained(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    answer = await desk.post("inhibit", {"minutes": 10, "reason": "new fans"})
    assert answer.json() == {"status": "inhibited", "recorded": True}
    assert desk.keeper.asked == [Inhibit(600, 3)]
    (row,) = desk.acts
    assert (row.action, row.operator, row.key_name) == ("board.inhibit", "alice", "boss")
    assert row.detail == {"minutes": 10, "reason": "new fans"}
    answer = await desk.post("inhibit", {"minutes": 0, "reason": "done"})
    assert answer.json()["status"] == "watching"
    assert desk.keeper.asked[1] == Inhibit(0, 3)


async def test_an_output_is_driven_and_let_go(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    answer = await desk.post("outputs/fan0", {"value": 0.9, "seconds": 20})
    assert answer.json() == {"status": "driven", "recorded": True, "target": "fan0"}
    await desk.post("outputs/fan0", {"value": None})
    assert [one.value for one in desk.keeper.asked if isinstance(one, Output)] == [900, 700]
    assert [row.detail for row in desk.acts] == [
        {"value": 0.9, "seconds": 20.0},
        {"value": None, "seconds": 0.0},
    ]


async def test_an_image_is_brought_onto_the_board(tmp_path: Path) -> None:
    desk, image = Desk(tmp_path), small_image()
    (tmp_path / "firmware").mkdir()
    (tmp_path / "firmware/trusted_key").write_text(trust())
    (tmp_path / "firmware/new.fw").write_bytes(image.data)
    for body in ({"image": base64.b64encode(image.data).decode()}, {"name": "new.fw"}):
        answer = await desk.post("update", body)
        assert answer.status_code == 202
        assert answer.json() == {"status": "updating", "recorded": True, "target": "1.2.0"}
    assert desk.keeper.images == [image, image]
    assert [row.action for row in desk.acts] == ["board.update"] * 2


def spoilt(image: Image) -> str:
    return base64.b64encode(image.data[:-1] + b"?").decode()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"image": "////"}, "no firmware image"),
        ({"image": "not base64"}, "image: "),
        ({"image": spoilt(small_image())}, "not what the manifest says"),
        ({"image": base64.b64encode(small_image(key=stranger()).data).decode()}, "has signed it"),
        ({"name": "../keys.fw"}, "no name of an image"),
        ({"name": "gone.fw"}, "cannot be read"),
        ({"name": "notes.txt"}, "no name of an image"),
        ({}, "give name or image"),
        ({"name": "a.fw", "image": "AAAA"}, "give name or image"),
    ],
)
async def test_what_is_no_image_of_ours_never_reaches_the_board(
    tmp_path: Path, body: dict[str, str], said: str
) -> None:
    desk = Desk(tmp_path)
    (tmp_path / "firmware").mkdir()
    (tmp_path / "firmware/trusted_key").write_text(trust())
    answer = await desk.post("update", body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert not desk.keeper.images
    assert not desk.acts


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("inhibit", {"minutes": 16, "reason": "long"}, 400, "minutes"),
        ("inhibit", {"minutes": -1}, 400, "minutes"),
        ("inhibit", {"minutes": 5, "reason": "x" * 201}, 400, "reason"),
        ("outputs/fan0", {"value": 7}, 400, "takes 0 to 1"),
        ("outputs/fan0", {"value": 1, "seconds": 66}, 400, "seconds"),
        ("outputs/heater", {"value": 1}, 404, "no output 'heater'"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_done(
    tmp_path: Path, path: str, body: dict[str, Any], status: int, said: str
) -> None:
    desk = Desk(tmp_path)
    answer = await desk.post(path, body)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]
    assert not desk.acts


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (Failed(1, "the board refused", m.DENIED), 409, "board_refused"),
        (Failed(1, "no answer"), 503, "board_silent"),
        (Refusal("too many commands wait"), 503, "board_lost"),
        (None, 503, "board_silent"),
    ],
)
async def test_what_the_board_did_not_do_is_not_chained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | None, status: int, code: str
) -> None:
    monkeypatch.setattr(boardacts, "ANSWER_S", 0.05)
    desk = Desk(tmp_path)
    desk.keeper.outcome = outcome
    answer = await desk.post("inhibit", {"minutes": 5, "reason": "fans"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert not desk.acts


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [("none", 409, "no_board"), ("lost", 503, "board_lost"), ("greeting", 503, "board_lost")],
)
async def test_without_a_board_nothing_can_be_asked_of_it(
    tmp_path: Path, state: Any, status: int, code: str
) -> None:
    desk = Desk(tmp_path, BoardSnapshot(state=state))
    for path, body in (
        ("inhibit", {"minutes": 5, "reason": "x"}),
        ("outputs/fan0", {"value": 1}),
        ("update", {"name": "x.fw"}),
    ):
        answer = await desk.post(path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_second_update_has_to_wait(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.keeper.busy = Refusal("another update is under way: wait until it is over")
    body = {"image": base64.b64encode(small_image().data).decode()}
    answer = await desk.post("update", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "update_under_way")


async def test_what_is_asked_again_under_its_key_is_done_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for _ in range(2):
        await desk.post("inhibit", {"minutes": 5, "reason": "x"}, Idempotency_Key="once")
    assert len(desk.keeper.asked) == 1


async def test_only_admins_may(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.client.headers["X-Api-Key"] = desk.box.keys.create("app", ["infer"], by=BOX)
    for path in ("inhibit", "outputs/fan0", "update"):
        assert (await desk.post(path, {})).status_code == 403
    assert not desk.keeper.asked


async def test_the_board_is_told_with_slots_update_outputs_and_images(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (tmp_path / "firmware").mkdir()
    (tmp_path / "firmware/bad.fw").write_bytes(b"x")
    (tmp_path / "firmware/new.fw").write_bytes(small_image().data)
    told = (await desk.client.get("/admin/board")).json()
    assert told["slots"][0] == {"slot": "a", "version": "1.1.0", "state": "confirmed"}
    assert told["update"]["phase"] == "files"
    assert told["inhibited_ms"] == 60_000
    assert told["outputs"][0]["left_ms"] == 1800
    assert told["outputs"][1]["highest"] == 3
    assert [one["name"] for one in told["images"]] == ["bad.fw", "new.fw"]
    assert told["images"][1]["version"] == "1.2.0"
    assert told["images"][0]["problem"]
