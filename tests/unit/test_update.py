"""New firmware for a board, in one process: what is taken, what is refused, and what is left when
something fails. With the real interpreter: test_update_firmware.py."""

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firmware_bridge import messages as m
from firmware_bridge.commands import UpdateData, check
from firmware_bridge.events import Done, Event, Failed, Happened, Unusable
from firmware_bridge.firmware import conversation, schema
from firmware_bridge.firmware.slots import KEYS, SELECTOR, TRIAL, Slots
from firmware_bridge.update import Image, Update
from tests.unit.board_parts import only
from tests.unit.update_parts import (
    PowerCut,
    SlottedPair,
    copied,
    small_image,
    stranger,
)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlottedPair:
    return SlottedPair(tmp_path / "flash", monkeypatch)


def contents(root: Path) -> dict[str, bytes]:
    """The firmware in the flash; not what the board writes while it runs."""
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*.*") if p.is_file()}


def kinds(pair: SlottedPair) -> list[int]:
    return [event.kind for event in only(pair.events, Happened)]


def test_new_firmware_is_tried_and_kept(pair: SlottedPair) -> None:
    before = contents(pair.root / "a")
    update = pair.bring(small_image("1.2.0"))
    assert (update.phase, update.problem) == ("done", "")
    assert (pair.slot, pair.how) == ("b", TRIAL)
    pair.run(0.5)
    pair.boot()
    assert (pair.slot, pair.how) == ("b", 0), "confirmed"
    assert contents(pair.root / "a") == before, "the old one stays"
    pair.run(0.5)
    assert m.EV_UPDATED in kinds(pair)


def test_the_next_update_goes_into_the_other_slot(pair: SlottedPair) -> None:
    pair.bring(small_image("1.2.0"))
    update = pair.bring(small_image("1.3.0"))
    assert update.phase == "done"
    pair.boot()
    assert pair.slot == "a"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"key": stranger()}, "no key that the board trusts"),
        ({"key": None}, "no key that the board trusts"),
        ({"board": "another"}, "another kind of board"),
        ({"version": "1.1.9"}, "not newer"),
        ({"minimum": (1, 2, 1)}, "too old for it"),
    ],
    ids=["stranger", "unsigned", "board", "lower", "minimum"],
)
def test_what_is_not_for_this_board_is_refused_and_nothing_is_erased(
    pair: SlottedPair, given: dict[str, object], why: str
) -> None:
    pair.bring(small_image("1.2.0"))
    pair.boot()
    pair.run(0.5)
    before = contents(pair.root)
    update = pair.bring(small_image(**{"version": "1.3.0", **given}))
    assert update.phase == "refused"
    assert why in update.problem
    assert contents(pair.root) == before


def test_a_version_that_runs_already_is_not_sent(pair: SlottedPair) -> None:
    update = pair.bring(small_image("1.1.0"))
    assert update.phase == "done"
    assert pair.slot == "a"


def test_a_board_that_trusts_nobody_says_so(pair: SlottedPair) -> None:
    (pair.root / KEYS).unlink()
    update = pair.bring(small_image("1.2.0"))
    assert update.phase == "refused"
    assert "trusts no key" in update.problem


def test_a_byte_that_is_not_what_was_signed_is_found(pair: SlottedPair) -> None:
    image = small_image("1.2.0")
    spoilt = bytearray(image.data)
    spoilt[-9] ^= 1
    wrong = Image(bytes(spoilt), image.head_size, image.version, image.minimum, "", 0)
    update = pair.bring(wrong)
    assert update.phase == "refused"
    assert "not what was sent" in update.problem
    assert pair.bring(image).phase == "done", "the next attempt starts anew"


@pytest.mark.parametrize("at", [20, 300, 700])
def test_a_head_that_was_changed_is_refused(pair: SlottedPair, at: int) -> None:
    image = small_image("1.2.0")
    spoilt = bytearray(image.data)
    spoilt[min(at, image.head_size - 2)] ^= 1
    wrong = Image(bytes(spoilt), image.head_size, image.version, image.minimum, "", 0)
    assert pair.bring(wrong).phase == "refused"
    assert not (pair.root / "b").exists()


def test_firmware_that_nobody_confirms_is_reverted(pair: SlottedPair) -> None:
    image = small_image("1.2.0")
    update = Update(image, pair.now)
    while update.phase != "confirming":
        pair.carry(update)
    assert pair.slot == "b"
    end = pair.now + pair.hal.trial_ms / 1000 + 1
    while pair.now < end:
        pair.turn()
        pair.heed_resets()
    assert (pair.slot, pair.board.updater.reverted) == ("a", True)
    pair.finish(update)
    assert update.phase == "reverted"
    assert m.EV_REVERTED in kinds(pair)


