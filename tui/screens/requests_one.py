"""One open request: live at first, then ended, with its tokens. Keeps no connection."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from appliance.frames import RequestRow
from tui.heat import Token
from tui.lines import Line, Span, fill
from tui.screen import Query
from tui.screens import requests_detail as detail
from tui.screens import requests_ended as ended
from tui.screens.requests_rows import Ended
from tui.view import View

POLL_S = 1.0
"""Until the ledger has what has just ended."""
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10}


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Of one prompt, as GET /admin/requests/{id}/tokens tells them."""

    seq: int
    kept: bool
    prompt: tuple[tuple[int, str], ...] = ()
    choices: tuple[tuple[tuple[int, str], ...], ...] = ()


class One:
    """The request under the cursor when Enter was pressed."""

    def __init__(self, row: RequestRow | Ended) -> None:
        self.row = row
        self.gone = False
        """It was live, and the frames have it no more."""
        self.error = ""
        self._top = 0
        self._tokens: Tokens | None = None
        self._logprobs: Mapping[int, Mapping[int, float]] | None = None
        self._drawn: tuple[object, list[Line]] = (None, [])

    @property
    def told(self) -> Ended | None:
        """Its final row, once it has one."""
        return self.row if isinstance(self.row, Ended) else None

    @property
    def ended(self) -> bool:
        return self.told is not None or self.gone

    def follow(self, rows: Sequence[RequestRow]) -> None:
        """What the frames say of it now."""
        if not isinstance(self.row, Ended):
            name = self.row.id
            found = next((row for row in rows if row.id == name), None)
            self.row, self.gone = found or self.row, found is None

    # -- REST --------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return quote(self.row.id, safe="", errors="replace")

    def queries(self) -> tuple[Query, ...]:
        if self.told is None:
            return (self._of_row,) if self.gone else ()
        return () if self.told.audits else (self._of_tokens, self._of_audits)

    @property
    def _of_row(self) -> Query:
        return Query(f"/admin/requests/{self._name}", POLL_S)

    @property
    def _of_tokens(self) -> Query:
        return Query(f"/admin/requests/{self._name}/tokens", 0)

    @property
    def _of_audits(self) -> Query:
        return Query(f"/v1/audit/{self._name}", 0)

    def receive(self, query: Query, data: Any, error: str | None) -> bool:
        """Whether the answer was for this request."""
        if query not in (self._of_row, self._of_tokens, self._of_audits):
            return False
        if query == self._of_audits:
            # Without it nothing is missing but the heat.
            self._logprobs = logprobs_of(data, self.row.id) if error is None else {}
        elif error is not None:
            self.error = error
        elif query == self._of_row:
            self._take_row(data)
        else:
            self._take_tokens(data)
        return True

    def _take_row(self, data: Any) -> None:
        entries = msgspec.convert(data["entries"], tuple[Ended, ...])
        self.row = next((row for row in entries if row.id == self.row.id), self.row)

    def _take_tokens(self, data: Any) -> None:
        found = msgspec.convert(data["requests"], tuple[Tokens, ...])
        seq = self.told.seq if self.told is not None else 0
        self.error = ""
        self._tokens = next((one for one in found if one.seq == seq), None)

    def replayed(self, data: Any) -> None:
        """The answer to its replay."""
        report = data.get("report") if isinstance(data, Mapping) else None
        if report is not None:
            told = {"requests": [{"audits": [{"report": report}]}]}
            self._logprobs = {**(self._logprobs or {}), **logprobs_of(told, self.row.id)}

    def answers(self) -> list[list[Token]] | None:
        """The tokens of each choice; None until they are read."""
        if self._tokens is None:
            return None
        known, before = self._logprobs or {}, len(self._tokens.prompt)
        return [
            [
                Token(text, known.get(choice, {}).get(before + at))
                for at, (_, text) in enumerate(ids, start=1)
            ]
            for choice, ids in enumerate(self._tokens.choices)
            if ids
        ]

    def exported(self) -> Mapping[str, Any]:
        """For a file."""
        return {"request": self.row, "tokens": self._tokens, "logprobs": self._logprobs}

    # -- drawing -----------------------------------------------------------------------------------

    def press(self, key: str) -> bool:
        """Whether the key scrolled."""
        if key in ("home", "g"):
            self._top = 0
        elif key in ("end", "G"):
            self._top = len(self._drawn[1])
        elif key in _STEPS:
            self._top = max(0, self._top + _STEPS[key])
        else:
            return False
        return True

    def lines(self, view: View, height: int) -> list[Line]:
        """What of it stands in `height` lines."""
        lines = self._all(view)
        self._top = max(0, min(self._top, len(lines) - height))
        seen = fill(lines[self._top : self._top + height], view.width, height)
        if self._top + height < len(lines):
            seen[-1] = (Span("...".ljust(view.width), "dim"),)
        return seen

    def _all(self, view: View) -> list[Line]:
        """Many tokens are set once, not with every frame."""
        state = (
            *(self.row, id(self._tokens), id(self._logprobs)),
            *(self.gone, self.error, view.words.lang, view.width, view.link == "lost"),
        )
        if self._drawn[0] != state:
            self._drawn = (state, self._set(view))
        return self._drawn[1]

    def _set(self, view: View) -> list[Line]:
        if isinstance(self.row, Ended):
            answers = [] if self.error or self.row.audits else self.answers()
            lines = ended.whole(self.row, answers, view)
        else:
            lines = detail.live(self.row, view)
            if self.gone:
                lines.append((Span(view.words("requests.detail.pending")),))
        if self.error:
            lines.append((Span(view.words("requests.failed", error=view.foreign(self.error))),))
        return lines


def logprobs_of(audit: Any, id: str) -> Mapping[int, Mapping[int, float]]:
    """From GET /v1/audit/{id}: by choice, the log-probability of the ledger's token at each
    position, as a replay found them."""
    found: dict[int, dict[int, float]] = {}
    records = audit.get("requests", ()) if isinstance(audit, Mapping) else ()
    for record in records:
        for entry in record.get("audits", ()) if isinstance(record, Mapping) else ():
            report = entry.get("report") if isinstance(entry, Mapping) else None
            if isinstance(report, Mapping) and report.get("id") == id:
                found[int(report.get("choice") or 0)] = _steps(report)
    return found


def _steps(report: Mapping[str, Any]) -> dict[int, float]:
    steps = report.get("steps") or ()
    return {
        int(step["position"]): float(step["logprob"])
        for step in steps
        if isinstance(step, Mapping) and {"position", "logprob"} <= step.keys()
    }
