"""What is wrong between settings that are each right.

A section's own rules are in its module; here is what two of them must agree on. Each problem is a
line that begins with the setting to change.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from appliance.config.address import is_loopback
from appliance.config.control import faults
from appliance.config.cost import CostConfig
from appliance.config.engine import EngineConfig
from appliance.config.limits import LimitsConfig
from appliance.config.sections import Config
from appliance.config.tls import TlsConfig
from appliance.config.traces import TracesConfig

BOUNDED_BY = (("batch", "context"), ("ubatch", "batch"), ("prefill_tokens", "batch"))
"""Of the engine's sizes: each is at most the other."""
MAX_SEQUENCES = 256
"""What llama.cpp's context holds (LLAMA_MAX_SEQ)."""


def disagreements(config: Config) -> Iterator[str]:
    """Every one, so that a person who mends the file does it once."""
    yield from _of_engine(config.engine)
    yield from _of_limits(config.limits)
    if problem := faults(config.control.batch_share, config.engine.context):
        yield f"control.batch_share: {problem}"
    yield from _of_cost(config.cost)
    yield from _of_tls(config.tls)
    yield from _of_discovery(config)
    yield from _of_patterns(config.ledger.redact)
    yield from _of_traces(config.traces)
    for alias, target in config.model.aliases.items():
        if target != "default":
            yield f'model.aliases: `{alias}` must be "default" (the model served), not {target!r}'


def _of_engine(engine: EngineConfig) -> Iterator[str]:
    for name, bound in BOUNDED_BY:
        value, most = getattr(engine, name), getattr(engine, bound)
        if value > most:
            yield f"engine.{name}: {value} is more than engine.{bound}, which is {most}"
    sequences = engine.max_sequences + engine.cached_sequences
    if sequences > MAX_SEQUENCES:
        yield (
            f"engine.cached_sequences: with engine.max_sequences it makes {sequences} sequences, "
            f"and at most {MAX_SEQUENCES} are possible"
        )
    if engine.kv_type in ("q8_0", "q4_0") and engine.flash_attention == "off":
        yield f'engine.kv_type: "{engine.kv_type}" needs engine.flash_attention "on" or "auto"'


def _of_limits(limits: LimitsConfig) -> Iterator[str]:
    if limits.prepare_s < max(limits.template_s, limits.grammar_compile_s):
        yield (
            "limits.prepare_s: it is shorter than limits.template_s or limits.grammar_compile_s, "
            "which it includes"
        )


def _of_cost(cost: CostConfig) -> Iterator[str]:
    if not cost.currency:
        yield "cost.currency: it is empty; name one such as `EUR`, or leave the line out for USD"
    if 0 < cost.watts_busy < cost.watts_idle:
        yield "cost.watts_busy: it is less than cost.watts_idle"
    if not cost.weight_time + cost.weight_requests + cost.weight_context:
        yield "cost.weight_time: with cost.weight_requests and cost.weight_context 0 it must not be"


def _of_tls(tls: TlsConfig) -> Iterator[str]:
    if bool(tls.cert) != bool(tls.key):
        given, missing = ("cert", "key") if tls.cert else ("key", "cert")
        yield f"tls.{missing}: tls.{given} is set, so this must be too"
    if tls.client_ca and tls.mode == "off":
        yield 'tls.client_ca: it has no effect with tls.mode "off"'


def _of_discovery(config: Config) -> Iterator[str]:
    if config.discovery.mdns and is_loopback(config.server.host):
        yield (
            f"discovery.mdns: nobody on the network could reach server.host {config.server.host}; "
            "set it to 0.0.0.0 or to an address of this machine"
        )


def _of_patterns(redact: tuple[str, ...]) -> Iterator[str]:
    for pattern in redact:
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"ledger.redact: {pattern!r} is no regular expression: {error}"


def _of_traces(traces: TracesConfig) -> Iterator[str]:
    """What the form of the text does not show: a host there is, and a port that can be."""
    try:
        parts = urlsplit(traces.endpoint)
        sound = not traces.endpoint or (bool(parts.hostname) and parts.port != 0)
    except ValueError:
        sound = False
    if not sound:
        yield f"traces.endpoint: {traces.endpoint!r} names no host and port that can be"
