"""`steelyard status`: the box on one screen, from the same functions that draw the console."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.commands.configured import config_option
from appliance.commands.reaching import Reached, key_option, reach, read_key, url_option

if TYPE_CHECKING:
    from appliance.commands.listening import Unheard
    from appliance.frames import Frame
    from tui.lines import Line
    from tui.past import Past
    from tui.view import View

_EVERY_S = 0.5
"""Between two drawings of --watch; a slow link likes it too."""
_LINE_EVERY_S = 1.0
_RETRIES_S = (1.0, 2.0, 3.0, 5.0)
_WIDTHS = (60, 119)
_ROWS_BESIDE_KEYS = 20
_ROLES = {"bold": "1", "dim": "2", "alarm1": "1;31", "alarm2": "1;33", "alarm3": "1"}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line asked for."""

    at: Reached
    key: str
    as_json: bool
    line: bool
    lang: str

    def query(self, once: bool) -> str:
        frames = "live" if self.as_json or self.line else "live,rows,state"
        return f"frames={frames}" + ("&once=1" if once else "")


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object; unknown is null.")
@click.option("--line", is_flag=True, help="The first line alone.")
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@url_option
@key_option("File with the key. Default: $STEELYARD_ADMIN_KEY.")
@click.option(
    "--cacert",
    "--ca",
    type=click.Path(exists=True),
    help="Certificate of the box's CA.",
)
@click.option("--lang", type=click.Choice(("en", "zh")), help="Default: what the locale says.")
@config_option
def status_command(
    as_json: bool,
    line: bool,
    watch: bool,
    url: str | None,
    key_file: Path | None,
    cacert: str | None,
    lang: str | None,
    file: Path | None,
) -> int:
    """Show how the box is. Exit code: 0 calm; 1 degraded, or an alarm [!2] or [!3]; 2 an alarm [!1]
    or not serving; 3 it cannot be reached; 4 the key is refused."""
    from tui.words import language

    asked = _Asked(
        at=reach(url, cacert, file),
        key=read_key(key_file, "STEELYARD_ADMIN_KEY"),
        as_json=as_json,
        line=line,
        lang=(lang or language(os.environ)) if _utf8() else "en",
    )
    return _watch(asked) if watch else _once(asked)


def _once(asked: _Asked) -> int:
    from appliance.commands.listening import Unheard, listen
    from tui.summary import REFUSED, UNREACHABLE, verdict

    view = _view(asked)
    try:
        for frame in listen(asked.at.url, asked.key, asked.at.cacert, asked.query(once=True)):
            view = _with(view, frame)
        if view.live is None:
            raise Unheard("status.silent", asked.at.url)
    except Unheard as error:
        click.echo(f"steelyard: {_problem(asked, view, error)}", err=True)
        return REFUSED if error.refused else UNREACHABLE
    click.echo(_shown(asked, replace(view, age_s=0.0)))
    return verdict(view.live)


def _watch(asked: _Asked) -> int:
    """Until Ctrl-C, or until the key is refused."""
    from appliance.commands.listening import Refused, Unheard
    from tui.past import Past
    from tui.summary import REFUSED

    view, past, tries = _view(asked), Past(), 0
    while True:
        try:
            for _ in _drawings(asked, view, past):
                tries = 0
            problem = Unheard("link.ended", "")
        except Refused as error:
            click.echo(f"steelyard: {_problem(asked, view, error)}", err=True)
            return REFUSED
        except Unheard as error:
            problem = error
        wait_s = _RETRIES_S[min(tries, len(_RETRIES_S) - 1)]
        tries += 1
        told = view.words("status.lost", _problem(asked, view, problem), f"{wait_s:.0f}")
        click.echo(told, err=True)
        time.sleep(wait_s)


def _drawings(asked: _Asked, view: "View", past: "Past") -> Iterator[None]:
    """Draws what is due while frames come; yields after each frame."""
    from appliance.commands.listening import listen

    drawn_at = -1.0
    every_s = _LINE_EVERY_S if asked.as_json or asked.line else _EVERY_S
    for frame in listen(asked.at.url, asked.key, asked.at.cacert, asked.query(once=False)):
        view = _with(view, frame)
        now = time.monotonic()
        past.add(now, view.live)
        if view.live is not None and now - drawn_at >= every_s and not _waits(asked, view):
            drawn_at = now
            _draw(asked, replace(view, age_s=0.0, past=past.shown))
        yield


def _waits(asked: _Asked, view: "View") -> bool:
    """The first drawing is a whole one."""
    return not (asked.as_json or asked.line) and (view.rows is None or view.state is None)


def _draw(asked: _Asked, view: "View") -> None:
    if sys.stdout.isatty() and not (asked.as_json or asked.line):
        click.echo("\x1b[H\x1b[J", nl=False)
    click.echo(_shown(asked, view))
    sys.stdout.flush()


def _view(asked: _Asked) -> "View":
    from tui.view import View
    from tui.words import Words

    width = shutil.get_terminal_size((80, 24)).columns
    return View(
        width=max(_WIDTHS[0], min(width, _WIDTHS[1])),
        words=Words("zh" if asked.lang == "zh" else "en"),
        ascii=not _utf8(),
        url=asked.at.url,
    )


def _utf8() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()


def _with(view: "View", frame: "Frame") -> "View":
    from appliance.frames import Live, Rows

    if isinstance(frame, Live):
        return replace(view, live=frame, link="ok")
    return replace(view, rows=frame) if isinstance(frame, Rows) else replace(view, state=frame)


def _shown(asked: _Asked, view: "View") -> str:
    import msgspec

    from tui.summary import flat, summary

    assert view.live is not None
    if asked.as_json:
        return msgspec.json.encode(flat(view.live, 1000 * (view.age_s or 0.0))).decode()
    return summary(view) if asked.line else "\n".join((summary(view), *_body(view)))


def _body(view: "View") -> list[str]:
    """The Overview, then the worst alarm if there is one; no blank lines at the end."""
    from tui.frame import alarm_row
    from tui.lines import safe, text_of
    from tui.screens.overview import Overview

    keys = len(view.rows.keys) if view.rows is not None else 0
    whole = replace(view, height=_ROWS_BESIDE_KEYS + keys)
    lines = [safe(row) for row in (*Overview().body(whole), alarm_row(view))]
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    while lines and not text_of(lines[-1]).strip():
        lines.pop()
    return [_painted(row) if colour else text_of(row).rstrip() for row in lines]


def _painted(row: "Line") -> str:
    return "".join(
        f"\x1b[{_ROLES[span.role]}m{span.text}\x1b[0m" if span.role in _ROLES else span.text
        for span in row
    ).rstrip()


def _problem(asked: _Asked, view: "View", error: "Unheard") -> str:
    told = view.words(error.key, *(view.foreign(part) for part in error.told)).strip()
    if asked.at.looked and not error.refused:
        told = f"{told} {view.words('status.looked', view.foreign(asked.at.looked))}"
    return told
