"""Keys and commands of the console itself, the same on every screen."""

from collections.abc import Callable, Mapping

from appliance.frames import Alarm
from tui.boxes import AlarmsBox, Command, ConfirmBox, PaletteBox
from tui.cells import foreign
from tui.link import Link
from tui.place import Place
from tui.screen import Call, Choose, Effect, Screen
from tui.screens import overview
from tui.theme import THEMES
from tui.trust import Shown
from tui.view import View

SNOOZE_MIN = (30, 120, 480)
WALK_S = 10
"""What `[` and `]` walk at a time."""

# -- alarms ----------------------------------------------------------------------------------------


def alarms(desk: Place) -> None:
    """`0`: all of them, worst first."""
    state, words = desk.view().state, desk.words
    found = sorted(state.alarms if state else (), key=lambda one: (one.seen, one.prio))
    keys = (
        ("Enter", words("desk.goto")),
        ("m", words("desk.seen")),
        ("z", words("desk.snooze")),
        ("Esc", words("desk.close")),
    )
    box = AlarmsBox(
        words("desk.alarms"),
        found,
        keys,
        words("desk.no_alarms"),
        go=lambda alarm: desk.go(alarm.screen),
        seen=lambda alarm: _mark(desk, alarm),
        snooze=lambda alarm: _snooze(desk, alarm),
    )
    desk.open(box)


def seen(desk: Place) -> None:
    """`m`: the worst alarm was seen."""
    if (alarm := _worst(desk)) is not None:
        _mark(desk, alarm)


def snooze(desk: Place) -> None:
    """`z`: the worst alarm is left alone for some time."""
    if (alarm := _worst(desk)) is not None:
        _snooze(desk, alarm)


def _worst(desk: Place) -> Alarm | None:
    live = desk.view().live
    worst = live.worst if live is not None else None
    if worst is None or worst.seen:
        desk.say(desk.words("desk.no_unseen"))
        return None
    return worst


def _mark(desk: Place, alarm: Alarm) -> None:
    if may_act(desk):
        path = f"/admin/alarms/{alarm.id}/seen"
        desk.perform(Call("POST", path, done=desk.words("desk.marked")))


def _snooze(desk: Place, alarm: Alarm) -> None:
    words = desk.words

    def chosen(minutes: str) -> None:
        desk.prompt(words("desk.reason"), lambda reason: because(int(minutes), reason))

    def because(minutes: int, reason: str) -> Effect | None:
        if not reason:
            desk.say(words("desk.no_reason"))
            return None
        path = f"/admin/alarms/{alarm.id}/snooze"
        body = {"minutes": minutes, "reason": reason[:200]}
        return Call("POST", path, body, done=words("desk.snoozed"))

    if may_act(desk):
        options = tuple((str(one), words("desk.minutes", one)) for one in SNOOZE_MIN)
        desk.perform(Choose(words("desk.snooze_for"), options, chosen))


def may_act(desk: Place) -> bool:
    """Whether actions are allowed now; says why not."""
    view = desk.view()
    if not view.acts:
        desk.say(desk.words(refusal(view)))
    return view.acts


def refusal(view: View) -> str:
    """Why capitals do not act now: a key of the catalogue."""
    if view.read_only:
        return "desk.not_read_only"
    return "desk.not_frozen" if view.link == "frozen" else "desk.not_lost"


# -- capitals that mean the same everywhere --------------------------------------------------------


def capital(desk: Place, key: str) -> Effect | None:
    """`D` and `H`, where the screen has no use of its own for them."""
    view = desk.view()
    if view.live is None:
        return None
    if key == "D":
        return overview.drain(view, view.live)
    return overview.hold(view, view.live) if key == "H" else None


# -- the palette -----------------------------------------------------------------------------------


def palette(desk: Place) -> None:
    """`^P`: everything, to be found by typing."""
    words = desk.words
    keys = (("Enter", words("desk.run")), ("Esc", words("desk.close")))
    desk.open(PaletteBox(words("desk.palette"), _commands(desk), keys))


def _commands(desk: Place) -> list[Command]:
    words = desk.words
    hints = desk.screen.hints(desk.view())
    found = [_of_hint(desk, key, word) for key, word in hints]
    found += [_of_screen(desk, screen) for screen in desk.screens]
    named = [one for one in _NAMED if one[0] not in dict(hints)]
    found += [Command(f"{key}  {words(word)}", _run(desk, run)) for key, word, run in named]
    found += [Command(f"{words('desk.theme')} {name}", _theme(desk, name)) for name in THEMES]
    return [*found, *_own(desk)]


