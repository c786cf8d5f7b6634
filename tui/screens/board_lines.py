"""What the board says of itself, line by line: watchdog, line, outputs, firmware, events. Pure."""

from appliance.frames import Board
from tui import figures, moments
from tui.cells import pad
from tui.lines import Line, line
from tui.view import View

EVENTS = 5


def told(view: View, board: Board) -> list[Line]:
    """The lines below the sensors; only what is known."""
    rows = [_state(view, board), _watchdog(view, board), _link(view, board)]
    rows += [_outputs(view, board), _firmware(view, board)]
    lines = [line(row) for row in rows if row]
    return [*lines, *_events(view, board)]


def _state(view: View, board: Board) -> str:
    words = view.words
    now = view.live.board_state if view.live is not None else board.state
    state = words.or_else(f"board.state_{now}", view.foreign(now))
    text = words("board.board", f"{state}{words('board.simulated') if board.simulated else ''}")
    return f"{text}: {view.foreign(board.problem)}" if board.problem else text


def _watchdog(view: View, board: Board) -> str:
    left = view.live.dog_left_ms if view.live is not None else None
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
    shown = [
        view.words(
            "board.output",
            name=view.foreign(one.name),
            now=figures.UNKNOWN if one.now_pct is None else f"{one.now_pct:g}",
            safe=figures.UNKNOWN if one.safe_pct is None else f"{one.safe_pct:g}",
        )
        for one in board.outputs
        if one.now_pct is not None
    ]
    return view.words("board.outputs", ", ".join(shown)) if shown else ""


def _firmware(view: View, board: Board) -> str:
    if not board.firmware:
        return ""
    cause = view.foreign(board.reset_cause)
    return view.words("board.firmware", view.foreign(board.firmware), cause)


def _events(view: View, board: Board) -> list[Line]:
    lines = []
    for place, one in enumerate(board.events[:EVENTS]):
        word = view.words.or_else(f"board.event_{one.code}", view.foreign(one.code))
        title = view.words("board.events") if place == 0 else ""
        lines.append(line(f"{pad(title, 9)}{moments.shown(one.at_ms)} {word}"))
    return lines
