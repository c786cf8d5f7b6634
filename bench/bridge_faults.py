"""What `bench.bridge` does to the board, its host and the cable between, and what came of it."""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from appliance.board.service import BoardService
from appliance.board.snapshot import Told
from appliance.config import BoardConfig
from appliance.snapshot import EngineSnapshot
from bench.plug import Plug
from firmware_bridge.commands import Ping, Stream
from firmware_bridge.events import BoardReset, Lost, Samples
from firmware_bridge.image import build, firmware_files, trust_line
from firmware_bridge.link import Link
from firmware_bridge.simulation import Simulation
from firmware_bridge.update import Image
from firmware_bridge.wire import Decoder, encode

TIMEOUT_MS, PRE_MS = 1500, 1000
GOAL_MS = 50.0
OFF_MS = "300"
PATIENCE_S = 60.0
TURN_S = 0.02


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"never happened: {what}")
        time.sleep(TURN_S)


# -- hangs -------------------------------------------------------------------------------------


def keep(path: str) -> None:
    """A host in a process of its own: keeps the board, and prints its state and events."""
    keeper = BoardService(_config(), device=path, engine=_proving)
    keeper.start(lambda told: _say(_row(told)))
    until(lambda: keeper.snapshot.state == "armed", "the board is armed")
    _say({"code": "armed"})
    time.sleep(PATIENCE_S)


def _say(row: dict[str, Any]) -> None:
    """In one piece: two threads say something."""
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def _config() -> BoardConfig:
    return BoardConfig(timeout_s=TIMEOUT_MS / 1000, pretimeout_s=PRE_MS / 1000)


def _proving() -> EngineSnapshot:
    return EngineSnapshot(state="ready", last_progress=time.monotonic())


def _row(told: Told) -> dict[str, Any]:
    return {"code": told.code, "argument": told.argument, "ticks": told.ticks}


def hangs(times: int) -> dict[str, Any]:
    """How far off the board warned and cut, by its own clock: the daemon was stopped by a signal,
    or its engine proved nothing any more."""
    daemon = [_stopped_daemon() for _ in range(times)]
    engine = [_stopped_engine() for _ in range(times)]
    return {
        "configured_ms": [PRE_MS, TIMEOUT_MS],
        "times_each": times,
        **{
            f"{who}_{what}_off_ms": [round(min(found), 1), round(max(found), 1)]
            for who, rows in (("daemon", daemon), ("engine", engine))
            for what, found in zip(("warning", "cut"), zip(*rows, strict=True), strict=True)
        },
        "within_50_ms": all(abs(off) <= GOAL_MS for row in daemon + engine for off in row),
    }


