"""The steps, in order: what each asks, what it takes, and what stands there at first."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tui.assistant import checks
from tui.assistant.checks import Wrong
from tui.assistant.machine import BOARD, Facts, Key

Answers = dict[str, str]
"""By the name of the field."""
LAN = "0.0.0.0"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Option:
    """One of several to choose from: its value, and the key and the arguments of its word."""

    value: str
    word: str
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """One question. With options one is chosen, else a text is typed."""

    name: str
    options: tuple[Option, ...] = ()
    secret: bool = False
    """Never shown, and not trimmed."""
    most: int = 128
    """Signs it takes."""


@dataclass(frozen=True, slots=True)
class Step:
    """`fields` may hang on what was answered so far. `check` raises Wrong with the field."""

    name: str
    fields: Callable[[Mapping[str, str], Facts], Iterator[Field]]
    check: Callable[[Mapping[str, str], Facts], object] = lambda given, facts: None


def first_answers(facts: Facts, lang: str = "en") -> Answers:
    """Those that change nothing, but for what a box cannot do without."""
    static = facts.static
    names = [one.name for one in facts.interfaces]
    return {
        "lang": lang if facts.chinese else "en",
        "net.how": "keep",
        "net.interface": facts.interface if facts.interface in names else (*names, "")[0],
        "net.address": static.address if static else "",
        "net.gateway": static.gateway if static else "",
        "net.dns": " ".join(static.dns) if static else "",
        "time.how": "keep",
        "time.server": facts.time_server,
        "time.now": facts.clock,
        "login.first": "",
        "login.again": "",
        "serve.who": facts.serves or LOOPBACK,
        "serve.names": " ".join(facts.names),
        "serve.app": "",
        "admin.how": "make" if facts.keys is not None and not facts.has_key("admin") else "keep",
        "admin.name": "operator",
        "board.how": facts.board or (BOARD if facts.board_seen else ""),
        "model.name": facts.model,
    }


# -- what is asked ---------------------------------------------------------------------------------


def _language(given: Mapping[str, str], facts: Facts) -> Iterator[Field]:
    chinese = (Option("zh", "assist.lang.zh"),) if facts.chinese else ()
    yield Field("lang", (Option("en", "assist.lang.en"), *chinese))


def _network(given: Mapping[str, str], facts: Facts) -> Iterator[Field]:
    static = facts.static
    now = Option("keep", "assist.net.keep", (static.address if static else "DHCP",))
    if not facts.interfaces:
        yield Field("net.how", (now,))
        return
    how = (now, Option("dhcp", "assist.net.dhcp"), Option("static", "assist.net.static"))
    yield Field("net.how", how)
    if given["net.how"] == "keep":
        return
    links = {True: "assist.net.up", False: "assist.net.down", None: "assist.net.plain"}
    options = (Option(one.name, links[one.up], (one.name,)) for one in facts.interfaces)
    yield Field("net.interface", tuple(options))
    if given["net.how"] == "static":
        yield from (Field("net.address"), Field("net.gateway"), Field("net.dns"))


def _time(given: Mapping[str, str], facts: Facts) -> Iterator[Field]:
    now = (Option("keep", "assist.time.keep", (facts.clock, facts.time_server or "-")),)
    how = (*now, Option("server", "assist.time.server"), Option("hand", "assist.time.hand"))
    yield Field("time.how", how)
    if given["time.how"] != "keep":
        yield Field("time.server" if given["time.how"] == "server" else "time.now")


def _login(given: Mapping[str, str], facts: Facts) -> Iterator[Field]:
    yield from (Field("login.first", secret=True), Field("login.again", secret=True))


def _serve(given: Mapping[str, str], facts: Facts) -> Iterator[Field]:
    hosts = dict.fromkeys((facts.serves or LOOPBACK, LOOPBACK, LAN))
    words = {LOOPBACK: "assist.serve.here", LAN: "assist.serve.all"}
    yield Field(
        "serve.who",
        tuple(Option(one, words.get(one, "assist.serve.other"), (one,)) for one in hosts),
    )
    if given["serve.who"] != LOOPBACK:
        yield from (Field("serve.names", most=400), Field("serve.app", most=64))


def _admin(given: Mapping[str, str], facts: Facts) -> Iterator[Field]:
    there = [key.name for key in facts.keys or () if "admin" in key.scopes]
    keep = Option("keep", "assist.admin.keep", (", ".join(there) or "-",))
    yield Field("admin.how", (keep, Option("make", "assist.admin.make")))
    if given["admin.how"] == "make":
        yield Field("admin.name", most=64)


def _board(given: Mapping[str, str], facts: Facts) -> Iterator[Field]:
    seen = "assist.board.seen" if facts.board_seen else "assist.board.not_seen"
    devices = [BOARD] if facts.board in ("", BOARD) else [facts.board, BOARD]
    used = (Option(one, seen if one == BOARD else "assist.board.other", (one,)) for one in devices)
    yield Field("board.how", (Option("", "assist.board.none"), *used))


def _model(given: Mapping[str, str], facts: Facts) -> Iterator[Field]:
    names = (facts.model,) if facts.model_fixed else facts.models
    if names and names[0]:
        yield Field("model.name", tuple(Option(one, "assist.plain", (one,)) for one in names))


def _nothing(given: Mapping[str, str], facts: Facts) -> Iterator[Field]:
    return iter(())


# -- what is taken ---------------------------------------------------------------------------------


def _check_network(given: Mapping[str, str], facts: Facts) -> None:
    if given["net.how"] == "keep":
        return
    if given["net.interface"] not in [one.name for one in facts.interfaces]:
        raise Wrong("interface", given["net.interface"], field="net.interface")
    if given["net.how"] == "static":
        checks.static(given["net.address"], given["net.gateway"], given["net.dns"])


def _check_time(given: Mapping[str, str], facts: Facts) -> None:
    if given["time.how"] == "server":
        checks.time_server(given["time.server"])
    elif given["time.how"] == "hand":
        checks.moment(given["time.now"])


def _check_login(given: Mapping[str, str], facts: Facts) -> None:
    checks.password(given["login.first"], given["login.again"])


def _check_serve(given: Mapping[str, str], facts: Facts) -> None:
    """The box does not start for others without a key that may ask."""
    if given["serve.who"] == LOOPBACK:
        return
    checks.names(given["serve.names"])
    if given["serve.app"].strip():
        _new(given["serve.app"], "serve.app", facts)
    elif not facts.has_key("infer"):
        raise Wrong("needs_app", field="serve.app")


def _check_admin(given: Mapping[str, str], facts: Facts) -> None:
    if given["admin.how"] == "make":
        name = _new(given["admin.name"], "admin.name", facts)
        if given["serve.who"] != LOOPBACK and name == given["serve.app"].strip():
            raise Wrong("taken", name, field="admin.name")


def _new(text: str, field: str, facts: Facts) -> str:
    name = checks.key_name(text, field)
    if name in [key.name for key in facts.keys or ()]:
        raise Wrong("taken", name, field=field)
    return name


STEPS = (
    Step("language", _language),
    Step("network", _network, _check_network),
    Step("time", _time, _check_time),
    Step("login", _login, _check_login),
    Step("serve", _serve, _check_serve),
    Step("admin", _admin, _check_admin),
    Step("board", _board),
    Step("model", _model),
    Step("summary", _nothing),
)


def first_wrong(given: Mapping[str, str], facts: Facts) -> tuple[int, Wrong] | None:
    """The first step that cannot be taken as it stands."""
    for at, step in enumerate(STEPS):
        try:
            step.check(given, facts)
        except Wrong as wrong:
            return at, wrong
    return None


def foreseen(given: Mapping[str, str], facts: Facts) -> Facts:
    """The machine as it would be afterwards. All steps were checked."""
    how = given["net.how"]
    found = replace(
        facts,
        interface=facts.interface if how == "keep" else given["net.interface"],
        password=facts.password or bool(given["login.first"]),
        serves=given["serve.who"],
        board=given["board.how"],
        model=given["model.name"],
    )
    if how != "keep":
        typed = (given["net.address"], given["net.gateway"], given["net.dns"])
        found = replace(found, static=checks.static(*typed) if how == "static" else None)
    if given["time.how"] == "server":
        found = replace(found, time_server=given["time.server"].strip())
    made: tuple[Key, ...] = ()
    if given["serve.who"] != LOOPBACK:
        found = replace(found, names=checks.names(given["serve.names"]))
        made += (Key(given["serve.app"].strip(), ("infer",)),) if given["serve.app"].strip() else ()
    if given["admin.how"] == "make":
        made += (Key(given["admin.name"].strip(), ("admin",)),)
    return replace(found, keys=(*(facts.keys or ()), *made)) if made else found
