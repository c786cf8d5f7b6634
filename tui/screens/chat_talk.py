"""How a conversation is drawn: who said what, what it took, how it ended. Answers are text of
others: whatever is in them is shown, nothing of it acts."""

from tui import figures
from tui.cells import cells, pad
from tui.conversation import Exchange, Forecast, Kept
from tui.lines import Line, Role, Span, line, wrap
from tui.view import View

_LABEL = 5
Key = tuple[object, ...]


class Talk:
    """Draws exchanges; those that do not change any more are laid out once."""

    def __init__(self) -> None:
        self._laid: dict[int, tuple[Key, list[Line]]] = {}

    def draw(self, exchanges: list[Exchange], view: View) -> list[Line]:
        rows: list[Line] = []
        for at, exchange in enumerate(exchanges):
            rows += self._exchange(at, exchange, view)
        return rows

    def _exchange(self, at: int, exchange: Exchange, view: View) -> list[Line]:
        lost = exchange.running and view.link == "lost"
        key: Key = (view.width, view.words.lang, view.ascii, exchange.phase, exchange.row, lost)
        key = (*key, len(exchange.answer_ids), len(exchange.text), exchange.read_tok)
        key = (*key, exchange.forecast)
        kept = self._laid.get(at)
        if kept is None or kept[0] != key:
            kept = self._laid[at] = (key, _exchange(exchange, view, lost))
        return kept[1]


def _exchange(exchange: Exchange, view: View, lost: bool) -> list[Line]:
    words = view.words
    rows = _said(words("chat.you"), exchange.prompt, view, "dim")
    if exchange.text:
        rows += _said(words("chat.box"), exchange.text, view, "plain")
    facts = [] if lost else _facts(exchange, view)
    return [*rows, *_ended(exchange, view, lost), *facts, ()]


def _said(who: str, text: str, view: View, role: Role) -> list[Line]:
    """A speaker's label, and the text beside it."""
    rows: list[Line] = []
    for part in text.split("\n"):
        for row in wrap(view.foreign(part), view.width - _LABEL - 1):
            rows.append(line(Span(pad("" if rows else who, _LABEL), "bold"), Span(row, role)))
    return rows


def _ended(exchange: Exchange, view: View, lost: bool) -> list[Line]:
    """What is to be said of an answer that is not whole."""
    words = view.words
    if lost:
        return lines_of(words("chat.cut_lost"), view.width, "bold")
    if exchange.phase == "refused":
        text = words("chat.refused", view.foreign(exchange.problem))
    elif exchange.phase == "cut":
        text = words("chat.cut", view.foreign(exchange.problem))
    elif exchange.phase == "stopped":
        text = words("chat.stopped")
    else:
        return []
    return lines_of(text.strip(), view.width, "bold")


def _facts(exchange: Exchange, view: View) -> list[Line]:
    """Tokens, times, digest, ledger row; while it runs, how far it is."""
    if exchange.running:
        return lines_of(_progress(exchange, view), view.width, "dim")
    rows: list[Line] = []
    for parts in (_numbers(exchange, view), _proof(exchange, view)):
        if text := "  ".join(part for part in parts if part):
            rows += lines_of(text, view.width, "dim")
    return rows


def _progress(exchange: Exchange, view: View) -> str:
    read, total = exchange.read_tok
    if exchange.phase != "writing":
        return view.words(f"chat.{exchange.phase}", read, total)
    told = view.words("chat.writing", len(exchange.answer_ids))
    return f"{told}  {_forecast(exchange.forecast, view)}".rstrip()


def _forecast(told: Forecast | None, view: View) -> str:
    return view.words("chat.forecast", told.p50, told.p10, told.p90) if told is not None else ""


def _numbers(exchange: Exchange, view: View) -> list[str]:
    words, tokens = view.words, exchange.answer_tok
    if tokens is None:
        return []
    cached = words("chat.cached", exchange.cached_tok) if exchange.cached_tok else ""
    ttft = f"TTFT {figures.duration(exchange.ttft_ms)}" if exchange.ttft_ms is not None else ""
    total = figures.duration(exchange.total_ms) if exchange.total_ms is not None else ""
    return [
        words("chat.prompt_tok", figures.count(exchange.prompt_tok)) + cached,
        words("chat.answer_tok", figures.count(tokens)),
        _forecast(exchange.foretold, view),
        words.or_else(f"chat.finish_{exchange.finish}", view.foreign(exchange.finish)),
        _kept(exchange.kept, view),
        ttft,
        total,
        _rate(exchange),
    ]


def _kept(kept: Kept | None, view: View) -> str:
    """What became of the budget."""
    if kept is None:
        return ""
    how = view.words.or_else(f"chat.ended_{kept.ended}", view.foreign(kept.ended))
    return view.words("chat.kept" if kept.within else "chat.missed", kept.tokens, how)


def _rate(exchange: Exchange) -> str:
    """Tokens a second, after the first one."""
    if exchange.ttft_ms is None or exchange.total_ms is None or not exchange.answer_tok:
        return ""
    ms = exchange.total_ms - exchange.ttft_ms
    return f"{figures.number((exchange.answer_tok - 1) * 1e3 / ms)} t/s" if ms > 0 else ""


def _proof(exchange: Exchange, view: View) -> list[str]:
    words, digest = view.words, exchange.digest
    if not digest and not exchange.id:
        return []
    verdict = {True: "chat.matches", False: "chat.differs", None: "chat.unchecked"}
    short = f"{digest[:4]}..{digest[-2:]}" if len(digest) > 8 else digest
    told = words(verdict[exchange.matches], view.foreign(short)) if digest else ""
    row = words("chat.row", exchange.row) if exchange.row is not None else ""
    return [told, row, view.foreign(exchange.id)]


def lines_of(text: str, width: int, role: Role = "plain") -> list[Line]:
    """Clean text in as many rows as it takes, a blank before each."""
    rows = wrap(text, width - 1) if cells(text) >= width else [text]
    return [line(Span(f" {row}", role)) for row in rows]
