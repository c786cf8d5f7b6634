"""How roles look. What a text says never hangs on it: with NO_COLOR nothing is lost."""

from collections.abc import Mapping

from rich.style import Style

from tui.lines import Role

_TERMINAL: Mapping[Role, Style] = {
    "plain": Style(),
    "dim": Style(dim=True),
    "bold": Style(bold=True),
    "alarm1": Style(color="red", bold=True),
    "alarm2": Style(color="yellow"),
    "alarm3": Style(bold=True),
    "select": Style(reverse=True),
}
_MONO: Mapping[Role, Style] = {
    **_TERMINAL,
    "alarm1": Style(bold=True, underline=True),
    "alarm2": Style(bold=True),
}


def _toned(paper: str, ink: str, faint: str, red: str, yellow: str) -> Mapping[Role, Style]:
    """A theme with colours of its own, whatever the terminal's are."""
    plain = Style(color=ink, bgcolor=paper)
    return {
        "plain": plain,
        "dim": Style(color=faint, bgcolor=paper),
        "bold": plain + Style(bold=True),
        "alarm1": Style(color=red, bgcolor=paper, bold=True),
        "alarm2": Style(color=yellow, bgcolor=paper),
        "alarm3": plain + Style(bold=True),
        "select": Style(color=paper, bgcolor=ink),
    }


THEMES: Mapping[str, Mapping[Role, Style]] = {
    "terminal": _TERMINAL,
    "mono": _MONO,
    "dark": _toned("#101418", "#d8dce0", "#7a8288", "#ff6b60", "#e8c050"),
    "light": _toned("#fbfaf7", "#1c2024", "#80868c", "#b81c14", "#8a6200"),
}
"""`terminal` takes the terminal's own colours."""
