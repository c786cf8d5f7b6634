"""The settings of what requests may ask for."""

from dataclasses import dataclass

from appliance.config.setting import DAY_S, setting

MIB = 1024 * 1024


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
        high=DAY_S,
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
