"""What the console's REST routes take and answer, exactly. `/events` is in appliance/frames.py.

Fields are only ever added. Times: `*_ms` wall clock since 1970, unless the name says otherwise.
"""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from appliance.api.shapes import Shape
from appliance.frames import Alarm

MOST_SNOOZE_MIN = 480
"""Eight hours: one shift. Whoever comes next decides again."""


class SnoozeRequest(Shape):
    """POST /admin/alarms/{id}/snooze."""

    minutes: Annotated[int, Field(ge=1, le=MOST_SNOOZE_MIN)]
    reason: Annotated[str, Field(min_length=1, max_length=200)]


class Who(msgspec.Struct, frozen=True):
    """GET /admin/whoami."""

    key_id: str
    key_name: str
    tenant: str
    scopes: list[str]
    version: str
    host: str
    boot_id: str
    currency: str


class Past(msgspec.Struct, frozen=True):
    """GET /admin/past: chosen numbers of `live`, once a second, up to 15 minutes, oldest first.

    All lists are equally long; the last value is from `last_ms`, each one before it from
    `every_ms` earlier. null: unknown then."""

    every_ms: int
    last_ms: int
    """0 while there is none."""
    values: dict[str, list[float | None]]
    """By the field's name in `live`: out_tok_s, prefill_tok_s, ttft_p50_ms, ttft_p99_ms,
    itl_p50_ms, itl_p99_ms, e2e_p50_ms, e2e_p99_ms, running, waiting, kv_a_pct, kv_b_pct,
    prefix_hit_pct, step_ms, refused_min, failed_min, temp_c, power_w."""


class LogLine(msgspec.Struct, frozen=True):
    seq: int
    """Rises by one with every line of this run of the box."""
    at_ms: int
    level: str
    """debug, info, warning, error, critical."""
    logger: str
    text: str
    """Line breaks as `\\n`; a traceback follows its message."""


class Log(msgspec.Struct, frozen=True):
    """GET /admin/log?level=&filter=&after=&limit=: lines after `after`, oldest first; without
    `after` the newest. `level` is the least (default info), `filter` a part of logger or text in
    any case, `limit` 1 to 2000 (default 200)."""

    lines: list[LogLine]
    next: int
    """For `after`: the newest line there was, shown or not."""


class Ended(msgspec.Struct, frozen=True):
    """An alarm that is over."""

    alarm: Alarm
    ended_ms: int


class AlarmList(msgspec.Struct, frozen=True):
    """GET /admin/alarms: those of now, worst first, and the last 200 that are over, newest
    first."""

    alarms: list[Alarm]
    past: list[Ended]


class AlarmDone(msgspec.Struct, frozen=True):
    """POST /admin/alarms/{id}/seen and /snooze. `recorded`: the action is in the ledger."""

    status: Literal["seen", "snoozed"]
    alarm: Alarm
    recorded: bool


class Token(msgspec.Struct, frozen=True, array_like=True):
    """[id, text]; the text of half a character is U+FFFD."""

    id: int
    text: str


class TokensOf(msgspec.Struct, frozen=True):
    """One prompt of a request, and its answers."""

    id: str
    seq: int
    """Of its final row in the chain."""
    kept: bool
    """False: retention dropped the tokens, and the lists are empty."""
    prompt: list[Token]
    choices: list[list[Token]]


class RequestTokens(msgspec.Struct, frozen=True):
    """GET /admin/requests/{id}/tokens: the tokens of an ended request, one entry per prompt.

    The newest 8, where one name means more."""

    requests: list[TokensOf]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """GET and POST /admin/audit/ledger/verify: the run that goes on, else the last one of this run
    of the box. POST starts one (202), or tells of the one that runs (200)."""

    state: Literal["none", "running", "intact", "faults", "failed"]
    """failed: it could not be verified; `problem` says why and what to do."""
    by: str = ""
    """Key name, and the operator if one was named: `alice (bob)`."""
    started_ms: int = 0
    ended_ms: int = 0
    done: int = 0
    """Rows so far."""
    total: int | None = None
    rate: float | None = None
    """Rows per second."""
    eta_ms: int | None = None
    bad_row: int | None = None
    """The first row with a fault, where a row has it."""
    verdict: dict[str, Any] | None = None
    """As `steelyard audit verify --json` prints it: ok, rows, first_seq, last_seq, head, requests,
    prompt_tokens, completion_tokens, in_flight, seals, signed, signers, dropped_rows, fault_count,
    faults [{what, detail, seq, last_seq, segment, entry, stored, computed}], remarks, seconds."""
    problem: str = ""
    recorded: bool = True
    """POST: the action is in the ledger."""
