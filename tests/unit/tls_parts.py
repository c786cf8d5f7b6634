"""The TLS of a box, at a time of its own."""

from pathlib import Path
from typing import Any

from appliance.config import Config, ServerConfig, TlsConfig
from appliance.tls import TlsState
from tests.unit.certificates import NOW, Handshake, client_context, issue

NAMES = ("box.lan", "*.models.lan", "10.1.2.3", "fd00::1", "localhost")


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def make_config(tmp_path: Path, host: str = "10.1.2.3", **tls: Any) -> Config:
    return Config(
        server=ServerConfig(host=host, state_dir=tmp_path / "state"), tls=TlsConfig(**tls)
    )


def make_state(tmp_path: Path, clock: Clock | None = None, **tls: Any) -> TlsState:
    config = make_config(tmp_path, **tls)
    return TlsState(config, clock=clock or Clock(), names=lambda _: NAMES)


def shake(state: TlsState, name: str = "box.lan", **client: str) -> Handshake:
    ca = client.pop("ca", "") or str(state.ca)
    return Handshake(state.context(), client_context(ca, **client), name)


# -- files from the configuration ------------------------------------------------------------------


def given(tmp_path: Path, name: str = "given", **more: Any) -> dict[str, str]:
    cert, key, _ = issue(tmp_path, name, ["box.example", "10.0.0.9"], **more)
    return {"cert": cert, "key": key}
