"""What a box has of what it needs, and how to do what it lacks: the list that the assistant ends
with. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tui.assistant.machine import Facts
from tui.assistant.plan import Told

State = Literal["ok", "todo", "wait", "skip"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `step` has the step's word, `how` what does it: a word, or none."""

    step: str
    state: State
    detail: Told
    how: Told | None = None


def checklist(facts: Facts) -> tuple[Row, ...]:
    """In the order of the steps."""
    return tuple(_rows(facts))


def todo(rows: tuple[Row, ...]) -> int:
    return sum(row.state == "todo" for row in rows)


def _rows(facts: Facts) -> Iterator[Row]:
    yield _network(facts)
    if facts.time_server:
        yield Row("time", "ok", ("assist.is.time", (facts.time_server,)))
    else:
        yield Row("time", "ok", ("assist.is.clock", (facts.clock,)), ("assist.how.time", ()))
    if facts.password:
        yield Row("login", "ok", ("assist.is.password", ()))
    else:
        yield Row("login", "todo", ("assist.is.no_password", ()), ("assist.how.login", ()))
    yield from _served(facts)
    yield _key("admin", facts)
    yield _board(facts)
    yield _model(facts)


def _network(facts: Facts) -> Row:
    if not facts.interfaces:
        return Row("network", "todo", ("assist.is.no_interface", ()), ("assist.how.network", ()))
    where = facts.static.address if facts.static else "DHCP"
    names = facts.interface or ", ".join(one.name for one in facts.interfaces)
    if all(one.up is False for one in facts.interfaces):
        return Row("network", "todo", ("assist.is.no_link", (names,)), ("assist.how.cable", ()))
    return Row("network", "ok", ("assist.is.network", (names, where)))


def _served(facts: Facts) -> Iterator[Row]:
    yield _key("app", facts)
    if not facts.open:
        yield Row("serve", "todo", ("assist.is.alone", ()), ("assist.how.serve", ()))
        yield Row("tls", "wait", ("assist.is.waits", ()))
        return
    yield Row("serve", "ok", ("assist.is.served", (facts.serves,)))
    named = ("assist.is.names", (" ".join(facts.names),)) if facts.names else ("assist.is.tls", ())
    yield Row("tls", "ok", named, ("assist.how.tls", ()))


def _key(kind: str, facts: Facts) -> Row:
    scope = "infer" if kind == "app" else "admin"
    if facts.keys is None:
        return Row(kind, "todo", ("assist.is.no_look", ()), ("assist.how.look", ()))
    there = [key.name for key in facts.keys if scope in key.scopes]
    if there:
        return Row(kind, "ok", ("assist.plain", (", ".join(there),)))
    return Row(kind, "todo", ("assist.is.no_key", ()), ("assist.how.key", (scope,)))


def _board(facts: Facts) -> Row:
    if facts.board and not facts.board_seen:
        return Row("board", "todo", ("assist.is.no_board", (facts.board,)),
                   ("assist.how.board", ()))  # fmt: skip
    if facts.board:
        return Row("board", "ok", ("assist.plain", (facts.board,)))
    if facts.board_seen:
        return Row("board", "todo", ("assist.is.board_unused", ()), ("assist.how.use_board", ()))
    return Row("board", "skip", ("assist.is.none", ()))


def _model(facts: Facts) -> Row:
    if not facts.model:
        return Row("model", "todo", ("assist.is.no_look", ()), ("assist.how.look", ()))
    return Row("model", "ok", ("assist.plain", (facts.model,)), ("assist.how.model", ()))
