"""Streams and answers that do not go well: queues, silence, faults, clients that leave."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from appliance.api.app import create_app
from appliance.api.box import Box
from appliance.engine.commands import Submit
from appliance.engine.reports import Delta, Finished, Started
from appliance.errors import ApiError, DeadlineExceeded, EngineFailed, Unavailable
from appliance.prepare.messages import Prepared
from tests.unit.api_box import chat, client_of, counts, events_of, make_box, saying

PATH = "/v1/chat/completions"


def failing(fault: ApiError, *, after: int = 1) -> Any:
    """Says `after` tokens, then the fault."""

    def script(submit: Submit) -> list[Any]:
        steps: list[Any] = [Started(submit.id, 1.0, 0)]
        if submit.stream:
            steps += [Delta(submit.id, 0, "a", (97,))] * after
        return [*steps, fault]

    return script


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (EngineFailed("it crashed", code="engine_crashed"), 500),
        (DeadlineExceeded("too late", code="deadline_exceeded"), 408),
        (Unavailable("stopping", code="shutting_down"), 503),
    ],
)
async def test_a_fault_is_one_typed_error(tmp_path: Path, fault: ApiError, status: int) -> None:
    client = client_of(make_box(tmp_path, failing(fault)))
    whole = await client.post(PATH, json=chat())
    assert whole.status_code == status
    assert whole.json()["error"]["code"] == fault.code
    stream = await client.post(PATH, json=chat(stream=True))
    assert stream.status_code == 200
    *_, last = events_of(stream.text)
    assert json.loads(last)["error"]["code"] == fault.code
    assert "[DONE]" not in stream.text
    assert stream.text.count('"error"') == 1


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        ("cancelled", 499, "cancelled"),
        ("deadline", 408, "deadline_exceeded"),
        ("error", 500, "failed"),
    ],
)
async def test_an_end_that_is_no_answer_is_an_error(
    tmp_path: Path, reason: Any, status: int, code: str
) -> None:
    def script(submit: Submit) -> list[Any]:
        return [
            Started(submit.id, 1.0, 0),
            Finished(submit.id, 0, reason, "none", "", counts(2, 0)),
        ]

    answer = await client_of(make_box(tmp_path, script)).post(PATH, json=chat())
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code


async def test_a_grammar_that_fails_in_mid_answer_is_the_clients_fault(tmp_path: Path) -> None:
    def script(submit: Submit) -> list[Any]:
        why = "too many items\n<non-verbose/>"
        ends = Finished(submit.id, 0, "error", "none", "", counts(2, 0), why)
        return [Started(submit.id, 1.0, 0), ends]

    box = make_box(tmp_path, script)
    prepared = Prepared(prompt=(), text="", grammar="a grammar")
    box.preparer.prepared = prepared  # type: ignore[attr-defined]
    answer = await client_of(box).post(PATH, json=chat())
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "grammar_failed"
    assert error["message"].endswith("of the request: too many items")


async def test_one_choice_that_fails_ends_the_others(tmp_path: Path) -> None:
    def script(submit: Submit) -> list[Any]:
        ends = Finished(submit.id, 0, "error", "none", "", counts(2, 0), "no")
        return [Started(submit.id, 1.0, 0), ends, 60.0]

    box = make_box(tmp_path, script)
    answer = await client_of(box).post(PATH, json=chat(n=2))
    assert answer.status_code == 500
    supervisor: Any = box.supervisor
    assert supervisor.last.cancelled.is_set()


async def test_a_waiting_stream_tells_its_place_in_the_queue(tmp_path: Path) -> None:
    def script(submit: Submit) -> list[Any]:
        return [0.05, *saying("a")(submit)]

    box = make_box(tmp_path, script, server={"sse_ping_s": 0.1})
    supervisor: Any = box.supervisor
    supervisor.position = 3
    answer = await client_of(box).post(PATH, json=chat(stream=True))
    assert answer.headers["x-queue-position"] == "3"
    assert answer.text.startswith(": queue position 3\n\n")
    assert "data: [DONE]" in answer.text


async def test_silence_is_filled_with_comments(tmp_path: Path) -> None:
    def script(submit: Submit) -> list[Any]:
        started, *rest = saying("a")(submit)
        return [started, 0.35, *rest]

    box = make_box(tmp_path, script, server={"sse_ping_s": 0.1})
    answer = await client_of(box).post(PATH, json=chat(stream=True))
    assert 2 <= answer.text.count(": working\n\n") <= 4


class Gone:
    """An ASGI client that hangs up when told to."""

    def __init__(self, box: Box, body: dict[str, Any]) -> None:
        self.leave = asyncio.Event()
        self.sent: list[Any] = []
        self._app = create_app(box)
        self._bodies = [json.dumps(body).encode()]

    async def receive(self) -> Any:
        if self._bodies:
            return {"type": "http.request", "body": self._bodies.pop(), "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def call(self) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": PATH,
            "raw_path": PATH.encode(),
            "root_path": "",
            "query_string": b"",
            "scheme": "http",
            "http_version": "1.1",
            "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 8421),
        }
        await self._app(scope, self.receive, self.send)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("state", ["queued", "running"])
async def test_a_client_that_leaves_is_cancelled_at_once(
    tmp_path: Path, stream: bool, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    def script(submit: Submit) -> list[Any]:
        return [60.0] if state == "queued" else [Started(submit.id, 1.0, 0), 60.0]

    caplog.set_level("INFO", "appliance.access")
    box = make_box(tmp_path, script)
    client = Gone(box, chat(stream=stream, n=2))
    call = asyncio.create_task(client.call())
    supervisor: Any = box.supervisor
    while not supervisor.tickets:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not supervisor.last.cancelled.is_set()
    client.leave.set()
    await asyncio.wait_for(call, 30)
    assert supervisor.last.cancelled.is_set()
    assert "outcome=disconnected" in caplog.text
    bodies = [m for m in client.sent if m["type"] == "http.response.body"]
    assert all(m["more_body"] for m in bodies)


async def test_a_client_that_leaves_in_its_body_submits_nothing(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    client = Gone(box, chat())
    client._bodies = []
    client.leave.set()
    await client.call()
    supervisor: Any = box.supervisor
    assert not supervisor.tickets
    assert client.sent == []


async def test_several_prompts_are_admitted_all_or_none(tmp_path: Path) -> None:
    box = make_box(tmp_path, lambda submit: [60.0])
    admission: Any = box.admission
    admitted = 0

    def admit(*_: Any) -> None:
        nonlocal admitted
        admitted += 1
        if admitted == 3:
            raise Unavailable("no")

    admission.admit = admit
    answer = await client_of(box).post("/v1/completions", json={"prompt": ["a", "b", "c"]})
    assert answer.status_code == 503
    supervisor: Any = box.supervisor
    assert len(supervisor.tickets) == 2
    assert all(ticket.cancelled.is_set() for ticket in supervisor.tickets.values())


async def test_a_bug_is_500_with_an_id_that_the_log_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def script(submit: Submit) -> list[Any]:
        raise RuntimeError("secret detail")

    answer = await client_of(make_box(tmp_path, script)).post(PATH, json=chat())
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert "secret" not in answer.text
    assert error["trace_id"] == answer.headers["x-request-id"]
    assert error["trace_id"] in caplog.text
    assert "secret detail" in caplog.text


async def test_every_request_is_one_log_line_without_its_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "appliance.access")
    body = {"messages": [{"role": "user", "content": "top secret"}], "user": "u-1 status=500\n"}
    await client_of(make_box(tmp_path)).post(PATH, json=body)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "appliance.access"]
    assert "secret" not in line
    for part in (
        "status=200",
        "outcome=stop",
        "prompt=10",
        "completion=3",
        "user=u-1_status_500_ ",
    ):
        assert part in line


@pytest.mark.parametrize(
    ("given", "kept"),
    [("abc-1._Z", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("a\u00e9", False)],
)
async def test_only_harmless_request_ids_are_taken(tmp_path: Path, given: str, kept: bool) -> None:
    headers = {"X-Request-Id": given.encode()}
    answer = await client_of(make_box(tmp_path)).get("/health", headers=headers)  # type: ignore[arg-type]
    assert (answer.headers["x-request-id"] == given) == kept
    assert answer.headers["x-request-id"]


async def test_a_trace_goes_on_under_a_span_of_ours(tmp_path: Path) -> None:
    client = client_of(make_box(tmp_path))
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    headers = {"traceparent": f"00-{trace}-{span}-01"}
    version, found, own, flags = (
        (await client.get("/health", headers=headers)).headers["traceparent"].split("-")
    )
    assert (version, found, flags) == ("00", trace, "01")
    assert own != span
    for wrong in ("", "00-" + "0" * 32 + f"-{span}-01", f"ff-{trace}-{span}-01", "x"):
        headers = {"traceparent": wrong}
        answer = await client.get("/health", headers=headers)
        assert answer.headers["traceparent"].split("-")[1] not in (trace, "0" * 32)
