"""Every setting of the box: type, default, bounds and meaning, side by side.

docs/configuration.md is generated from this file (`steelyard config docs`).
"""

# `setting` and `computed` return dataclass fields, so calling them as defaults is right.
# ruff: noqa: RUF009

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from appliance.config.board import BoardConfig
from appliance.config.control import ControlConfig
from appliance.config.cost import CostConfig
from appliance.config.discovery import DiscoveryConfig
from appliance.config.forecast import ForecastConfig
from appliance.config.ledger import LedgerConfig
from appliance.config.sensors import SensorsConfig
from appliance.config.setting import computed, setting
from appliance.config.tls import TlsConfig

KvType = Literal["f16", "bf16", "q8_0", "q4_0", "f32"]
FlashAttention = Literal["auto", "on", "off"]

MIB = 1024 * 1024
DAY = 86400.0

_HOST = r"[A-Za-z0-9._:%-]+|\[[0-9A-Fa-f:.%]+\]"
_NAME = r"[^\x00-\x1f\x7f\s](?:[^\x00-\x1f\x7f]*[^\x00-\x1f\x7f\s])?"


def default_state_dir(env: Mapping[str, str] = os.environ) -> Path:
    """$STEELYARD_STATE, else what systemd gives, else the user's own state directory."""
    named = env.get("STEELYARD_STATE") or env.get("STATE_DIRECTORY", "").split(":")[0]
    if named:
        return Path(named).absolute()
    home = env.get("HOME")
    return (Path(home) if home else Path.home()) / ".local" / "state" / "steelyard"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the daemon listens and keeps its state."""

    host: str = setting(
        "127.0.0.1",
        "Address to listen on. Anything but a loopback address needs at least one key with scope "
        "`infer`.",
        high=253,
        pattern=_HOST,
        form="an IP address or a host name",
    )
    port: int = setting(8421, "TCP port. 0 takes any free one.", low=0, high=65535)
    drain_s: float = setting(
        20.0,
        "Seconds that running requests may go on after SIGTERM before they are ended.",
        low=0,
        high=3600,
    )
    state_dir: Path = computed(
        default_state_dir,
        "$STEELYARD_STATE, else $STATE_DIRECTORY, else ~/.local/state/steelyard",
        "Directory for keys and everything else the daemon writes. Made if missing, mode 0700.",
        path=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Host names a request may be addressed to (its `Host` header). Empty: loopback names and "
        "`server.host`.",
        high=256,
        pattern=_HOST,
        form="host names without a port",
    )
    sse_ping_s: float = setting(
        10.0,
        "Seconds between comment lines on a stream that has nothing else to send.",
        low=0.1,
        high=3600,
    )


@dataclass(frozen=True, slots=True)
class Lora:
    """One LoRA adapter, loaded with the model. Requests choose with `lora` (docs/http.md)."""

    path: str = setting("", "GGUF file of the adapter.", path=True)
    scale: float = setting(1.0, "How strongly it is applied.", low=-100, high=100)
    name: str = setting(
        "",
        "Name by which requests may call it. Empty: the file name without its ending.",
        high=256,
        pattern=_NAME,
        form="a name without line breaks or spaces around it",
    )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model is served, and under which names."""

    path: str = setting(
        "",
        "GGUF file; of a model in several files, the first. Empty: the one that was chosen with "
        "`steelyard model use`, else the one that is packaged with the box.",
        path=True,
    )
    name: str = setting(
        "",
        "Name shown to clients. Empty: the file name without its ending.",
        high=256,
        pattern=_NAME,
        form="a name without line breaks or spaces around it",
    )
    aliases: Mapping[str, str] = setting(
        MappingProxyType({}),
        'Further names that clients may ask for, each mapped to `"default"` (the model served), '
        'so that apps written for a cloud model need no change: `{ "gpt-4o" = "default" }`.',
        high=256,
        pattern=_NAME,
        form="names without line breaks or spaces around them",
    )
    sha256: str = setting(
        "",
        "SHA-256 of the file; the box refuses to start with any other. Empty: not checked.",
        pattern=r"[0-9a-fA-F]{64}",
        form="64 hexadecimal digits",
    )
    chat_template: str = setting(
        "",
        "Jinja file used instead of the model's own chat template. Empty: the model's own; for "
        "the packaged model plain ChatML, because the system prompt inside its own template "
        "makes it answer worse (docs/models.md).",
        path=True,
    )
    lora: tuple[Lora, ...] = setting(
        (),
        'LoRA adapters: `[{ path = "…", scale = 1.0, name = "…" }]`. `scale` (default 1) is how '
        "strongly one is applied to requests that name none; `name` is how requests call it "
        "(default: the file name without its ending).",
        high=16,
    )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the model is run. Wrong values cost speed or memory, never answers."""

    context: int = setting(
        8192,
        "Tokens in the KV cache, shared by all sequences; also the most one request may use.",
        low=128,
        high=16_777_216,
    )
    max_sequences: int = setting(
        16, "Sequences (choices being written) that run at the same time.", low=1, high=256
    )
    cached_sequences: int = setting(
        32,
        "Finished sequences kept so that later prompts with the same beginning start faster. "
        "Together with `max_sequences` at most 256.",
        low=0,
        high=255,
    )
    batch: int = setting(
        512,
        "Tokens computed in one step, at most. Unset, it follows a smaller `context`.",
        low=1,
        high=65536,
    )
    ubatch: int = setting(
        512,
        "Tokens computed at once inside a step, at most `batch`. Unset, it follows a smaller "
        "`batch`.",
        low=1,
        high=65536,
    )
    threads: int = setting(
        0, "Threads for decoding. 0: the physical cores this process may use.", low=0, high=1024
    )
    threads_batch: int = setting(
        0, "Threads for prompts. 0: the same as `threads`.", low=0, high=1024
    )
    gpu_layers: int = setting(
        -1, "Layers put on the GPU. -1: all of them if the build has a GPU.", low=-1, high=10000
    )
    require_gpu: bool = setting(
        False, "Refuse to start unless all asked-for layers are on a GPU. Else it shows `degraded`."
    )
    flash_attention: FlashAttention = setting(
        "auto", "Flash attention. On CPUs `off` decodes faster and reads prompts slower."
    )
    kv_type: KvType = setting(
        "f16", "Number format of the KV cache. The quantised ones need flash attention."
    )
    draft_tokens: int = setting(
        8,
        "Tokens guessed ahead from the prompt and verified in the same step, at most. 0: none.",
        low=0,
        high=64,
    )
    prefill_tokens: int = setting(
        512,
        "Prompt tokens per step, at most, while other requests decode. Unset, it follows a "
        "smaller `batch`.",
        low=1,
        high=65536,
    )
    step_timeout_s: float = setting(
        60.0, "Seconds without progress after which the engine is killed.", low=1, high=3600
    )
    start_timeout_s: float = setting(
        300.0, "Seconds the engine may take to load the model.", low=1, high=DAY
    )
    memory_growth_mb: int = setting(
        1024,
        "MiB by which the engine may grow over its size when ready before it is restarted. "
        "0: no limit.",
        low=0,
        high=1_048_576,
    )
    restarts: int = setting(
        3,
        "Deaths of the engine in `restart_window_s` that make the daemon give up.",
        low=1,
        high=100,
    )
    restart_window_s: float = setting(
        300.0, "Seconds over which the engine's deaths are counted.", low=1, high=DAY
    )
    mlock: bool = setting(False, "Lock the model in memory so that it is never swapped out.")


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """What one request, and all waiting requests together, may ask for."""

    queue_requests: int = setting(256, "Waiting requests; beyond it 429.", low=0, high=4096)
    queue_tokens: int = setting(
        262_144, "Prompt tokens of all waiting requests; beyond it 429.", low=0, high=1_000_000_000
    )
    body_bytes: int = setting(
        10 * MIB, "Bytes of a request's body; beyond it 413.", low=1024, high=1024 * MIB
    )
    json_depth: int = setting(64, "Nesting of a request's JSON.", low=4, high=512)
    header_bytes: int = setting(
        65536, "Bytes of a request's header lines.", low=1024, high=16 * MIB
    )
    body_s: float = setting(
        60.0, "Seconds in which a request's body must have arrived.", low=0.5, high=3600
    )
    keep_alive_s: float = setting(
        15.0, "Seconds that a connection stays open between two requests.", low=0.5, high=3600
    )
    write_stall_s: float = setting(
        30.0,
        "Seconds in which a client must take at least 16 KiB of what waits for it; else its "
        "connection is cut and its request ended.",
        low=0.5,
        high=3600,
    )
    connections: int = setting(
        512,
        "Open connections. When there are as many, one that waits for a request is closed for a "
        "new one; when none waits, the new one gets 503.",
        low=1,
        high=65536,
    )
    connections_per_host: int = setting(
        0, "Open connections of one client address; beyond it 503. 0: no limit.", low=0, high=65536
    )
    exclusive: bool = setting(
        True,
        "Let requests ask to run alone (`exclusive`): all others wait until they have ended.",
    )
    deadline_s: float = setting(
        0.0,
        "Seconds a request may take, waiting included, where it names no deadline. 0: no limit.",
        low=0,
        high=DAY,
    )
    n: int = setting(8, "Choices per request (`n`).", low=1, high=128)
    stop: int = setting(16, "Stop strings per request.", low=0, high=1024)
    stop_bytes: int = setting(256, "Bytes of one stop string.", low=1, high=65536)
    grammar_bytes: int = setting(65536, "Bytes of a grammar or JSON Schema.", low=64, high=16 * MIB)
    grammar_compile_s: float = setting(
        2.0, "Seconds a grammar or JSON Schema may take to compile.", low=0.05, high=60
    )
    template_s: float = setting(2.0, "Seconds the chat template may take.", low=0.05, high=60)
    logit_bias: int = setting(1024, "Entries of `logit_bias`.", low=0, high=1_000_000)
    top_logprobs: int = setting(20, "Alternatives per token (`top_logprobs`).", low=0, high=1000)
    max_tokens_default: int = setting(
        0,
        "Tokens of an answer where the request sets no limit. 0: up to the end of the context.",
        low=0,
        high=16_777_216,
    )
    prepare_s: float = setting(
        10.0, "Seconds that template, tokeniser and grammar may take together.", low=0.1, high=600
    )
    tools: int = setting(128, "Tools per request.", low=0, high=4096)


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """How tokens are picked where the request is silent."""

    temperature: float = setting(0.8, "0 always takes the likeliest token.", low=0, high=100)
    top_k: int = setting(40, "Likeliest tokens considered. 0: all.", low=0, high=1_000_000)
    top_p: float = setting(0.95, "Probability mass considered. 1: all.", low=0, high=1)
    min_p: float = setting(
        0.05, "Least probability relative to the likeliest token. 0: off.", low=0, high=1
    )
    typical_p: float = setting(1.0, "Locally typical sampling. 1: off.", low=0, high=1)
    presence_penalty: float = setting(
        0.0, "Subtracted once from tokens already used.", low=-2, high=2
    )
    frequency_penalty: float = setting(
        0.0, "Subtracted from tokens for each earlier use.", low=-2, high=2
    )
    repeat_penalty: float = setting(
        1.0, "Divides the score of recently used tokens. 1: off.", low=0.01, high=100
    )
    repeat_last_n: int = setting(
        64, "Tokens that the penalties look back on. -1: the context.", low=-1, high=16_777_216
    )


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Who needs a key."""

    loopback_open: bool = setting(
        True,
        "On a loopback address, inference needs no key while no key with scope `infer` exists. "
        "Admin routes always need one.",
    )


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """How the HTTP interface behaves."""

    unknown_fields: Literal["refuse", "report"] = setting(
        "refuse",
        "Request fields that the box does not know: answer 400, or list them in the header "
        "`X-Ignored-Params`.",
    )
    docs: bool = setting(True, "Serve the interactive API documentation under /docs.")
    cors_origins: tuple[str, ...] = setting(
        (),
        "Web origins whose pages may call the box from a browser. Empty: none.",
        high=256,
        pattern=r"\*|[a-z][a-z0-9+.-]*://[A-Za-z0-9._\[\]:-]+",
        form='origins such as `"https://intranet.example"`, or `"*"`',
    )


@dataclass(frozen=True, slots=True)
class LoggingConfig:
    """What the daemon writes to standard error, and where else."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The least important lines shown."
    )
    json: bool = setting(False, "One JSON object a line instead of text.")
    file: str = setting(
        "",
        "A file that gets all lines too, for boxes where nothing else keeps them. Empty: none; "
        "under systemd the journal has them.",
        path=True,
    )
    file_mb: int = setting(
        8,
        "MiB at which that file is renamed to `.1` and begun anew; the newest four full ones stay.",
        low=1,
        high=1024,
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. `load` makes it; nothing changes it."""

    server: ServerConfig = field(default_factory=ServerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    cost: CostConfig = field(default_factory=CostConfig)
    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    sensors: SensorsConfig = field(default_factory=SensorsConfig)
    forecast: ForecastConfig = field(default_factory=ForecastConfig)
    control: ControlConfig = field(default_factory=ControlConfig)
    board: BoardConfig = field(default_factory=BoardConfig)
    discovery: DiscoveryConfig = field(default_factory=DiscoveryConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    named: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys (`engine.threads`) that someone set. What nobody set the box may choose better: see
    `steelyard tune`."""


NAMED = "named"
"""The one field of `Config` that is no section."""
