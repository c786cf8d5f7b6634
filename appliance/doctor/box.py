"""Area `box`: the daemon itself, as it tells of itself."""

from collections.abc import Iterator
from typing import Any

from appliance.doctor.finding import Finding, fail, note, ok, warn
from appliance.doctor.ground import Ground

MEANINGS = {
    "engine": "the engine does not run: its last failure is below, `steelyard selftest` repeats it",
    "progress": "the engine's loop does not turn: it is killed and restarted by itself",
    "prepare": "the process that reads prompts is restarting: look at the log",
    "disk": "the disk with the state is full: free some space there",
    "ledger": "the ledger cannot be written: the log says why",
    "admitting": "it was told to admit nothing: `POST /admin/resume`, or wait for its stop",
}
KEY = "export an admin key as STEELYARD_ADMIN_KEY, or give --key-file"


def look(ground: Ground) -> Iterator[Finding]:
    box = ground.box
    if box.hidden and not box.get("/health").ok:
        yield note(
            "box.running",
            f"this user does not see whether a box runs on {ground.state_dir}",
            "run this as root, or as the box's own user",
        )
        return
    if not box.url and box.holder is None:
        yield note(
            "box.running",
            f"no box runs on {ground.state_dir}",
            "start it with `steelyard serve`, or `systemctl start steelyard`",
        )
        return
    health = box.get("/health")
    who = str(box.holder) if box.holder is not None else "the box"
    if not health.ok:
        yield fail("box.running", *_silent(ground, who, health.why or f"status {health.status}"))
        return
    yield ok("box.running", f"{who} answers at {box.url}")
    answer = box.get("/readyz")
    if answer.refused:
        yield note("box.ready", "it does not tell without a key", KEY)
        return
    if not box.ready:
        yield fail("box.ready", f"it does not say whether it is ready: {answer.why}", KEY)
        return
    yield from _ready(box.ready)
    yield from _troubles(box.ready)


def _silent(ground: Ground, who: str, why: str) -> tuple[str, str]:
    box = ground.box
    if not box.url:
        return (
            f"{who} holds {ground.state_dir} and listens nowhere that can be seen from here",
            "it may be starting: look at its log; only root, or its own user, sees its sockets",
        )
    if "ertificate" in why and ground.config.tls.client_ca:
        return (
            f"{who} wants a client's certificate, so it was not asked",
            "ask it with a client that has one; the other checks hold all the same",
        )
    return (
        f"{who} does not answer at {box.url}: {why}",
        "look at its log; if it hangs, `systemctl restart steelyard`",
    )


def _ready(body: dict[str, Any]) -> Iterator[Finding]:
    failing = [str(name) for name in body.get("failing", ())]
    if body.get("status") == "switching":
        told = f"it goes over to another model ({body.get('switch') or 'on its way'})"
        yield note("box.ready", told, "look again when it has")
        return
    if not failing:
        yield ok("box.ready", "it is ready: a request sent now would be answered")
    for name in failing:
        yield fail("box.ready", f"it is not ready: {name}", MEANINGS.get(name, "look at its log"))


def _troubles(body: dict[str, Any]) -> Iterator[Finding]:
    engine = body.get("engine") or {}
    if restarts := engine.get("restarts"):
        yield warn(
            "box.restarts",
            f"the engine was restarted {restarts} times since the box started; the last time it "
            f"{engine.get('last_failure') or 'said nothing'}",
            "look for `the engine` in the log; docs/operating.md says what each message means",
        )
    for reason in body.get("degraded", ()):
        yield warn("box.degraded", str(reason), "what to do stands there; it serves meanwhile")
