"""Models, health, readiness, slots, metrics, admin routes, and the documentation."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from appliance.api.app import create_app
from appliance.api.box import Box
from appliance.api.routes import ROUTES
from appliance.config import AuthConfig, ModelConfig
from appliance.engine.reports import SlotState, Started, Stats
from appliance.ledger.errors import LedgerError
from appliance.ledger.rows import Action
from appliance.observe.metrics import Metrics
from appliance.snapshot import EngineSnapshot, QueueSnapshot
from tests.unit.api_box import ScriptedSupervisor, chat, client_of, ledger_of, make_box


def supervisor_of(box: Box) -> ScriptedSupervisor:
    supervisor: Any = box.supervisor
    assert isinstance(supervisor, ScriptedSupervisor)
    return supervisor


async def get(box: Box, path: str, **headers: str) -> Any:
    return await client_of(box).get(path, headers=headers)


async def test_models_are_listed_the_served_one_first(tmp_path: Path) -> None:
    box = make_box(tmp_path, model=ModelConfig(aliases={"gpt-4o": "default"}))
    served, encoder = (await get(box, "/v1/models")).json()["data"]
    assert served["id"] == "tiny"
    assert served["aliases"] == ["default", "gpt-4o"]
    assert served["meta"]["n_vocab"] == 256
    assert encoder["meta"]["n_embd"] == 384
    for name in ("tiny", "default", "gpt-4o"):
        assert (await get(box, f"/v1/models/{name}")).json()["id"] == "tiny"
    assert (await get(box, "/v1/models/minilm")).json()["id"] == encoder["id"]
    missing = await get(box, "/v1/models/no/such")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("state", ["starting", "ready", "backoff", "stopping", "failed"])
async def test_health_is_the_daemons_and_readiness_the_engines(tmp_path: Path, state: Any) -> None:
    box = make_box(tmp_path)
    supervisor = supervisor_of(box)
    supervisor.snapshot = replace(supervisor.snapshot, state=state)
    health = await get(box, "/health")
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    ready = await get(box, "/readyz")
    assert ready.status_code == (200 if state == "ready" else 503)
    assert ready.json()["engine"]["state"] == state
    assert ready.json()["failing"] == ([] if state == "ready" else ["engine"])


async def test_readiness_names_each_part_that_fails(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    supervisor = supervisor_of(box)
    supervisor.snapshot = replace(supervisor.snapshot, last_progress=time.monotonic() - 1000)
    assert (await get(box, "/readyz")).json()["failing"] == ["progress"]
    supervisor.snapshot = replace(supervisor.snapshot, last_progress=time.monotonic())
    box.admission.drain(True)
    answer = await get(box, "/readyz")
    assert answer.json()["failing"] == ["admitting"]
    assert answer.headers["retry-after"]


async def test_props_tell_the_settings_without_paths(tmp_path: Path) -> None:
    answer = await get(make_box(tmp_path), "/props")
    body = answer.json()
    assert body["default_generation_settings"]["n_ctx"] == 128
    assert body["default_generation_settings"]["params"]["temperature"] == 0.8
    assert body["total_slots"] == 16
    assert body["model_path"] == "tiny.gguf"
    assert body["chat_template"] == "{{ messages }}"
    assert "/models" not in answer.text
    assert str(tmp_path) not in answer.text


async def test_slots_show_running_sequences_and_idle_places(tmp_path: Path) -> None:
    box = make_box(tmp_path, lambda submit: [Started(submit.id, 1.0, 0), 60.0])
    supervisor = supervisor_of(box)
    busy = SlotState(3, "chatcmpl-x", 0, "decode", 10, 10, 4, 7, 20)
    supervisor.snapshot = replace(supervisor.snapshot, slots=(busy,))
    found = (await get(box, "/slots")).json()
    assert [slot["id"] for slot in found] == list(range(16))
    assert [slot["id"] for slot in found if slot["is_processing"]] == [3]
    assert found[3]["next_token"][0] == {
        "has_next_token": True,
        "has_new_line": False,
        "n_remain": 13,
        "n_decoded": 7,
    }
    assert (found[3]["n_prompt_tokens"], found[3]["n_prompt_tokens_cache"]) == (10, 4)
    full = tuple(replace(busy, id=number) for number in range(16))
    supervisor.snapshot = replace(supervisor.snapshot, slots=full)
    assert (await get(box, "/slots?fail_on_no_slot=1")).status_code == 503
    assert len((await get(box, "/slots")).json()) == 16


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_metrics_have_llama_servers_names_and_the_engines_counts() -> None:
    stats = Stats(
        steps=10,
        prompt_tokens=100,
        cached_tokens=7,
        prompt_seconds=2.0,
        predicted_tokens=50,
        predicted_seconds=5.0,
        busy_sequences=25,
        tokens_max=99,
    )
    engine = EngineSnapshot(state="ready", stats=stats, restarts=2)
    metrics = Metrics(
        version="1",
        llama_commit="c",
        model="m",
        engine=lambda: engine,
        queue=lambda: QueueSnapshot(running=3, waiting=4),
    )
    text = metrics.text().decode()
    for line in (
        "llamacpp:prompt_tokens_total 100.0",
        "llamacpp:prompt_tokens_cached_total 7.0",
        "llamacpp:prompt_seconds_total 2.0",
        "llamacpp:tokens_predicted_total 50.0",
        "llamacpp:tokens_predicted_seconds_total 5.0",
        "llamacpp:n_decode_total 10.0",
        "llamacpp:n_tokens_max 99.0",
        "llamacpp:prompt_tokens_seconds 50.0",
        "llamacpp:predicted_tokens_seconds 10.0",
        "llamacpp:requests_processing 3.0",
        "llamacpp:requests_deferred 4.0",
        "llamacpp:n_busy_slots_per_decode 2.5",
        "llamacpp:spec_decode_num_draft_tokens_total 0.0",
        "steelyard:engine_restarts_total 2.0",
        'steelyard:engine_state{state="ready"} 1.0',
    ):
        assert line in text.splitlines()
    assert "process_resident_memory_bytes" in families(text)


async def test_requests_are_counted_by_route_and_outcome_with_their_latencies(
    tmp_path: Path,
) -> None:
    box = make_box(tmp_path)
    client = client_of(box)
    await client.post("/v1/chat/completions", json=chat())
    await client.post("/v1/chat/completions", json=chat(stream=True))
    await client.post("/v1/chat/completions", json={})
    await client.get("/nope")
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert int(answer.headers["process-start-time-unix"]) == int(box.started_at)
    found = families(answer.text)
    counted = {
        (sample.labels["route"], sample.labels["outcome"]): sample.value
        for sample in found["steelyard:requests"].samples
    }
    assert counted == {
        ("/v1/chat/completions", "stop"): 2,
        ("/v1/chat/completions", "refused"): 1,
        ("unknown", "refused"): 1,
    }
    for name in (
        "time_to_first_token_seconds",
        "request_queue_time_seconds",
        "e2e_request_latency_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
    ):
        samples = found[f"steelyard:{name}"].samples
        assert next(s.value for s in samples if s.name.endswith("_count")) == 2
    between = found["steelyard:inter_token_latency_seconds"].samples
    assert next(s.value for s in between if s.name.endswith("_count")) == 2


class Operator:
    """A client with the admin key."""

    def __init__(self, box: Box) -> None:
        self._client = client_of(box)
        self._headers = {"X-Api-Key": box.keys.create("root", ["admin"])}

    async def __call__(self, method: str, path: str, **more: Any) -> Any:
        headers = {**self._headers, **more.pop("headers", {})}
        return await self._client.request(method, path, headers=headers, **more)


async def test_operators_drain_hold_and_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = make_box(tmp_path)
    operate, supervisor = Operator(box), supervisor_of(box)
    drained = await operate("POST", "/admin/drain", headers={"X-Operator": "al\tice"})
    assert drained.json() == {"status": "draining", "recorded": True}
    assert box.admission.draining
    await operate("POST", "/admin/resume")
    assert not box.admission.draining
    await operate("POST", "/admin/hold")
    await operate("POST", "/admin/release")
    await operate("POST", "/admin/engine/restart")
    await operate("POST", "/admin/engine/restart", json={"reason": "new\x1b[2J driver"})
    assert supervisor.done == [
        "pause True",
        "pause False",
        "restart asked for by an operator",
        r"restart new\x1b[2J driver",
    ]
    assert (await operate("POST", "/admin/engine/restart", content=b"{")).status_code == 400
    assert caplog.text.count("by key root") == 6
    actions = [row for row in ledger_of(box).rows if isinstance(row, Action)]
    assert [action.action for action in actions] == [
        "box.drain",
        "box.resume",
        "queue.hold",
        "queue.release",
        "engine.restart",
        "engine.restart",
    ]
    assert {action.key_name for action in actions} == {"root"}
    assert (actions[0].operator, actions[0].host) == ("al ice", "127.0.0.1")
    assert actions[-1].detail == {"reason": r"new\x1b[2J driver"}
    status = (await operate("GET", "/admin/status")).json()
    assert status["engine"]["state"] == "ready"
    assert status["queue"]["waiting"] == 0


async def test_operators_may_act_while_the_ledger_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = make_box(tmp_path)
    ledger_of(box).fault = LedgerError("the disk is full")
    drained = await Operator(box)("POST", "/admin/drain")
    assert drained.json() == {"status": "draining", "recorded": False}
    assert box.admission.draining
    assert "box.drain by key root is in this log alone: the disk is full" in caplog.text


async def test_operators_see_and_cancel_requests(tmp_path: Path) -> None:
    box = make_box(tmp_path, lambda submit: [60.0])
    operate, supervisor = Operator(box), supervisor_of(box)
    call = asyncio.create_task(client_of(box).post("/v1/chat/completions", json=chat()))
    while not supervisor.tickets:
        await asyncio.sleep(0)
    (row,) = (await operate("GET", "/admin/requests")).json()["requests"]
    assert (row["state"], row["prompt_tokens"], row["stream"]) == ("waiting", 2, False)
    assert "content" not in row
    gone = await operate("DELETE", f"/admin/requests/{row['id']}")
    assert gone.json() == {"status": "cancelled", "id": row["id"], "recorded": True}
    answer = await call
    assert answer.status_code == 499
    assert answer.json()["error"]["code"] == "cancelled"
    assert answer.headers["x-should-retry"] == "false"
    assert (await operate("DELETE", "/admin/requests/nope")).status_code == 404


async def test_paths_and_methods_that_do_not_exist_have_our_shape(tmp_path: Path) -> None:
    client = client_of(make_box(tmp_path))
    missing = await client.get("/v1/nope")
    assert missing.status_code == 404
    assert "/v1/nope" in missing.json()["error"]["message"]
    wrong = await client.put("/v1/models")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "GET"
    assert wrong.json()["error"]["code"] == "method_not_allowed"
    assert (await client.get("/health/")).status_code == 404


async def test_every_get_route_answers_head(tmp_path: Path) -> None:
    box = make_box(tmp_path, auth=AuthConfig())
    for route in ROUTES:
        if route.method == "GET" and route.need != "admin" and route.tag != "Audit":
            path = route.path.replace("{id:path}", "default")
            assert (await client_of(box).head(path)).status_code == 200, path


async def test_the_documentation_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    document = (await get(box, "/openapi.json")).json()
    for route in ROUTES:
        operation = document["paths"][route.path.replace(":path", "")][route.method.lower()]
        assert ("requestBody" in operation) == (route.body is not None)
        assert "200" in operation["responses"]
    assert all("422" not in o["responses"] for p in document["paths"].values() for o in p.values())
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]
    page = await get(box, "/docs")
    assert "://" not in page.text
    assert "script-src 'sha256-" in page.headers["content-security-policy"]
    quiet = make_box(tmp_path, api={"docs": False})
    assert (await get(quiet, "/docs")).status_code == 404


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in _references(value)]
    if isinstance(node, list):
        return [found for value in node for found in _references(value)]
    return []


def test_the_application_can_be_made_twice(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    assert create_app(box) is not create_app(box)
