"""docs/board.md says all that another host needs to speak with a board."""

import re
from binascii import crc32
from pathlib import Path

from firmware_bridge import messages as m
from firmware_bridge.firmware.schema import DESCRIPTIONS, SCHEMA

PAGE = Path(__file__).parents[2] / "docs" / "board.md"
ROW = re.compile(r"^\| (\d\d) \| (?:`(<[^`]*)`)?([^|]*)\| ?(?:`(<[^`]*)`)?.*\|$", re.M)
UPDATES = {
    (m.UPDATE_STATE, "", m.UPDATE_TELL),
    (m.UPDATE_BEGIN, m.UPDATE_BEGIN_ASK, ""),
    (m.UPDATE_DATA, m.UPDATE_DATA_ASK, m.UPDATE_DATA_TELL),
    (m.UPDATE_CONFIRM, m.UPDATE_CONFIRM_ASK, ""),
}
NUMBERS = {
    "state of the watchdog": (
        "OFF", "ARMED", "PRETIMEOUT", "CUT", "BOOTING", "LATCHED", "INHIBITED",
    ),
    "kind of an event": (
        "BUTTON", "BUTTON_LONG", "EV_PRETIMEOUT", "EV_CYCLE", "EV_LATCHED", "EV_OVERTEMPERATURE",
        "EV_FAN", "EV_BOOT", "EV_DEADMAN", "EV_UPDATED", "EV_REVERTED",
    ),
    "cause of a reset": ("RESET_POWER", "RESET_WATCHDOG", "RESET_OTHER"),
    "phase of an update": (
        "UP_IDLE", "UP_HEAD", "UP_CHECKING", "UP_FILES", "UP_PROVING", "UP_COMPLETE",
        "UP_REFUSED", "UP_NO_SLOTS",
    ),
    "why refused": (
        "WHY_SIGNATURE", "WHY_NO_KEY", "WHY_MANIFEST", "WHY_BOARD", "WHY_OLD", "WHY_MINIMUM",
        "WHY_HASH", "WHY_FLASH",
    ),
}  # fmt: skip
"""In the order in which the page tells them."""


def layouts() -> list[tuple[int, str, str]]:
    """The rows of the page's table: type, what the host sends, what the board does."""
    table = PAGE.read_text(encoding="utf-8").split("**Layouts**")[1].split("| numbers |")[0]
    return [(int(row[0], 16), row[1], row[3]) for row in ROW.findall(table)]


def test_page_has_every_layout() -> None:
    found = layouts()
    assert len(found) == len(m.LAYOUTS) + len(UPDATES)
    assert set(found) == {*m.LAYOUTS, *UPDATES}


def test_schema_hash_is_what_the_page_says() -> None:
    told = [row for row in layouts() if row[0] <= m.STATS]
    value = crc32(";".join(f"{kind},{host},{board}" for kind, host, board in told).encode())
    for answer in DESCRIPTIONS:
        value = crc32(answer, value)
    assert value == SCHEMA


def test_page_has_every_number() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for what, names in NUMBERS.items():
        (row,) = re.findall(rf"^\| {what} \| (.*) \|$", text, re.M)
        told = [int(number) for number in re.findall(r"(?:^|, )(\d+) ", row)]
        assert told == [getattr(m, name) for name in names], what
