"""Ledgers made by the million: through `ledger.append`, as a box would have written them in months,
in large transactions that no power cut needs to survive.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from appliance.ledger.append import append
from appliance.ledger.database import connect, transaction
from appliance.ledger.rows import (
    Admitted,
    ChoiceRow,
    Costs,
    Facts,
    Payload,
    RequestRow,
    Row,
)
from appliance.ledger.verify import pack_tokens, token_digest

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
DAYS = 90
FIRST_WALL_NS = 20_000 * DAY
KEYS = 100
TENANTS = 20
SCENARIOS = ("", "mail", "summary", "search")
ROUTES = ("/v1/chat/completions", "/v1/completions")
OUTCOMES = ("stop",) * 14 + ("length",) * 4 + ("cancelled", "failed")
PROMPT_TOKENS, ANSWER_TOKENS = 100, 128
"""Of each stored payload."""
_PAYLOADS = 64
_BATCH = 20_000
_CACHE_KIB = 1 << 20

Progress = Callable[[int], None]


def fill(
    path: Path, requests: int, *, seed: int, admissions: bool, tokens: bool, progress: Progress
) -> None:
    """A new ledger of so many requests over `DAYS` days, newest last. `admissions`: each with its
    own entry as on a real box, which makes two per request; `tokens`: with their payloads."""
    pick = random.Random(seed)
    payloads = [_payload(pick) for _ in range(_PAYLOADS)] if tokens else []
    db = connect(path)
    try:
        db.execute("PRAGMA synchronous = OFF")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        made = _entries(pick, requests, admissions, payloads)
        done = 0
        while batch := [entry for _, entry in zip(range(_BATCH), made, strict=False)]:
            with transaction(db, path):
                append(db, batch)
            done += len(batch)
            progress(done)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.close()


def _entries(
    pick: random.Random,
    requests: int,
    admissions: bool,
    payloads: list[tuple[Payload, str]],
) -> Iterator[tuple[Row, Payload | None]]:
    step = DAYS * DAY // max(requests, 1)
    for number in range(1, requests + 1):
        payload, digest = pick.choice(payloads) if payloads else (None, "ab" * 32)
        row = _request(pick, number, FIRST_WALL_NS + number * step, digest)
        if admissions:
            facts = {name: getattr(row, name) for name in Facts.__struct_fields__}
            yield Admitted(**facts), Payload(tokens=b"")
        yield row, payload


def _payload(pick: random.Random) -> tuple[Payload, str]:
    prompt = pick.choices(range(49_152), k=PROMPT_TOKENS)
    answer = pick.choices(range(49_152), k=ANSWER_TOKENS)
    return Payload(tokens=pack_tokens([prompt, answer])), token_digest(prompt, answer)


def _request(pick: random.Random, number: int, wall_ns: int, digest: str) -> RequestRow:
    key = pick.randrange(KEYS)
    at = number * 1_000_000
    return replace(
        _TEMPLATE,
        wall_ns=wall_ns,
        number=number,
        id=f"chatcmpl-{pick.randbytes(12).hex()}",
        trace_id=pick.randbytes(16).hex(),
        request_id=f"req_{pick.randbytes(12).hex()}",
        route=pick.choice(ROUTES),
        key_id=f"k_{key:08x}",
        key_name=f"key {key}",
        tenant=f"tenant {key % TENANTS}",
        scenario=pick.choice(SCENARIOS),
        received_wall_ns=wall_ns - SECOND,
        received_ns=at,
        submitted_ns=at + 2_000_000,
        started_ns=at + 3_000_000,
        first_token_ns=at + 40_000_000,
        ended_ns=at + SECOND,
        outcome=pick.choice(OUTCOMES),
        choices=(replace(_TEMPLATE.choices[0], digest=digest),),
    )


_FACTS: dict[str, Any] = {
    "wall_ns": 0,
    "number": 0,
    "id": "",
    "trace_id": "",
    "request_id": "",
    "route": "",
    "key_id": "",
    "key_name": "",
    "tenant": "",
    "scenario": "",
    "model": "SmolLM2-135M-Instruct.Q4_1",
    "model_sha256": "ab" * 32,
    "template_sha256": "cd" * 32,
    "build": "0.3.0 llama.cpp 0c1e57098",
    "sampling": {"temperature": 0.7, "top_p": 0.9, "seed": 1},
    "n": 1,
    "max_tokens": 128,
    "tier": "default",
    "stream": True,
    "prompt_tokens": PROMPT_TOKENS,
    "received_wall_ns": 0,
    "received_ns": 0,
    "boot_id": "00000000-0000-4000-8000-000000000000",
}
_TEMPLATE = RequestRow(
    **_FACTS,
    outcome="stop",
    status=200,
    cached_tokens=40,
    prefill_tokens=PROMPT_TOKENS - 40,
    completion_tokens=ANSWER_TOKENS,
    hidden_tokens=1,
    drafted_tokens=8,
    accepted_tokens=3,
    submitted_ns=0,
    started_ns=0,
    first_token_ns=0,
    ended_ns=0,
    prefill_ns=30_000_000,
    decode_ns=900_000_000,
    parallel=2,
    preemptions=0,
    exclusive=False,
    costs=Costs(currency="EUR", prefill=1200, decode=64_000, cached=90, idle=4000),
    choices=(
        ChoiceRow(
            outcome="stop",
            stop_type="eos",
            completion_tokens=ANSWER_TOKENS,
            hidden_tokens=1,
            digest="",
        ),
    ),
)