def _own(desk: Place) -> list[Command]:
    words, link = desk.words, desk.link
    found = [
        Command(words("desk.language"), lambda: language(desk)),
        Command(words("desk.operator"), lambda: _operator(desk)),
        Command(words("desk.url"), lambda: _url(desk)),
        Command(words("desk.ascii"), lambda: _ascii(desk)),
        Command(words("desk.retry"), link.retry),
    ]
    if link.shown is not None:
        found.append(Command(words("desk.trust"), lambda: trust(desk, link)))
    return found


def _of_hint(desk: Place, key: str, word: str) -> Command:
    pressed = {"Enter": "enter", "Tab": "tab", "Esc": "escape"}.get(key, key)
    return Command(f"{key}  {word}", lambda: desk.press(pressed))


def _of_screen(desk: Place, screen: Screen) -> Command:
    number, name = screen.number, desk.words(f"screen.{screen.name}")
    return Command(desk.words("desk.screen", number, name), lambda: desk.go(number))


def _run(desk: Place, run: Callable[[Place], None]) -> Callable[[], None]:
    return lambda: run(desk)


def _theme(desk: Place, name: str) -> Callable[[], None]:
    def take() -> None:
        desk.settings.theme = name

    return take


def language(desk: Place) -> None:
    """English and Chinese take turns."""
    desk.settings.lang = "en" if desk.settings.lang == "zh" else "zh"


def _ascii(desk: Place) -> None:
    desk.settings.ascii = not desk.settings.ascii


def _operator(desk: Place) -> None:
    def take(name: str) -> None:
        desk.name(name)

    desk.prompt(desk.words("desk.who"), take, desk.settings.operator)


def _url(desk: Place) -> None:
    def take(url: str) -> None:
        if url and url != desk.link.url:
            desk.host.connect(url)

    desk.prompt(desk.words("desk.address"), take, desk.link.url)


# -- the certificate -------------------------------------------------------------------------------


def trust(desk: Place, link: Link) -> None:
    """Show the fingerprint; only `y` takes the certificate."""
    shown, words = link.shown, desk.words
    if shown is None:
        return
    half = (len(shown.fingerprint) + 1) // 2
    lines = (
        *((words("trust.changed"), "") if shown.changed else ()),
        words("trust.1", foreign(shown.box)),
        "",
        f"  {shown.fingerprint[:half]}",
        f"  {shown.fingerprint[half:]}",
        "",
        words("trust.2"),
    )
    keys = (("y", words("ask.yes")), ("Esc", words("ask.no")))
    box = ConfirmBox(words("trust.title"), lines, lambda: _believe(desk, link, shown), keys)
    desk.open(box)


def _believe(desk: Place, link: Link, shown: Shown) -> None:
    async def take() -> None:
        try:
            await link.believe(shown)
            desk.say(desk.words("trust.kept", foreign(shown.box)))
        except OSError as error:
            desk.say(desk.words("trust.not_kept", error.strerror))

    desk.host.start(take())


# -- keys ------------------------------------------------------------------------------------------


def find(desk: Place) -> None:
    """`/`: a filter, in force while it is typed."""
    if desk.screen.table is None:
        desk.say(desk.words("desk.no_filter"))
    else:
        desk.filtering = True


def leave(desk: Place) -> None:
    """`q`: the console ends; nothing on the box does."""
    desk.host.leave()


KEYS: Mapping[str, Callable[[Place], None]] = {
    "0": alarms,
    "/": find,
    "?": lambda desk: desk.help(),
    "f1": lambda desk: desk.help(),
    "p": lambda desk: desk.freeze(),
    "[": lambda desk: desk.walk(WALK_S),
    "]": lambda desk: desk.walk(-WALK_S),
    "m": seen,
    "z": snooze,
    "q": leave,
    "ctrl+c": leave,
    "ctrl+p": palette,
}
"""Keys that no screen gets, unless a text field has the focus."""

_NAMED = (
    ("0", "key.alarms", alarms),
    ("/", "key.filter", find),
    ("p", "key.freeze", lambda desk: desk.freeze()),
    ("m", "key.seen", seen),
    ("z", "key.snooze", snooze),
    ("D", "key.drain", lambda desk: desk.press("D")),
    ("H", "key.hold", lambda desk: desk.press("H")),
    ("?", "key.help", lambda desk: desk.help()),
    ("q", "key.quit", leave),
)
