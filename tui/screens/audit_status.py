"""The four lines at the top of screen 5: chain, tokens, verification, export. Pure."""

from appliance.frames import Chain
from tui import moments
from tui.cells import pad
from tui.figures import UNKNOWN, bar, count, duration
from tui.lines import Line, Role, Span, line
from tui.screens.audit_rows import Verification, when
from tui.screens.requests_rows import abridged
from tui.view import View

LABEL = 9
BAR = 16


def status(view: View, verification: Verification | None, problem: str) -> list[Line]:
    """`problem`: why the verification is not known."""
    chain = view.state.chain if view.state is not None else None
    return [
        _chain(chain, view),
        _tokens(chain, view),
        _labelled("verify", _verify(verification, problem, view), view),
        _labelled("export", line(_export(chain, view)), view),
    ]


def _labelled(name: str, rest: Line, view: View) -> Line:
    return (Span(pad(view.words(f"audit.{name}"), LABEL)), *rest)


def _chain(chain: Chain | None, view: View) -> Line:
    words = view.words
    if chain is None:
        return _labelled("chain", line(words("audit.unknown")), view)
    if not chain.ok:
        where = (
            words("audit.rows.bad.somewhere")
            if chain.bad_row is None
            else words("audit.rows.bad", row=chain.bad_row)
        )
        return _labelled("chain", _said("audit.broken", where, view, "alarm1"), view)
    told = words(
        "audit.rows",
        rows=chain.rows,
        seals=chain.seals,
        head=abridged(view.foreign(chain.head)) or UNKNOWN,
        age=duration(chain.age_ms),
    )
    return _labelled("chain", _said("audit.ok", told, view), view)


def _said(key: str, rest: str, view: View, role: Role = "plain") -> Line:
    return (Span(view.words(key), role), Span(f"  {rest}"))


def _tokens(chain: Chain | None, view: View) -> Line:
    """Three counts of the same tokens, which are equal whenever nothing runs."""
    if chain is None:
        return _labelled("tokens", line(UNKNOWN), view)
    words = view.words
    counts = {"ledger": chain.tok_ledger, "engine": chain.tok_engine, "sent": chain.tok_sent}
    known = {value for value in counts.values() if value is not None}
    shown = {name: UNKNOWN if value is None else value for name, value in counts.items()}
    differ = words("audit.tokens.differ", **shown)
    if None in counts.values() and len(known) < 2:
        return _labelled("tokens", line(f"{UNKNOWN}  {differ}"), view)
    if len(known) == 1:
        equal = words("audit.tokens.equal", tokens=known.pop())
        return _labelled("tokens", _said("audit.ok", equal, view), view)
    if view.live is None or view.live.running:
        return _labelled("tokens", line(f"{differ}  {words('audit.tokens.running')}"), view)
    return _labelled("tokens", _said("audit.tokens.differs", differ, view, "alarm1"), view)


def _verify(found: Verification | None, problem: str, view: View) -> Line:
    words = view.words
    if found is None:
        error = view.foreign(problem)
        if not problem:
            return line(view.reading("audit.verify.reading"))
        return line(words("audit.verify.failed", error=error))
    if found.state == "running":
        return line(bar(share_of(found), BAR), f" {_running(found, view)}")
    if found.state == "failed":
        return line(words("audit.verify.problem", problem=view.foreign(found.problem)))
    if found.verdict is None:
        return line(words("audit.verify.none"))
    return _verdict(found, view)


def share_of(found: Verification) -> float | None:
    """How far a verification is; None while nobody knows."""
    return found.done / found.total if found.total else None


def percent_of(found: Verification) -> str:
    share = share_of(found)
    return UNKNOWN if share is None else f"{100 * share:.0f}"


def _running(found: Verification, view: View) -> str:
    eta = ""
    if found.eta_ms is not None:
        eta = view.words("audit.verify.eta", time=duration(found.eta_ms))
    rate = count(found.rate)
    return view.words("audit.verify.running", percent=percent_of(found), rate=rate, eta=eta)


def _verdict(found: Verification, view: View) -> Line:
    verdict = found.verdict
    assert verdict is not None
    at = when(found.ended_ms * 1_000_000, view)
    if verdict.fault_count:
        told = view.words(
            "audit.verify.faults", count=verdict.fault_count, rows=verdict.rows, when=at
        )
        return (Span(told, "alarm1"),)
    told = view.words(
        "audit.verify.intact",
        rows=verdict.rows,
        requests=verdict.requests,
        seals=verdict.seals,
        when=at,
        time=duration(verdict.seconds * 1e3),
    )
    return line(told)


def _export(chain: Chain | None, view: View) -> str:
    words = view.words
    if chain is None:
        return UNKNOWN
    if chain.export_ms is None:
        return words("audit.export.none")
    day = moments.shown(chain.export_ms, moments.DAY)
    age = None if view.live is None else max(0, view.live.at_ms - chain.export_ms)
    signer = abridged(view.foreign(chain.signer))
    signed = words("audit.export.signed", signer=signer) if signer else ""
    return words("audit.export.at", day=day, age=duration(age), signed=signed)
