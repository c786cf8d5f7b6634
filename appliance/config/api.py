"""The settings of the HTTP interface: who needs a key, and what silent requests get."""

from dataclasses import dataclass
from typing import Literal

from appliance.config.setting import setting


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
