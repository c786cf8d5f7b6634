"""The udev rule, read by a parser of our own: udev itself reports mistakes only in its log."""

import re
from pathlib import Path

import pytest

from images.layout import HERE

RULES = HERE / "udev/70-appliance-mcu.rules"
MATCHES = {"SUBSYSTEM", "ACTION", "DRIVER", "KERNEL", "ATTRS", "ATTR", "ENV"}
SETS = {"SYMLINK", "GROUP", "MODE", "TAG", "ENV", "ATTR"}
WITH_NAME = {"ATTRS", "ATTR", "ENV"}
_TOKEN = re.compile(r'([A-Z]+)(?:\{([\w]+)\})?(==|!=|\+=|:=|=)"([^"]*)"')


class BadRule(Exception):
    """Says what is wrong with a line."""


def parse(row: str) -> list[tuple[str, str, str, str]]:
    """The key, its name in braces, the operator and the value, of every part. Raises BadRule."""
    parts = [part.strip() for part in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', row)]
    found = []
    for part in parts:
        token = _TOKEN.fullmatch(part)
        if token is None:
            raise BadRule(f"cannot be read: {part}")
        key, name, how, value = token[1], token[2] or "", token[3], token[4]
        if key not in (MATCHES if how in ("==", "!=") else SETS):
            raise BadRule(f"{key} does not go with {how}")
        if bool(name) != (key in WITH_NAME):
            raise BadRule(f"{key} {'lacks' if not name else 'takes no'} a name in braces")
        if key == "MODE" and not re.fullmatch(r"0[0-7]{3}", value):
            raise BadRule(f"no mode: {value}")
        found.append((key, name, how, value))
    if all(how in ("==", "!=") for _, _, how, _ in found):
        raise BadRule("sets nothing")
    return found


def rules(path: Path = RULES) -> list[list[tuple[str, str, str, str]]]:
    rows = [row for row in path.read_text().splitlines() if row and not row.startswith("#")]
    return [parse(row) for row in rows]


def test_every_rule_can_be_read() -> None:
    assert len(rules()) == 3


@pytest.mark.parametrize("rule", rules()[:2], ids=("micropython", "pico"))
def test_board_gets_its_name_its_group_and_no_modem_probe(
    rule: list[tuple[str, str, str, str]],
) -> None:
    assert ("SUBSYSTEM", "", "==", "tty") in rule
    assert ("ATTRS", "idVendor", "==", "2e8a") in rule
    assert ("SYMLINK", "", "+=", "appliance-mcu") in rule
    assert ("GROUP", "", "=", "dialout") in rule
    assert ("MODE", "", "=", "0660") in rule
    assert ("ENV", "ID_MM_DEVICE_IGNORE", "=", "1") in rule


def test_rules_hold_only_for_the_boards_own_chips() -> None:
    """A rule without a match for vendor and product would rename every serial line."""
    for rule in rules()[:2]:
        matched = {name for key, name, how, _ in rule if key == "ATTRS" and how == "=="}
        assert matched == {"idVendor", "idProduct", "serial"}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('SUBSYSTEM=="tty", SYMLINK+="x" GROUP="y"', "cannot be read"),
        ('SUBSYSTEM=="tty", SYMLINK=="x"', "does not go with"),
        ('SUBSYSTEM="tty", SYMLINK+="x"', "does not go with"),
        ('ATTRS=="2e8a", SYMLINK+="x"', "lacks a name"),
        ('SUBSYSTEM{x}=="tty", SYMLINK+="x"', "takes no a name"),
        ('SUBSYSTEM=="tty", MODE="rw"', "no mode"),
        ('SUBSYSTEM=="tty"', "sets nothing"),
    ],
)
def test_parser_refuses_what_udev_would_ignore(row: str, says: str) -> None:
    with pytest.raises(BadRule, match=says):
        parse(row)
