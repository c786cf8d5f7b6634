"""One conflict, action or fault told whole, as lines of a dialog or beside the table. Pure."""

import json
from collections.abc import Mapping

from tui import moments
from tui.figures import NONE
from tui.screens.audit_replay import reasons_of
from tui.screens.audit_rows import Action, Conflict, Fault, Replay, place_of
from tui.view import View


def result_of(row: Conflict, replay: Replay | None, view: View) -> str:
    """What came of a conflict, in words."""
    words = view.words
    if replay is not None:
        key, counts = f"audit.result.{replay.result}", (replay.differing, replay.positions)
        text = words(key, differing=counts[0], positions=counts[1])
        return text if words.has(key) else view.foreign(replay.result)
    if row.first_difference is not None:
        return words("audit.result.conflict", first=row.first_difference)
    return words("audit.result.conflict.digest")


def of_conflict(
    row: Conflict, names: Mapping[str, str], replay: Replay | None, view: View
) -> list[str]:
    words, foreign = view.words, view.foreign
    first = row.first_difference
    told = [
        foreign(row.id),
        words(
            "audit.detail.row",
            seq=row.seq,
            when=moments.shown(row.wall_ns / 1e6),
            whose=foreign(names.get(row.key_id, row.key_id)) or NONE,
            choice=row.choice,
        ),
        words("audit.detail.claimed", digest=foreign(row.claimed)),
        words("audit.detail.digest", digest=foreign(row.digest)),
        words("audit.detail.first.none")
        if first is None
        else words("audit.detail.first", first=first),
    ]
    if replay is not None:
        result = result_of(row, replay, view)
        told.append(words("audit.detail.replay", seq=replay.seq or NONE, result=result))
        told += reasons_of(replay.facts, view)
    return told


def of_action(row: Action, names: Mapping[str, str], view: View) -> list[str]:
    words, foreign = view.words, view.foreign
    who = words("audit.action.box")
    if row.key_name or row.operator:
        who = words(
            "audit.action.who",
            whose=foreign(row.key_name) or NONE,
            id=foreign(row.key_id) or NONE,
            operator=foreign(row.operator) or NONE,
            host=foreign(row.host) or NONE,
        )
    told = [
        words("audit.action.title", action=foreign(row.action), seq=row.seq),
        words(
            "audit.action.when",
            when=moments.shown(row.wall_ns / 1e6),
            target=_target(row.target, names, view),
        ),
        who,
    ]
    told += [foreign(f"{name} = {_value(value)}") for name, value in row.detail.items()]
    return [*told, words("audit.action.hash", hash=foreign(row.hash))]


def _target(target: str, names: Mapping[str, str], view: View) -> str:
    """An id has its name beside it."""
    name = names.get(target)
    return view.foreign(target if name is None else f"{name} ({target})") or NONE


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def of_fault(row: Fault, view: View) -> list[str]:
    """Where, what, and both hashes."""
    words, foreign = view.words, view.foreign
    told = [f"{place_of(row, view)}: {foreign(row.what)}: {foreign(row.detail)}"]
    told += [f"  {foreign(row.entry)}"] if row.entry else []
    told += [words("audit.fault.stored", hash=foreign(row.stored))] if row.stored else []
    told += [words("audit.fault.computed", hash=foreign(row.computed))] if row.computed else []
    return told
