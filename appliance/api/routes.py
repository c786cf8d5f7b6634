"""Every route of the box: path, handler, who may use it, and what it takes. One table, from which
the router, the guard and the documentation are all made."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from appliance.api import (
    adapting,
    admin,
    admin_accounts,
    admin_cost,
    audit,
    audit_replay,
    audit_view,
    boardacts,
    calibration,
    console,
    controlling,
    docs,
    events,
    forecasting,
    forecastpast,
    history,
    info,
    modelling,
    sensing,
    tokens,
    usage,
)
from appliance.api.account_shapes import KeyRequest, LimitsRequest, RotateRequest, TenantRequest
from appliance.api.audit_shapes import ReplayRequest, VerifyRequest
from appliance.api.auth import Need
from appliance.api.board_shapes import InhibitRequest, OutputRequest, UpdateRequest
from appliance.api.calibration_shapes import CalibrationRequest
from appliance.api.chat import chat_completions
from appliance.api.chat_shapes import ChatRequest, RenderRequest
from appliance.api.completions import completions
from appliance.api.console_shapes import SnoozeRequest
from appliance.api.control_shapes import PriorityRequest
from appliance.api.embeddings import embeddings
from appliance.api.modelling_shapes import ModelRequest
from appliance.api.native import completion
from appliance.api.reranking import rerank
from appliance.api.responses import respond
from appliance.api.responses_shapes import ResponsesRequest
from appliance.api.shapes import Shape
from appliance.api.text_shapes import (
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    NativeRequest,
    RerankRequest,
    RestartRequest,
    ScalesRequest,
    TokenizeRequest,
)

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One route. `aliases` are other paths for the same thing, left out of the documentation."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Handler
    need: Need
    summary: str
    tag: str
    body: type[Shape] | None = None
    or_bodies: tuple[type[Shape], ...] = ()
    """What it takes besides."""
    body_required: bool = True
    aliases: tuple[str, ...] = ()
    generates: bool = False
    """Can be refused for want of room, and can stream."""
    media: str = "application/json"

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *self.aliases)


ROUTES: tuple[Route, ...] = (
    Route(
        "POST", "/v1/chat/completions", chat_completions, "infer", "Answer a chat", "OpenAI",
        body=ChatRequest, aliases=("/chat/completions",), generates=True,
    ),
    Route(
        "POST", "/v1/completions", completions, "infer", "Continue a text", "OpenAI",
        body=CompletionRequest, generates=True,
    ),
    Route(
        "POST", "/v1/responses", respond, "infer", "Answer a chat, in the newer form", "OpenAI",
        body=ResponsesRequest, aliases=("/responses",), generates=True,
    ),
    Route(
        "POST", "/v1/embeddings", embeddings, "infer", "Embed texts", "OpenAI",
        body=EmbeddingRequest, generates=True,
    ),
    Route(
        "POST", "/v1/rerank", rerank, "infer", "Order documents by a query", "Retrieval",
        body=RerankRequest, aliases=("/rerank", "/reranking", "/v1/reranking"), generates=True,
    ),
    Route(
        "POST", "/v1/forecast", forecasting.forecast, "infer", "What a request would cost",
        "Forecast", body=ChatRequest, or_bodies=(CompletionRequest, ResponsesRequest),
    ),
    Route("GET", "/v1/models", info.models, "read", "List models", "OpenAI", aliases=("/models",)),
    Route("GET", "/v1/models/{id:path}", info.model, "read", "Describe a model", "OpenAI"),
    Route(
        "POST", "/completion", completion, "infer", "Continue a text", "llama-server",
        body=NativeRequest, aliases=("/completions",), generates=True,
    ),
    Route(
        "POST", "/tokenize", tokens.tokenize, "infer", "Text to token ids", "llama-server",
        body=TokenizeRequest,
    ),
    Route(
        "POST", "/detokenize", tokens.detokenize, "infer", "Token ids to text", "llama-server",
        body=DetokenizeRequest,
    ),
    Route(
        "POST", "/apply-template", tokens.apply_template, "infer", "Chat to prompt",
        "llama-server", body=RenderRequest,
    ),
    Route("GET", "/props", info.props, "read", "Settings and build", "llama-server"),
    Route(
        "GET", "/lora-adapters", adapting.lora_adapters, "read", "List LoRA adapters",
        "llama-server",
    ),
    Route(
        "POST", "/lora-adapters", adapting.scale_lora_adapters, "admin", "Scale LoRA adapters",
        "llama-server", body=ScalesRequest,
    ),
    Route("GET", "/slots", info.slots, "metrics", "Running sequences", "llama-server"),
    Route(
        "GET", "/metrics", info.metrics, "metrics", "Prometheus metrics", "llama-server",
        media="text/plain",
    ),
    Route(
        "GET", "/health", info.health, "public", "Is the daemon alive?", "Health",
        aliases=("/v1/health",),
    ),
    Route("GET", "/readyz", info.readyz, "read", "Would a request be answered?", "Health"),
    Route(
        "POST", "/v1/audit/{trace_id}/verify", audit.verify, "read", "Compare token digests",
        "Audit", body=VerifyRequest,
    ),
    Route(
        "GET", "/v1/audit/{trace_id}", audit_view.show, "read", "A request in the ledger", "Audit"
    ),
    Route(
        "GET", "/admin/audit/conflicts", audit_view.conflicts, "admin", "Digest conflicts",
        "Audit",
    ),
    Route(
        "POST", "/admin/audit/{trace_id}/replay", audit_replay.replay, "admin", "Replay an answer",
        "Audit", body=ReplayRequest, body_required=False,
    ),
    Route("GET", "/v1/usage", usage.own_usage, "read", "The caller's own usage", "Accounts"),
    Route("GET", "/admin/keys", admin_accounts.keys, "admin", "List keys", "Accounts"),
    Route(
        "POST", "/admin/keys", admin_accounts.create_key, "admin", "Make a key", "Accounts",
        body=KeyRequest,
    ),
    Route(
        "POST", "/admin/keys/{id}/rotate", admin_accounts.rotate_key, "admin", "New secret",
        "Accounts", body=RotateRequest, body_required=False,
    ),
    Route(
        "POST", "/admin/keys/{id}/limits", admin_accounts.limit_key, "admin", "Limit a key",
        "Accounts", body=LimitsRequest,
    ),
    Route(
        "DELETE", "/admin/keys/{id}", admin_accounts.revoke_key, "admin", "Revoke a key",
        "Accounts",
    ),
    Route("GET", "/admin/tenants", admin_accounts.tenants, "admin", "List tenants", "Accounts"),
    Route(
        "POST", "/admin/tenants", admin_accounts.set_tenant, "admin", "Limit a tenant",
        "Accounts", body=TenantRequest,
    ),
    Route("GET", "/admin/usage", admin_accounts.usage, "admin", "What was used", "Accounts"),
    Route("GET", "/admin/status", admin.status, "admin", "Everything at a glance", "Admin"),
    Route("GET", "/admin/requests", admin.requests, "admin", "List live requests", "Admin"),
    Route("GET", "/admin/requests/{id}", history.one, "admin", "One request", "Ledger"),
    Route("GET", "/admin/history", history.ended, "admin", "List ended requests", "Ledger"),
    Route("GET", "/admin/actions", history.actions, "admin", "What operators did", "Ledger"),
    Route("GET", "/admin/ledger", history.ledger, "admin", "How the ledger stands", "Ledger"),
    Route("DELETE", "/admin/requests/{id}", admin.cancel, "admin", "Cancel a request", "Admin"),
    Route(
        "POST", "/admin/requests/{id}/priority", controlling.reprioritise, "admin",
        "Move a request", "Admin", body=PriorityRequest,
    ),
    Route("GET", "/admin/control", controlling.control, "admin", "Budgets and order", "Admin"),
    Route("GET", "/admin/cost", admin_cost.cost, "admin", "What requests cost", "Admin"),
    Route("POST", "/admin/drain", admin.drain, "admin", "Admit nothing new", "Admin"),
    Route("POST", "/admin/resume", admin.resume, "admin", "Admit again", "Admin"),
    Route("POST", "/admin/hold", admin.hold, "admin", "Hold the queue", "Admin"),
    Route("POST", "/admin/release", admin.release, "admin", "Release the queue", "Admin"),
    Route(
        "POST", "/admin/engine/restart", admin.restart, "admin", "Restart the engine", "Admin",
        body=RestartRequest, body_required=False,
    ),
    Route(
        "GET", "/admin/model", modelling.served, "admin", "The model, and a switch of it", "Admin"
    ),
    Route(
        "POST", "/admin/model", modelling.use_model, "admin", "Serve another model", "Admin",
        body=ModelRequest,
    ),
    Route(
        "GET", "/events", events.events, "metrics", "All that changes, as a stream", "Console",
        media="text/event-stream",
    ),
    Route("GET", "/admin/board", sensing.board, "admin", "The board and all sensors", "Console"),
    Route(
        "POST", "/admin/board/inhibit", boardacts.inhibit, "admin", "Inhibit the watchdog",
        "Console", body=InhibitRequest,
    ),
    Route(
        "POST", "/admin/board/outputs/{name}", boardacts.output, "admin", "Drive an output",
        "Console", body=OutputRequest,
    ),
    Route(
        "POST", "/admin/board/update", boardacts.update, "admin", "New firmware for the board",
        "Console", body=UpdateRequest,
    ),
    Route("GET", "/admin/whoami", console.whoami, "admin", "Who asks", "Console"),
    Route("GET", "/admin/past", console.past, "admin", "The last fifteen minutes", "Console"),
    Route("GET", "/admin/log", console.log_lines, "admin", "The newest log lines", "Console"),
    Route("GET", "/admin/alarms", console.alarms, "admin", "List alarms", "Console"),
    Route(
        "POST", "/admin/alarms/{id}/seen", console.alarm_seen, "admin", "Note an alarm as seen",
        "Console",
    ),
    Route(
        "POST", "/admin/alarms/{id}/snooze", console.alarm_snooze, "admin", "Hide an alarm",
        "Console", body=SnoozeRequest,
    ),
    Route(
        "GET", "/admin/requests/{id}/tokens", console.request_tokens, "admin",
        "Tokens of an ended request", "Ledger",
    ),
    Route(
        "GET", "/admin/audit/ledger/verify", console.verification, "admin",
        "How a verification stands", "Ledger",
    ),
    Route(
        "POST", "/admin/audit/ledger/verify", console.verify_ledger, "admin", "Verify the ledger",
        "Ledger",
    ),
    Route(
        "GET", "/admin/calibration", calibration.calibration_status, "admin",
        "How the calibration stands", "Forecast",
    ),
    Route(
        "POST", "/admin/calibration", calibration.steer_calibration, "admin",
        "Start, hold, resume or stop a calibration", "Forecast", body=CalibrationRequest,
    ),
    Route(
        "GET", "/admin/forecasters", calibration.forecasters, "admin", "List forecasters",
        "Forecast",
    ),
    Route(
        "GET", "/admin/forecasters/scatter", calibration.forecaster_scatter, "admin",
        "Forecasts and what came of them", "Forecast",
    ),
    Route(
        "GET", "/admin/forecasters/past", forecastpast.forecaster_past, "admin",
        "How forecasts did over time", "Forecast",
    ),
    Route(
        "POST", "/admin/forecasters/{version}/use", calibration.use_forecaster, "admin",
        "Put a forecaster into use", "Forecast",
    ),
    Route(
        "GET", "/admin/forecasters/{version}/report", calibration.forecaster_report, "admin",
        "A forecaster's report", "Forecast", media="text/html",
    ),
)  # fmt: skip

DOCS: tuple[Route, ...] = (
    Route("GET", "/docs", docs.page, "docs", "This documentation", "Docs", media="text/html"),
    Route("GET", "/openapi.json", docs.schema, "docs", "OpenAPI document", "Docs"),
)


def need_of(path: str, method: str = "GET") -> Need:
    """Who may use `path`. What is not listed needs somebody known, and is then not found."""
    needs = _EXACT.get(path)
    if needs is not None:
        return needs.get(method, next(iter(needs.values())))
    if path == "/admin" or path.startswith("/admin/"):
        return "admin"
    return "read" if path.startswith(("/v1/models/", "/v1/audit/")) else "known"


_EXACT: dict[str, dict[str, Need]] = {}
"""By path, then by method."""
for _route in (*ROUTES, *DOCS):
    for _path in _route.paths:
        if "{" not in _path:
            _EXACT.setdefault(_path, {})[_route.method] = _route.need
