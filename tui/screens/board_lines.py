"""What the board says of itself, line by line: watchdog, line, outputs, firmware, events. Pure."""

from appliance.frames import Board, FirmwareSlot, Output
from tui import figures, moments
from tui.cells import pad
from tui.lines import Line, line, wrap
from tui.view import View

EVENTS = 5
_LABEL, _BAR = 9, 16


def told(view: View, board: Board, events: int = EVENTS) -> list[Line]:
    """Only what is known, and of events the newest."""
    rows = [_watchdog(view, board), _link(view, board)]
    rows += [_outputs(view, board), _firmware(view, board)]
    first, *more = wrap(_state(view, board), view.width - _LABEL)
    lines = [line(first), *(line(" " * _LABEL, row) for row in more)]
    lines += [line(row) for row in rows if row]
    lines += [line(row) for row in wrap(_update(view, board), view.width) if row]
    return [*lines, *_events(view, board, events)]


def _state(view: View, board: Board) -> str:
    words = view.words
    now = view.live.board_state if view.live is not None else board.state
    state = words.or_else(f"board.state_{now}", view.foreign(now))
    text = words("board.board", f"{state}{words('board.simulated') if board.simulated else ''}")
    return f"{text}: {view.foreign(board.problem)}" if board.problem else text


def _watchdog(view: View, board: Board) -> str:
    left = view.live.dog_left_ms if view.live is not None else None
    if board.inhibited_ms:
        return view.words("board.inhibited", figures.duration(board.inhibited_ms))
    if left is None or not board.timeout_ms:
        return ""
    cycles = board.link.power_cycles if board.link is not None else 0
    return view.words(
        "board.dog", left=f"{left / 1000:.1f}", of=f"{board.timeout_ms / 1000:g}", cycles=cycles
    )


def _link(view: View, board: Board) -> str:
    found = board.link
    if found is None or not found.samples:
        return ""
    ppm = f"{found.clock_ppm:+.0f}" if found.clock_ppm is not None else figures.UNKNOWN
    rtt = f"{found.rtt_p99_ms:g}" if found.rtt_p99_ms is not None else figures.UNKNOWN
    return view.words("board.link", lost=found.lost, bad=found.bad, rtt=rtt, ppm=ppm)


def _outputs(view: View, board: Board) -> str:
    known = [one for one in board.outputs if one.now_pct is not None or one.left_ms]
    shown = [_output(view, one) for one in known]
    return view.words("board.outputs", ", ".join(shown)) if shown else ""


def _output(view: View, one: Output) -> str:
    """Its duty, where it goes by itself, and when, if the box drives it."""
    now = figures.UNKNOWN if one.now_pct is None else f"{one.now_pct:g}"
    safe = figures.UNKNOWN if one.safe_pct is None else f"{one.safe_pct:g}"
    name = view.foreign(one.name)
    if one.left_ms:
        left = figures.duration(one.left_ms)
        return view.words("board.output_driven", name=name, now=now, safe=safe, left=left)
    return view.words("board.output", name=name, now=now, safe=safe)


def _firmware(view: View, board: Board) -> str:
    if not board.firmware:
        return ""
    cause = view.foreign(board.reset_cause) or figures.UNKNOWN
    text = view.words("board.firmware", view.foreign(board.firmware), cause)
    slots = [_slot(view, one) for one in board.slots]
    return f"{text}; {', '.join(slots)}" if slots else text


def _slot(view: View, one: FirmwareSlot) -> str:
    state = view.words.or_else(f"board.slot_{one.state}", view.foreign(one.state))
    version = view.foreign(one.version)
    return view.words("board.slot", slot=view.foreign(one.slot), version=version, state=state)


def _update(view: View, board: Board) -> str:
    """How far new firmware is, or how it ended."""
    one = board.update
    if one is None:
        return ""
    phase = view.words.or_else(f"board.phase_{one.phase}", view.foreign(one.phase))
    text = view.words("board.update", version=view.foreign(one.version), phase=phase)
    if one.phase in ("head", "files"):
        share = one.done / one.total if one.total else None
        return f"{text} {figures.bar(share, _BAR)}"
    return f"{text}: {view.foreign(one.problem)}" if one.problem else text


def _events(view: View, board: Board, most: int) -> list[Line]:
    lines = []
    for place, one in enumerate(board.events[:most]):
        word = view.words.or_else(f"board.event_{one.code}", view.foreign(one.code))
        title = view.words("board.events") if place == 0 else ""
        lines.append(line(f"{pad(title, 9)}{moments.shown(one.at_ms)} {word}"))
    return lines
