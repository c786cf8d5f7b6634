"""What may be asked of the board on screen 6: lists and questions, then one call."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from appliance.frames import Board, Output
from tui import figures
from tui.screen import Ask, Call, Choose, Effect, Query, Show, Tell
from tui.view import View

IMAGES = Query("/admin/board", 5.0)
"""Which firmware lies ready in the box."""
MINUTES = (1, 5, 10, 15)
SECONDS = (10, 30, 60)
SHARES = (30, 50, 70, 100)
"""Percent of full, for what goes from 0 to 1."""
STEPS = 4
"""An output with more values than this is set in percent."""
OVER = ("done", "refused", "reverted", "failed")

Images = Sequence[Mapping[str, Any]]


def images_of(data: Any) -> tuple[Mapping[str, Any], ...]:
    """From the answer to IMAGES."""
    found = data.get("images", ()) if isinstance(data, dict) else ()
    return tuple(one for one in found if isinstance(one, dict) and isinstance(one.get("name"), str))


def there(view: View) -> bool:
    """Whether there is a board to act on."""
    return view.state is not None and view.state.board.state not in ("none", "lost", "greeting")


# -- H: the watchdog ---------------------------------------------------------------------------


def inhibit(view: View, board: Board) -> Effect:
    """Keep it from acting for some minutes, or let it act again."""
    if board.inhibited_ms:
        return _inhibit(view, 0)
    options = tuple((str(one), view.words("board.minutes", one)) for one in MINUTES)
    title = view.words("board.inhibit_for")
    return Choose(title, options, lambda value: _inhibit(view, int(value)), chosen=1)


def _inhibit(view: View, minutes: int) -> Ask:
    words = view.words
    body = {"minutes": minutes}
    if not minutes:
        call = Call("POST", "/admin/board/inhibit", body, done=words("board.watch_done"))
        return Ask(words("board.watch_title"), (words("board.watch_what"),), call)
    call = Call("POST", "/admin/board/inhibit", body, done=words("board.inhibit_done", minutes))
    lines = (words("board.inhibit_what", minutes), words("board.inhibit_end"))
    return Ask(words("board.inhibit_title"), lines, call)


# -- E: outputs --------------------------------------------------------------------------------


def drive(view: View, board: Board) -> Effect:
    """An output, its value, and for how long."""
    outputs = {one.name: one for one in board.outputs}
    if not outputs:
        return Tell(view.words("board.no_outputs"))
    options = tuple((name, _told(view, one)) for name, one in outputs.items())
    return Choose(
        view.words("board.which_output"), options, lambda name: _value(view, outputs[name])
    )


def _told(view: View, one: Output) -> str:
    now = figures.UNKNOWN if one.now_pct is None else f"{one.now_pct:g}"
    return f"{view.foreign(one.name)}  {now} %"


def _value(view: View, one: Output) -> Choose:
    highest = one.highest or 1.0
    options: list[tuple[str, str]]
    if 1 < highest < STEPS:
        options = [(str(step), str(step)) for step in range(int(highest) + 1)]
    elif one.now_pct is None:
        options = [("0", view.words("board.off")), ("1", view.words("board.on"))]
    else:
        options = [(str(highest * share / 100), f"{share} %") for share in SHARES]
    options.append(("", view.words("board.to_safe")))
    title = view.words("board.output_value", view.foreign(one.name))
    return Choose(title, tuple(options), lambda value: _time(view, one, value))


def _time(view: View, one: Output, value: str) -> Effect:
    if not value:
        return _drive(view, one, None, 0)
    options = tuple((str(seconds), f"{seconds} s") for seconds in SECONDS)
    title = view.words("board.output_time", view.foreign(one.name))
    return Choose(
        title, options, lambda seconds: _drive(view, one, float(value), int(seconds)), chosen=1
    )


def _drive(view: View, one: Output, value: float | None, seconds: int) -> Ask:
    words, name = view.words, view.foreign(one.name)
    body: dict[str, Any] = {"value": value}
    lines: tuple[str, ...] = (words("board.output_safe", name),)
    if value is not None:
        body["seconds"] = seconds
        lines = (words("board.output_what", name, f"{value:g}", seconds), words("board.output_end"))
    path = f"/admin/board/outputs/{quote(one.name, safe='')}"
    call = Call("POST", path, body, done=words("board.output_done", name))
    return Ask(words("board.output_title", name), lines, call)


# -- U: firmware -------------------------------------------------------------------------------


def update(view: View, board: Board, images: Images) -> Effect:
    """One of the images that lie ready."""
    words = view.words
    if board.update is not None and board.update.phase not in OVER:
        return Tell(words("board.update_runs", view.foreign(board.update.version)))
    if not images:
        return Show(words("board.which_image"), (words("board.no_images"),))
    known = {str(one["name"]): one for one in images}
    options = tuple((name, _image(view, one)) for name, one in known.items())
    return Choose(
        words("board.which_image"), options, lambda name: _bring(view, board, known[name])
    )


def _image(view: View, one: Mapping[str, Any]) -> str:
    about = one.get("version") or one.get("problem") or figures.UNKNOWN
    return f"{view.foreign(str(one['name']))}  {view.foreign(str(about))}"


def _bring(view: View, board: Board, one: Mapping[str, Any]) -> Effect:
    words, version = view.words, str(one.get("version") or "")
    if not version:
        return Show(words("board.which_image"), (view.foreign(str(one.get("problem", ""))),))
    call = Call(
        "POST",
        "/admin/board/update",
        {"name": one["name"]},
        done=words("board.update_begun", view.foreign(version)),
    )
    lines = (
        words("board.update_what", view.foreign(version), view.foreign(board.firmware)),
        words("board.update_trial"),
    )
    return Ask(words("board.update_title"), lines, call, typed=version)