def test_a_reset_during_the_trial_reverts_too(pair: SlottedPair) -> None:
    update = Update(small_image("1.2.0"), pair.now)
    while update.phase != "confirming":
        pair.carry(update)
    pair.boot()
    assert pair.slot == "a"
    pair.finish(update)
    assert update.phase == "reverted"


def test_the_board_watches_itself_before_it_is_confirmed(pair: SlottedPair) -> None:
    update = Update(small_image("1.2.0"), pair.now)
    while update.phase != "confirming":
        pair.carry(update)
    assert pair.board.confirm(b"\1\2\0", 1999) == m.NOT_YET
    pair.board.sampler.skipped = pair.board.sampler.index
    assert pair.board.confirm(b"\1\2\0", 10_000) == m.NOT_YET, "it has not sampled"
    assert pair.board.updater.trial


def test_a_confirmed_slot_is_never_written_while_another_is_on_trial(pair: SlottedPair) -> None:
    update = Update(small_image("1.2.0"), pair.now)
    while update.phase != "confirming":
        pair.carry(update)
    assert pair.board.updater.begin(700, 5000) == m.DENIED


def test_a_line_that_is_cut_is_gone_on_with_where_it_was(pair: SlottedPair) -> None:
    image = small_image("1.2.0")
    update = Update(image, pair.now)
    while update.received < 9000:
        pair.carry(update)
    for event in pair.session.disconnected():
        update.take(event, pair.now)
    pair.run(3.0)
    pair.session.connected(pair.now)
    sent = 0
    take = pair.board.updater.data

    def counted(offset: int, piece: bytes) -> int | bytes:
        nonlocal sent
        sent += len(piece)
        return take(offset, piece)

    pair.board.updater.data = counted  # type: ignore[method-assign]
    while not update.progress.over and pair.slot == "a":
        pair.carry(update)
    assert sent < len(image.data) - 3000, "the blocks that were stored are not sent again"
    pair.finish(update)
    assert update.phase == "done"


