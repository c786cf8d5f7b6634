"""The settings of the engine."""

from dataclasses import dataclass
from typing import Literal

from appliance.config.setting import DAY_S, setting

KvType = Literal["f16", "bf16", "q8_0", "q4_0", "f32"]
FlashAttention = Literal["auto", "on", "off"]


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
        300.0, "Seconds the engine may take to load the model.", low=1, high=DAY_S
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
        300.0, "Seconds over which the engine's deaths are counted.", low=1, high=DAY_S
    )
    mlock: bool = setting(False, "Lock the model in memory so that it is never swapped out.")
