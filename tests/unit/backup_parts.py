"""A state directory with everything that a box writes, without a box."""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from appliance.ledger.keysign import open_signer
from appliance.tls.own import OwnCertificates
from tests.unit.proof_ledger import make_ledger

PASSPHRASE = b"correct horse battery staple"
MODEL = "tiny"
WEIGHTS = b"GGUF" + bytes(range(256)) * 64


def make_state(state: Path) -> Path:
    """Ledger, keys, certificates, forecaster, calibration, settings and a stored model; and what
    only a running box needs."""
    state.mkdir(mode=0o700, parents=True)
    make_ledger(state / "ledger.sqlite")
    open_signer(state)
    OwnCertificates(state / "tls").ensure(["box.local"], time.time())
    put(state / "forecasters/abc/v0001.forecaster", b"forecaster " * 1000)
    put(state / "forecasters/abc/current", b"v0001\n")
    put(state / "calibration/abc/answers.jsonl", b"{}\n")
    put(state / "tuned.json", b"{}")
    put(state / "daemon.lock", b"")
    put(state / "fingerprints.json", b"{}")
    put(state / "journal/1.tokens", bytes(64))
    add_model(state)
    return state


def add_model(
    state: Path, name: str = MODEL, *, sha256: str = "ab" * 32, lora: Sequence[str] = ()
) -> None:
    """In the store, and chosen."""
    file = {"file": "tiny.gguf", "size": len(WEIGHTS), "sha256": sha256}
    made = {"name": name, "files": [file], "lora": lora}
    put(state / f"models/{name}/manifest.json", msgspec.json.encode(made))
    put(state / f"models/{name}/tiny.gguf", WEIGHTS)
    put(state / "models/selected.json", msgspec.json.encode({"name": name}))


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below, but the ledger's, which may be written in another way each time."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("ledger.sqlite")
    }


OF_A_BACKUP = {
    "calibration/abc/answers.jsonl",
    "forecasters/abc/current",
    "forecasters/abc/v0001.forecaster",
    "ledger-key.pem",
    "ledger-key.pub",
    "tls/ca-key.pem",
    "tls/ca.pem",
    "tls/server-key.pem",
    "tls/server.pem",
    "tuned.json",
}
"""All that a backup without models must bring back, beside the ledger."""