def _off(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """The warning's argument is the time left then; so both ages are the board's own."""
    warned = next(row for row in rows if row["code"] == "pretimeout")
    cut = next(row for row in rows if row["code"] == "power_cycle")
    age = TIMEOUT_MS - warned["argument"]
    return age - PRE_MS, age + (cut["ticks"] - warned["ticks"]) / 1000 - TIMEOUT_MS


def _stopped_daemon() -> tuple[float, float]:
    with Simulation({"STEELYARD_SIMULATED_OFF_MS": OFF_MS}) as board:
        program = f"from bench.bridge_faults import keep; keep({board.path!r})"
        host = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        try:
            told = _lines(host, "armed")
            time.sleep(random.uniform(0.3, 0.6))
            host.send_signal(signal.SIGSTOP)
            time.sleep(TIMEOUT_MS / 1000 + 0.7)
            host.send_signal(signal.SIGCONT)
            return _off(told + _lines(host, "power_cycle"))
        finally:
            host.kill()
            host.wait()


def _lines(host: "subprocess.Popen[str]", last: str) -> list[dict[str, Any]]:
    assert host.stdout is not None
    rows: list[dict[str, Any]] = []
    while not rows or rows[-1]["code"] != last:
        rows.append(json.loads(host.stdout.readline() or "{}"))
    return rows


def _stopped_engine() -> tuple[float, float]:
    proven = [time.monotonic()]
    alive = True

    def engine() -> EngineSnapshot:
        if alive:
            proven[0] = time.monotonic()
        return EngineSnapshot(state="ready", last_progress=proven[0])

    told: list[Told] = []
    with Simulation({"STEELYARD_SIMULATED_OFF_MS": OFF_MS}) as board:
        keeper = BoardService(_config(), device=board.path, engine=engine)
        keeper.start(told.append)
        try:
            until(lambda: keeper.snapshot.state == "armed", "the board is armed")
            time.sleep(random.uniform(0.3, 0.6))
            alive = False
            until(lambda: "power_cycle" in [one.code for one in told], "the cut")
        finally:
            keeper.stop()
    return _off([_row(one) for one in told])


# -- the cable ---------------------------------------------------------------------------------


def pulls(times: int) -> dict[str, Any]:
    """The cable is pulled under load. Samples counted lost must be those that are missing."""
    found: list[Any] = []
    back: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        board = stack.enter_context(Simulation())
        plug = stack.enter_context(Plug(board.path, Path(folder) / "line"))
        link = _linked(stack, str(plug.path))
        for _ in range(times):
            _load(link, found, 0.5)
            plug.pull()
            until(lambda: link.telemetry.state == "down", "the link sees it")
            plug.plug()
            begun = time.monotonic()
            _streaming(link)
            back.append(time.monotonic() - begun)
        _load(link, found, 0.5)
        link.stop()
        found += link.take_events()
        lost = link.telemetry.counters.lost
    got = [e.first + row for e in found if isinstance(e, Samples) for row in range(len(e.rows))]
    missing = max(got) - min(got) + 1 - len(set(got))
    return {
        "pulls": times,
        "samples": len(got),
        "missing": missing,
        "counted_lost": lost,
        "exact": lost == missing == sum(e.count for e in found if isinstance(e, Lost)),
        "twice": len(got) - len(set(got)),
        "board_resets": sum(isinstance(e, BoardReset) for e in found),
        "back_s_max": round(max(back), 2),
    }


def _linked(stack: ExitStack, path: str) -> Link:
    link = Link(path)
    link.start()
    stack.callback(link.stop)
    _streaming(link)
    return link


def _streaming(link: Link) -> None:
    until(lambda: link.telemetry.state == "ready", "the board is greeted")
    until(lambda: isinstance(link.send(Stream(True)), int), "it takes a command")
    before = link.telemetry.counters.samples
    until(lambda: link.telemetry.counters.samples > before, "samples come")


def _load(link: Link, found: list[Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        link.send(Ping(b"load"))
        time.sleep(0.005)
        found += link.take_events()


# -- updates -----------------------------------------------------------------------------------


def updates() -> dict[str, Any]:
    """One that is taken, one of a stranger, one that is not newer, one that does not run."""
    key, stranger = generate_private_key(65537, 2048), generate_private_key(65537, 2048)
    good = _image("1.2.0", key)
    broken = _image("1.3.0", key, b"\nraise RuntimeError\n")
    with tempfile.TemporaryDirectory() as folder, _updating(Path(folder), key) as bring:
        taken = bring(good)
        foreign = bring(_image("1.3.0", stranger))
        older = bring(_image("1.1.9", key))
        reverted = bring(broken)
    return {
        "bytes": len(good.data),
        "taken": taken,
        "foreign": foreign["phase"],
        "older": older["phase"],
        "broken": reverted["phase"],
    }


def _image(version: str, key: RSAPrivateKey, more: bytes = b"") -> Image:
    files = firmware_files()
    schema, main = "firmware_bridge/firmware/schema.py", "firmware_bridge/firmware/main.py"
    numbers = version.replace(".", ", ").encode()
    changed = files[schema].replace(b"VERSION = (1, 1, 0)", b"VERSION = (" + numbers + b")")
    return build(files | {schema: changed, main: files[main] + more}, key)


@contextmanager
def _updating(flash: Path, key: RSAPrivateKey) -> Iterator[Callable[[Image], dict[str, Any]]]:
    """Brings an image by the daemon's service, while samples stream."""
    with Simulation({}, flash, trust_line(key.public_key())) as board:
        keeper = BoardService(BoardConfig(), device=board.path, engine=_proving)
        keeper.start(lambda told: None)

        def bring(image: Image) -> dict[str, Any]:
            until(lambda: keeper.snapshot.state == "armed", "the board is armed")
            before, begun = keeper.snapshot.link, time.monotonic()
            keeper.update(image)
            moments: dict[str, float] = {}

            def over() -> bool:
                progress = keeper.snapshot.update
                if progress is None or progress.version != image.name:
                    return False
                moments.setdefault(progress.phase, time.monotonic() - begun)
                return progress.over

            until(over, "the update is over")
            progress = keeper.snapshot.update
            assert progress is not None
            return {
                "phase": progress.phase,
                "brought_s": round(moments.get("trying", 0.0), 2),
                "confirmed_s": round(moments.get("done", 0.0), 2),
                "lost_samples": keeper.snapshot.link.lost - before.lost,
            }

        try:
            yield bring
        finally:
            keeper.stop()


def power_cuts() -> dict[str, Any]:
    """The power fails just before the flash changes for the nth time, for every n: the board must
    boot afterwards, and the update come to its end. By the real interpreter, killed."""
    key = generate_private_key(65537, 2048)
    image, trust = _image("1.2.0", key), trust_line(key.public_key())
    cuts = bricked = unfinished = 0
    while True:
        with tempfile.TemporaryDirectory() as folder:
            settings = {"STEELYARD_SIMULATED_CUT": str(cuts + 1)}
            with Simulation(settings, Path(folder), trust) as board:
                phase = _brought(board, image)
                if board.boots == 2:  # for the trial alone: no cut came any more
                    break
        cuts += 1
        bricked += phase == "dead"
        unfinished += phase != "done"
    return {"cuts": cuts, "bricked": bricked, "unfinished": unfinished}


def _brought(board: Simulation, image: Image) -> str:
    """How the update ended; once more, if its trial was cut short."""
    keeper = BoardService(BoardConfig(), device=board.path, engine=_proving)
    keeper.start(lambda told: None)
    phase = "dead"
    try:
        for _ in range(2):
            until(lambda: keeper.snapshot.state == "armed", "the board boots")
            board.settings.pop("STEELYARD_SIMULATED_CUT", None)
            keeper.update(image)
            until(lambda: (one := keeper.snapshot.update) and one.over, "the update is over")
            phase = keeper.snapshot.update.phase if keeper.snapshot.update else "dead"
            if phase == "done":
                break
            time.sleep(0.2)
    finally:
        keeper.stop()
    return phase


# -- damage ------------------------------------------------------------------------------------


def fuzz(frames: int, seed: int = 1) -> dict[str, Any]:
    """Damaged frames as they come over a line. Accepted may be only what was sent."""
    dice, begun = random.Random(seed), time.monotonic()
    good = [
        encode(0, 0x20, 7, 9, bytes(range(1, 169))),
        encode(2, 0x03, 1, 2**31, bytes(18)),
        encode(1, 0x32, 3, 0, dice.randbytes(242)),
        encode(0, 0x22, 5, 6, b"\1\0"),
    ]
    known = {Decoder().feed(frame)[0].fields() for frame in good}
    decoder, wrong, whole, unchanged = Decoder(), 0, 0, 0
    for _ in range(frames):
        frame = dice.choice(good)
        piece = _damaged(frame[1:-1], dice)
        unchanged += piece == frame[1:-1]
        for got in decoder.feed(b"\0" + piece + b"\0"):
            whole += 1
            wrong += got.fields() not in known
    return {
        "frames": frames,
        "false_accepts": wrong,
        "unchanged_by_chance": unchanged,
        "accepted": whole,
        "refused": decoder.bad,
        "seconds": round(time.monotonic() - begun, 1),
    }


def _damaged(frame: bytes, dice: random.Random) -> bytes:
    spoilt = bytearray(frame)
    at = dice.randrange(len(spoilt))
    match dice.randrange(5):
        case 0:
            for _ in range(dice.randint(1, 6)):
                spoilt[dice.randrange(len(spoilt))] ^= 1 << dice.randrange(8)
        case 1:
            del spoilt[at : at + dice.randint(1, 4)]
        case 2:
            spoilt[at:at] = dice.randbytes(dice.randint(1, 4))
        case 3:
            spoilt[at : at + 16] = dice.randbytes(min(16, len(spoilt) - at))
        case _:
            spoilt[at : at + 8] = spoilt[at : at + 8][::-1]
    return bytes(spoilt)
