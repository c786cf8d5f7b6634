"""What the ledger's entries say. Each struct is one `kind`; its JSON is the entry's body, hashed as
it stands, so a field may be added but none renamed.

Times: `*_wall_ns` since 1970, `*_ns` of CLOCK_MONOTONIC (comparable within one `boot_id`). Money:
1e-9 of the currency. Energy: microjoules. Hashes: lower-case hexadecimal.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

Outcome = Literal["stop", "length", "cancelled", "deadline", "refused", "failed", "interrupted"]
"""refused: never admitted. failed: the engine's or the box's fault. interrupted: the box itself
ended (crash, power, shutdown) while the request was in flight."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all entries."""

    KIND: ClassVar[str]

    wall_ns: int
    """When the entry was made."""


class Facts(Row, frozen=True, kw_only=True):
    """What is known of a request from its admission on."""

    number: int
    id: str
    trace_id: str
    request_id: str
    part: int = 0
    parts: int = 1
    """Prompt `part` of a call with `parts` prompts."""
    route: str
    key_id: str
    """Empty: an open loopback request without a key."""
    key_name: str
    tenant: str
    scenario: str
    model: str
    model_sha256: str
    template_sha256: str
    build: str
    sampling: Mapping[str, Any]
    n: int
    max_tokens: int
    tier: str
    stream: bool
    prompt_tokens: int
    received_wall_ns: int
    received_ns: int
    boot_id: str


class Admitted(Facts, frozen=True, kw_only=True):
    """A request was let in. Durable before its client sees anything."""

    KIND = "admitted"


class ChoiceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of a request."""

    outcome: Outcome
    stop_type: str
    completion_tokens: int
    hidden_tokens: int
    """Those that do not show in the text: EOS, tokens of a stop string."""
    digest: str
    """Token digest v1 over prompt and completion (docs/ledger.md)."""
    landing: str = ""
    """How an answer with a budget ended (docs/contract.md)."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """A request's cost at the box's standard rates, by stage."""

    currency: str
    prefill: int
    decode: int
    cached: int
    idle: int

    @property
    def total(self) -> int:
        return self.prefill + self.decode + self.cached + self.idle


class RequestRow(Facts, frozen=True, kw_only=True):
    """The one final entry of a request (`wall_ns`: when it ended)."""

    KIND = "request"

    count: int = 1
    """More than 1 only for refusals that came faster than they are worth telling apart."""
    outcome: Outcome
    status: int
    """HTTP status of the answer; 0 where none was sent."""
    code: str = ""
    """The error's code, where it ended with one."""
    cached_tokens: int
    """Prompt tokens reused rather than computed."""
    prefill_tokens: int
    """Tokens computed as prompt, over all choices, with those computed again after a preemption."""
    completion_tokens: int
    """Every token sampled, over all choices."""
    hidden_tokens: int
    computed_tokens: int = 0
    """With a budget: every token sampled, those included that were tried as an ending and not
    delivered. Else 0."""
    drafted_tokens: int
    accepted_tokens: int
    submitted_ns: int
    started_ns: int
    """0: never."""
    first_token_ns: int
    ended_ns: int
    prefill_ns: int
    """Device time of its prompt, over all choices: its share of the steps it was in."""
    decode_ns: int
    parallel: int
    """The most sequences that shared a step with it."""
    preemptions: int
    exclusive: bool
    """It had the engine and an otherwise empty cache to itself throughout."""
    energy_uj: int | None = None
    energy_source: str = ""
    forecast: Mapping[str, Any] | None = None
    costs: Costs | None = None
    choices: tuple[ChoiceRow, ...] = ()
    tokens_sha256: str | None = None
    prompt_sha256: str | None = None
    answers_sha256: str | None = None
    recovered: bool = False
    """Made from the token journal after a crash."""
    exact: bool = True
    """False: the machine lost power, and tokens of the last moments may be missing here."""


class Action(Row, frozen=True, kw_only=True):
    """Something an operator, or the box itself, did."""

    KIND = "action"

    action: str
    """e.g. `key.create`, `request.cancel`, `engine.restart`."""
    target: str = ""
    key_id: str = ""
    """Of the admin key; empty on the box's own command line, or for the box itself."""
    key_name: str = ""
    operator: str = ""
    """Who they say they are."""
    host: str = ""
    detail: Mapping[str, Any] = {}


class Conflict(Row, frozen=True, kw_only=True):
    """A client's token digest did not match the ledger's."""

    KIND = "conflict"

    number: int
    id: str
    trace_id: str
    key_id: str
    choice: int
    claimed: str
    """The client's digest."""
    digest: str
    """The ledger's."""
    first_difference: int | None = None
    """1-based position, where the client sent its token ids."""


class Archived(Row, frozen=True, kw_only=True):
    """A client confirmed that it has the very tokens of the ledger."""

    KIND = "archived"

    number: int
    id: str
    trace_id: str
    key_id: str
    choice: int
    digest: str


class Replay(Row, frozen=True, kw_only=True):
    """A request was run again, its own tokens forced, to see what the engine says now."""

    KIND = "replay"

    number: int
    id: str
    trace_id: str
    key_id: str
    choice: int
    result: Literal["identical", "differs", "inconclusive", "failed"]
    positions: int
    differing: int
    facts: Mapping[str, Any]
    """What may explain a difference: batch, cache, drafts, build."""
    report_sha256: str | None = None


class Note(Row, frozen=True, kw_only=True):
    """The box tells of itself: started, stopped, recovered, clock stepped."""

    KIND = "note"

    event: str
    detail: Mapping[str, Any] = {}


class Seal(Row, frozen=True, kw_only=True):
    """The entries before this one were sealed: the first entry of the next segment says so."""

    KIND = "seal"

    segment: int
    seal: str
    """The seal's hash."""
    signer: str = ""
    """Of the signature beside the seal; empty where it has none."""


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored beside an entry and may be dropped before it."""

    tokens: bytes | None = None
    prompt: str | None = None
    answers: str | None = None
    report: bytes | None = None


_encoder = msgspec.json.Encoder()


def encode(row: Row) -> str:
    """The entry's body: compact JSON, members in the order of the struct's fields."""
    return _encoder.encode(row).decode()
