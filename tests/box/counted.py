"""A box whose every request is found again in its ledger."""

import random
import threading
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.box.answered import MODEL
from tests.box.asking import Asked, ask
from tests.box.ledgered import Ledgered, Row, check_digests
from tests.box.running import RunningBox
from tests.box.wire import saying

ENGINE = {"max_sequences": 3, "prefill_tokens": 8, "restart_window_s": 1, "context": 8192}
"""A prompt beside others takes many steps."""
LIMITS = {"queue_requests": 2}
LONG = 2600
"""Tokens that no request reaches before its test ends it."""
NEIGHBOUR = 2500
PROMPT = [1000 + number for number in range(2400)]
"""Beside a neighbour it takes 300 steps: long enough to be seen."""
NAMES = count()


@dataclass(frozen=True, slots=True)
class Counted:
    """A box, its ledger, and a client of it."""

    box: RunningBox
    ledger: Ledgered
    asked: list[Asked] = field(default_factory=list)

    def ask(self, prompt: Any = "Once upon a time", **fields: Any) -> tuple[Asked, str]:
        """The request, under a name by which its row is found."""
        name = f"asked-{next(NAMES)}"
        self.asked.append(ask(self.box, prompt, headers={"X-Request-Id": name}, **fields))
        return self.asked[-1], name

    def row(self, name: str) -> Row:
        return self.ledger.row(request_id=name)

    def leave(self) -> None:
        """Whatever a test left behind."""
        self.box.admin("POST", "/admin/release")
        for asked in self.asked:
            asked.hang_up()
            asked.wait()
        self.asked.clear()
        self.box.wait_until(lambda: not self.box.requests(), what="nothing is left behind")


def named() -> dict[str, Any]:
    """Fields of a call with the client: its row is found by the name."""
    return {"model": MODEL, "extra_headers": {"X-Request-Id": f"called-{next(NAMES)}"}}


def name_of(call: dict[str, Any]) -> str:
    return str(call["extra_headers"]["X-Request-Id"])


def bring_to(counted: Counted, state: str, **fields: Any) -> tuple[Asked, str]:
    """A request that is in that state, or that its deadline has ended before."""
    prompt: Any = "Once upon a time"
    if state == "queued":
        counted.box.admin("POST", "/admin/hold")
    if state == "prefill":
        prompt = PROMPT
        counted.ask(max_tokens=NEIGHBOUR)[0].wait_for_tokens()
    asked, name = counted.ask(prompt, max_tokens=LONG, cache_prompt=False, **fields)
    counted.box.wait_until(lambda: asked.over or is_in(counted, state), what=f"it is {state}")
    return asked, name


def is_in(counted: Counted, state: str) -> bool:
    if state == "queued":
        return len(counted.box.requests()) == 1
    return any(
        slot["is_processing"] and slot["state"] == state and slot["params"].get("n_predict") == LONG
        for slot in counted.box.slots()
    )


def check_early_end(counted: Counted, row: Row, asked: Asked, state: str, by: str) -> None:
    outcome, code, status = {
        "client": ("cancelled", "client_gone", 0),
        "operator": ("cancelled", "cancelled", 499),
        "deadline": ("deadline", "deadline_exceeded", 408),
    }[by]
    assert (row["outcome"], row["code"]) == (outcome, code)
    assert row["status"] == (200 if row["stream"] else status)
    tokens = counted.ledger.tokens(row)[1]
    assert tokens[: len(asked.token_ids)] == asked.token_ids
    check_digests(counted.ledger, row)
    if state == "queued":
        assert (row["started_ns"], row["prefill_tokens"], row["completion_tokens"]) == (0, 0, 0)
    elif by != "deadline":  # which may have found it in a later state
        assert (row["completion_tokens"] > 0) == (state == "decode")
        assert 0 < row["prefill_tokens"] <= row["prompt_tokens"]


def one_of_many(
    counted: Counted, pick: random.Random, crash: bool
) -> tuple[str, dict[str, Any]] | None:
    """One user's request, of some kind; its name and usage where it was answered in full."""
    fields: dict[str, Any] = {
        "max_tokens": pick.choice([0, 1, 5, 30]),
        "n": pick.choice([1, 1, 2]),
        "stream": pick.random() < 0.6,
        "ignore_eos": pick.random() < 0.5,
        "temperature": pick.choice([0, 1.0]),
    }
    prompt = [f"Story {pick.randrange(5)} " + "and on " * pick.randrange(30) for _ in "ab"]
    how = pick.choice(["", "", "", "cancel", "deadline"])
    if how == "deadline":
        fields["deadline_s"] = pick.choice([0.05, 0.2])
    asked, name = counted.ask(prompt[0] if pick.random() < 0.8 else prompt, **fields)
    if how == "cancel":
        threading.Event().wait(pick.random() * 0.3)
        if not asked.over:
            asked.hang_up()
    elif crash:
        counted.box.engine().kill()
    asked.wait()
    if asked.status != 200 or asked.problem or asked.errors or how == "cancel":
        return None
    return name, asked.usage


def end_in_every_way(counted: Counted) -> None:
    counted.ask(max_tokens=20, ignore_eos=False, **saying("Fine."))[0].wait()
    counted.ask(max_tokens=2)[0].wait()
    counted.ask("x " * 9000)[0].wait()
    counted.ask(max_tokens=LONG, deadline_s=0.3)[0].wait()
    gone, crashed = (counted.ask(max_tokens=LONG)[0].wait_for_tokens() for _ in range(2))
    gone.hang_up()
    gone.wait()
    counted.box.wait_for_running(1)
    counted.box.engine().kill()
    crashed.wait()
    counted.box.wait_ready()