def test_a_line_that_loses_and_repeats_brings_the_whole_image(
    pair: SlottedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(5)

    def spoil(data: bytes) -> bytes:
        pieces = [piece for piece in data.split(b"\0") if piece]
        kept = [piece for piece in pieces if dice.random() > 0.1]
        return b"".join((b"\0" + piece + b"\0") * (1 + (dice.random() < 0.1)) for piece in kept)

    monkeypatch.setattr(pair, "to_board", spoil)
    monkeypatch.setattr(pair, "to_host", spoil)
    assert pair.bring(small_image("1.2.0"), 300).phase == "done"
    assert pair.session.counters.retries > 5


def test_an_update_that_gets_no_answer_ends_and_says_so(pair: SlottedPair) -> None:
    update = Update(small_image("1.2.0"), pair.now)
    update.expire(pair.now + 119)
    assert not update.progress.over
    update.expire(pair.now + 121)
    assert update.phase == "failed"
    assert "came to a stop" in update.problem


def test_the_power_may_fail_whenever_the_flash_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every single change there is a slot that boots, and the update is carried to its end or
    was reverted, and is then carried to its end."""
    image, fresh = small_image("1.2.0"), tmp_path / "fresh"
    whole = SlottedPair(fresh, monkeypatch)
    copied(fresh, tmp_path / "start")
    before = whole.hal.flash.changes
    assert whole.bring(image).phase == "done"
    changes = whole.hal.flash.changes - before
    assert changes > 12
    for cut in range(1, changes + 1):
        root = copied(tmp_path / "start", tmp_path / "cut")
        pair = SlottedPair(root, monkeypatch)
        pair.hal.flash.left = cut
        update = Update(image, pair.now)
        with pytest.raises(PowerCut):
            pair.finish(update)
        pair.boot()
        for _ in range(3):
            if not update.progress.over or update.phase == "reverted":
                update = pair.bring(image)
        pair.boot()
        assert (update.phase, pair.slot) == ("done", "b"), cut


def test_a_torn_write_is_gone_on_with(pair: SlottedPair) -> None:
    image = small_image("1.2.0")
    update = Update(image, pair.now)
    while update.received < 9000:
        pair.carry(update)
    file = max((pair.root / "b").rglob("*.py"), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:-777])
    pair.boot()
    assert pair.bring(image).phase == "done"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"active": "c"}', '{"active": 3}', "\x00"])
def test_a_selector_that_cannot_be_read_means_the_newest_whole_slot(
    pair: SlottedPair, text: str
) -> None:
    pair.bring(small_image("1.2.0"))
    (pair.root / SELECTOR).write_text(text)
    pair.boot()
    assert pair.slot == "b"
    (pair.root / "b/head").unlink()
    (pair.root / SELECTOR).write_text(text)
    pair.boot()
    assert pair.slot == "a"


def test_a_slot_with_a_damaged_file_does_not_boot_while_there_is_another(pair: SlottedPair) -> None:
    pair.bring(small_image("1.2.0"))
    file = pair.root / "b/firmware_bridge/wire.py"
    file.write_bytes(file.read_bytes().replace(b"wire", b"wise", 1))
    pair.boot()
    assert pair.slot == "a"
    assert Slots(pair.hal.flash).active == "a"


def test_whatever_comes_as_an_update_changes_nothing_without_a_signature(pair: SlottedPair) -> None:
    """A million commands are in bench/bridge.py."""
    dice, updater = random.Random(3), pair.board.updater
    before = contents(pair.root)
    for _ in range(3000):
        match dice.randrange(4):
            case 0:
                updater.begin(dice.randrange(70_000), dice.randrange(300_000))
            case 1 | 2:
                updater.data(
                    dice.choice([0, updater.received]), dice.randbytes(dice.randrange(238))
                )
            case _:
                assert updater.boot() == m.DENIED
        for _ in range(dice.randrange(40)):
            updater.step()
    assert contents(pair.root) == before


def test_a_board_whose_schema_the_host_does_not_know_can_be_renewed(
    pair: SlottedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host is newer than the board: that is what updates are for."""
    boot = pair.boot

    def otherwise() -> None:
        boot()
        known = schema.SCHEMA if pair.slot == "b" else schema.SCHEMA + 1
        monkeypatch.setattr(conversation, "SCHEMA", known)

    monkeypatch.setattr(pair, "boot", otherwise)
    pair.boot()
    pair.session.connected(pair.now)
    pair.run(1.0)
    assert pair.session.state == "unusable"
    assert pair.bring(small_image("1.2.0")).phase == "done"
    assert pair.session.state == "ready"


stands = st.builds(
    lambda trial, phase, version, received: struct.pack(
        m.UPDATE_TELL, 0, trial, phase, 1, 0, version, bytes(3), received, 9, 0
    ),
    st.integers(0, 1),
    st.integers(0, 9),
    st.sampled_from([b"\1\1\0", b"\1\2\0"]),
    st.sampled_from([0, 5, 700, 2**32 - 1]),
)
answers = st.one_of(
    st.builds(Done, st.just(0), stands, st.just(0.0)),
    st.builds(Done, st.just(0), st.binary(max_size=40), st.just(0.0)),
    st.builds(Failed, st.just(0), st.just("no"), st.sampled_from([None, 1, 2, 3, 4, 5, 6, 99])),
    st.just(Unusable("another schema")),
)


@settings(deadline=None)
@given(st.lists(answers, max_size=60))
def test_whatever_a_board_answers_an_update_stays_within_its_bounds(told: list[Event]) -> None:
    image = small_image("1.2.0")
    update = Update(image, 0.0)
    number, now = 0, 0.0
    for event in told:
        now += 0.3
        while (command := update.due(now)) is not None:
            assert check(command) is None
            number += 1
            update.sent(number, command)
        known = isinstance(event, Done | Failed)
        update.take(replace(event, id=number) if known else event, now)  # type: ignore[call-arg]
        assert 0 <= update.progress.done <= update.progress.total
    update.expire(now + 2000)
    assert update.progress.over


def test_a_gap_is_refused_and_a_repeated_piece_is_taken_once(pair: SlottedPair) -> None:
    image, updater = small_image("1.2.0"), pair.board.updater
    assert updater.begin(image.head_size, len(image.data)) == 0
    piece = UpdateData(0, image.data[:200]).piece
    assert updater.data(200, piece) == m.BAD_ARGUMENT
    assert updater.data(0, piece) == (200).to_bytes(4, "little")
    assert updater.data(0, piece) == (200).to_bytes(4, "little")
    assert updater.data(100, image.data[100:300]) == (300).to_bytes(4, "little")
    assert updater.data(300, image.data[300 : image.head_size + 1]) == m.BAD_ARGUMENT
