"""A collector of traces hears of each request once, without a word of it, and holds none up."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.api.app import create_app
from appliance.api.spans import telling
from appliance.config import ConfigError, load
from appliance.config.traces import TracesConfig
from appliance.observe import spansender
from appliance.observe.metrics import Metrics
from appliance.observe.spans import Span, encode
from appliance.observe.spansender import SpanSender
from appliance.observe.tracing import spans_of
from tests.unit.api_box import chat, client_of, make_box, saying
from tests.unit.trace_collector import Collector

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
SPAN = Span("ab" * 16, "cd" * 8, "", "GET /", 10**18, 10**18 + 5)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def told() -> list[Span]:
    return []


@pytest.fixture
def client(tmp_path: Path, told: list[Span]) -> httpx.AsyncClient:
    box = make_box(tmp_path, saying("Hi", "!"))
    return client_of(box, create_app(replace(box, tell=telling(told.append, names=True))))


def facts_of(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


async def test_a_request_is_one_span_with_its_counts(
    client: httpx.AsyncClient, told: list[Span]
) -> None:
    answer = await client.post(
        "/v1/chat/completions", json=chat(), headers={"traceparent": PARENT + "01"}
    )
    (span,) = told
    assert span.name == "POST /v1/chat/completions"
    assert (span.trace_id, span.parent_id) == (PARENT[3:35], PARENT[36:52])
    assert answer.headers["traceparent"].split("-")[1:3] == [span.trace_id, span.span_id]
    usage = answer.json()["usage"]
    assert span.facts["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert span.facts["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert span.facts["steelyard.request_id"] == answer.headers["X-Request-Id"]
    assert span.started_ns <= span.first_token_ns <= span.ended_ns
    assert not span.failed


async def test_no_text_of_a_request_is_in_its_span(
    client: httpx.AsyncClient, told: list[Span]
) -> None:
    body = chat(messages=[{"role": "user", "content": "xyzzy"}])
    assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    assert (await client.post("/v1/chat/completions", json=body | {"plugh": 1})).status_code == 400
    sent = encode(told, {}).decode()
    assert len(told) == 2
    assert "xyzzy" not in sent
    assert "plugh" not in sent


async def test_what_the_client_does_not_sample_is_not_told(
    client: httpx.AsyncClient, told: list[Span]
) -> None:
    for flags in ("00", "01", "02"):
        await client.post(
            "/v1/chat/completions", json=chat(), headers={"traceparent": PARENT + flags}
        )
    assert len(told) == 1


async def test_consoles_that_look_on_are_no_spans_and_refusals_are(
    client: httpx.AsyncClient, told: list[Span]
) -> None:
    await client.get("/v1/models")
    assert told == []
    assert (await client.post("/v1/chat/completions", json={})).status_code == 400
    (span,) = told
    assert span.facts["http.response.status_code"] == 400
    assert not span.failed, "it was the client's fault"


def test_a_span_is_told_in_the_words_of_the_protocol() -> None:
    span = Span(
        "ab" * 16, "cd" * 8, "ef" * 8, "POST /x", 1, 2**60, failed=True, first_token_ns=7,
        facts={"words": "héllo", "count": 2**53 + 1, "ms": 1.5},
    )  # fmt: skip
    (resource,) = json.loads(encode([span], {"service.name": "steelyard"}))["resourceSpans"]
    assert facts_of(resource["resource"]) == {"service.name": "steelyard"}
    (found,) = resource["scopeSpans"][0]["spans"]
    assert facts_of(found) == {"words": "héllo", "count": str(2**53 + 1), "ms": 1.5}
    assert (found["traceId"], found["spanId"]) == ("ab" * 16, "cd" * 8)
    assert (found["parentSpanId"], found["kind"]) == ("ef" * 8, 2)
    assert found["endTimeUnixNano"] == str(2**60)
    assert found["events"] == [{"name": "gen_ai.first_token", "timeUnixNano": "7"}]
    assert found["status"] == {"code": 2}


def test_spans_reach_the_collector_together(collector: Collector) -> None:
    sender = SpanSender(collector.url, {"service.name": "steelyard"}, linger_s=60.0)
    for _ in range(3):
        sender.put(SPAN)
    sender.stop()
    assert len(collector.spans()) == 3
    assert (sender.sent, sender.dropped) == (3, 0)


def test_what_a_collector_does_not_take_is_dropped_and_counted(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 503
    sender = SpanSender(collector.url, {}, linger_s=0.0)
    sender.put(SPAN)
    collector.spans()
    sender.put(SPAN)
    collector.spans()
    collector.status = 200
    sender.put(SPAN)
    collector.spans()
    sender.stop()
    assert (sender.sent, sender.dropped) == (1, 2)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1, "one line an outage, not one a request"
    assert "it answered 503" in told[0]


def test_a_collector_that_is_gone_stops_nothing(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.close()
    sender = SpanSender(collector.url, {})
    sender.put(SPAN)
    sender.stop()
    assert (sender.sent, sender.dropped) == (0, 1)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith("takes no spans: Connection refused. Requests go on; spans are dropped")


def test_a_collector_that_answers_nonsense_is_told_as_such(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = SpanSender(f"http://127.0.0.1:{listener.getsockname()[1]}", {})
        sender.put(SPAN)
        threading.Thread(target=sender.stop).start()
        line, _ = listener.accept()
        with line:
            line.recv(4096)
            line.sendall(b"no HTTP at all\r\n\r\n")
            sender._thread.join(30)
    assert (sender.sent, sender.dropped) == (0, 1)
    assert "it answered nonsense" in caplog.text


def test_a_full_queue_drops_without_waiting(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spansender, "QUEUE", 2)
    blocked, begun = threading.Event(), threading.Event()
    sender = SpanSender(collector.url, {}, linger_s=0.0)

    def stuck(body: bytes) -> str:
        begun.set()
        assert blocked.wait(30)
        return ""

    monkeypatch.setattr(sender, "_post", stuck)
    sender.put(SPAN)
    assert begun.wait(30)
    for _ in range(5):
        sender.put(SPAN)
    assert sender.dropped == 3
    blocked.set()
    sender.stop()
    assert (sender.sent, sender.dropped) == (3, 3)


def test_metrics_tell_of_spans_where_there_is_a_collector(collector: Collector) -> None:
    metrics = Metrics(version="1", llama_commit="2", model="m")
    assert b"spans" not in metrics.text()
    sender = SpanSender(collector.url, {})
    metrics.add(sender)
    sender.put(SPAN)
    sender.stop()
    assert b"steelyard_spans_sent_total 1.0" in metrics.text()
    assert b"steelyard_spans_dropped_total 0.0" in metrics.text()


def test_nothing_is_told_unless_a_collector_is_named(tmp_path: Path) -> None:
    assert spans_of(TracesConfig(), "1") is None
    assert load(None, {"HOME": str(tmp_path)}).traces.endpoint == ""


@pytest.mark.parametrize(
    "url",
    [
        "collector:4318",
        "ftp://x/",
        "http://",
        "http://me:pw@x/",
        "http://x/?a=1",
        "http://x y",
        "http://[::1/",
        "http://x:99999/",
        "http://x:y/",
        "http://:80/",
    ],
)
def test_an_endpoint_that_is_no_url_is_refused(tmp_path: Path, url: str) -> None:
    env = {"HOME": str(tmp_path), "STEELYARD_TRACES_ENDPOINT": url}
    with pytest.raises(ConfigError, match="endpoint"):
        load(None, env)
