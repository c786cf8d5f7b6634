"""A study's talk with the box, and what it keeps, against a small server of our own."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from appliance.study.asking import TRIES, Box, NotAnswered
from appliance.study.driver import begin
from appliance.study.errors import StudyError
from appliance.study.running import Job, run, unanswered
from appliance.study.store import Answer, Head, Store

MODELS = {"data": [{"id": "small", "meta": {"sha256": "ab" * 32, "n_ctx": 2048}}]}
Reply = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any], dict[str, str]]]


def answer(text: str = "Hi.", tokens: int = 3, reason: str = "stop") -> dict[str, Any]:
    choice = {"message": {"content": text}, "finish_reason": reason, "token_ids": [1, 2, 3]}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}


def refusal(code: str) -> dict[str, Any]:
    return {"error": {"message": f"told {code}", "code": code}}


class _Handler(BaseHTTPRequestHandler):
    reply: Reply

    def _answer(self, body: dict[str, Any]) -> None:
        status, found, headers = self.reply(self.path, {**body, "_headers": dict(self.headers)})
        data = json.dumps(found).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(reply: Reply) -> Iterator[str]:
    handler = type("Handler", (_Handler,), {"reply": staticmethod(reply)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def always(status: int, found: dict[str, Any]) -> Reply:
    return lambda path, body: (status, MODELS if path == "/v1/models" else found, {})


def in_turn(*replies: tuple[int, dict[str, Any], dict[str, str]]) -> Reply:
    left = iter(replies)
    return lambda path, body: next(left)


def never(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


HEAD = Head(experiment="grid", model="small", sha256="ab", settings={"samples": 2, "at": (1, 2)})


# -- asking ----------------------------------------------------------------------------------------


def test_request_names_the_served_model_comes_last_and_carries_the_key() -> None:
    seen: list[dict[str, Any]] = []

    def reply(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        seen.append(body)
        return 200, MODELS if path == "/v1/models" else answer(), {}

    with served(reply) as url:
        box = Box(url + "/", "sk-steelyard-1", sleep=never)
        assert box.served().model == "small"
        assert box.chat({"messages": [], "seed": 3})["usage"]["completion_tokens"] == 3
    body = seen[1]
    assert (body["model"], body["service_tier"], body["seed"]) == ("small", "flex", 3)
    assert body["_headers"]["Authorization"] == "Bearer sk-steelyard-1"


def test_busy_box_is_asked_again_when_it_says() -> None:
    waits: list[float] = []
    busy = (429, refusal("queue_full"), {"Retry-After": "7"})
    down = (503, refusal("draining"), {})
    with served(in_turn(busy, down, down, (200, answer(), {}))) as url:
        box = Box(url, sleep=waits.append)
        assert box.chat({})["choices"]
    assert waits == [7.0, 1.0, 2.0]


def test_box_that_never_answers_ends_the_study_with_what_to_do() -> None:
    waits: list[float] = []
    with served(always(503, refusal("draining"))) as url:
        box = Box(url, sleep=waits.append)
        with pytest.raises(StudyError, match=r"told draining.*run the same command again"):
            box.chat({})
    assert len(waits) == TRIES
    assert max(waits) == 30.0


def test_no_box_is_said_at_once() -> None:
    with served(always(200, MODELS)) as url:
        pass
    with pytest.raises(StudyError, match=r"no box answers at http.*steelyard serve"):
        Box(url, sleep=never).served()


@pytest.mark.parametrize("found", [{}, {"data": []}, {"data": [{"id": "x"}]}, {"data": 3}])
def test_another_kind_of_server_is_recognised(found: dict[str, Any]) -> None:
    with (
        served(lambda path, body: (200, found, {})) as url,
        pytest.raises(StudyError, match="not a Steelyard box"),
    ):
        Box(url, sleep=never).served()


@pytest.mark.parametrize("status", [401, 403])
def test_missing_key_names_the_scope(status: int) -> None:
    with (
        served(lambda path, body: (status, refusal("no"), {})) as url,
        pytest.raises(StudyError, match=r"scope infer.*STEELYARD_API_KEY"),
    ):
        Box(url, sleep=never).served()


def test_request_that_will_never_do_is_not_repeated() -> None:
    with (
        served(always(400, refusal("context_length_exceeded"))) as url,
        pytest.raises(NotAnswered, match="context_length_exceeded"),
    ):
        Box(url, sleep=never).chat({})


def test_request_that_may_have_ended_the_engine_is_not_repeated() -> None:
    reply = (500, refusal("engine_crashed"), {"x-should-retry": "false"})
    with served(in_turn(reply)) as url, pytest.raises(NotAnswered, match="engine_crashed"):
        Box(url, sleep=never).chat({})


def test_used_up_quota_ends_the_study() -> None:
    with (
        served(always(429, refusal("insufficient_quota"))) as url,
        pytest.raises(StudyError, match="run again"),
    ):
        Box(url, sleep=never).chat({})


@pytest.mark.parametrize("url", ["", "foo", "ftp://x", "127.0.0.1:8421"])
def test_url_of_no_use_is_refused(url: str) -> None:
    with pytest.raises(StudyError, match="--url"):
        Box(url)


def test_ca_file_and_key_of_no_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="CA"):
        Box("https://127.0.0.1:1", cacert=str(tmp_path / "none"))
    with pytest.raises(StudyError, match="key"):
        Box("http://127.0.0.1:1", "sk\n")


# -- running ---------------------------------------------------------------------------------------


def jobs(count: int) -> list[Job]:
    return [Job(f"job {i}", {"messages": [], "seed": i}) for i in range(count)]


def test_every_job_is_asked_once_and_kept(tmp_path: Path) -> None:
    seen: list[int] = []

    def reply(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        seen.append(body["seed"])
        return 200, answer(tokens=body["seed"] + 1), {}

    ticks: list[None] = []
    with served(reply) as url, Store(tmp_path / "a.jsonl", HEAD) as store:
        run(jobs(20), Box(url, sleep=never), store, 3, lambda: ticks.append(None))
    assert sorted(seen) == list(range(20))
    assert len(ticks) == 20
    assert store.done["job 7"] == Answer(
        key="job 7", tokens=8, finish_reason="stop", prompt_tokens=5, text="Hi.",
        token_ids=(1, 2, 3),
    )  # fmt: skip


def test_refused_job_is_kept_as_such_and_asked_again_next_time(tmp_path: Path) -> None:
    with served(always(400, refusal("bad"))) as url, Store(tmp_path / "a.jsonl", HEAD) as store:
        run(jobs(1), Box(url, sleep=never), store, 1, lambda: None)
    assert store.done["job 0"].problem == "told bad (bad)"
    assert unanswered(jobs(1), store) == jobs(1)


def test_failure_ends_the_run_and_keeps_what_came_before(tmp_path: Path) -> None:
    replies = in_turn((200, answer(), {}), (200, answer(), {}), (401, refusal("key"), {}))
    with (
        served(replies) as url,
        Store(tmp_path / "a.jsonl", HEAD) as store,
        pytest.raises(StudyError),
    ):
        run(jobs(9), Box(url, sleep=never), store, 1, lambda: None)
    with Store(tmp_path / "a.jsonl", HEAD) as again:
        assert sorted(again.done) == ["job 0", "job 1"]
        assert len(unanswered(jobs(9), again)) == 7


# -- the store -------------------------------------------------------------------------------------


def test_torn_last_line_is_dropped_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Store(path, HEAD) as store:
        store.add(Answer(key="a", tokens=1))
        store.add(Answer(key="b", tokens=2))
    path.write_bytes(path.read_bytes()[:-5])
    with Store(path, HEAD) as store:
        assert sorted(store.done) == ["a"]
        store.add(Answer(key="c", tokens=3))
    with Store(path, HEAD) as store:
        assert sorted(store.done) == ["a", "c"]


def test_file_cut_inside_its_head_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"experiment":"gr')
    with Store(path, HEAD) as store:
        store.add(Answer(key="a"))
    with Store(path, HEAD) as store:
        assert sorted(store.done) == ["a"]


@pytest.mark.parametrize("head", [b"[]\n", b"\xff\n", b'{"experiment":"limits"}\n', b"x\n"])
def test_foreign_file_is_left_alone(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(head)
    with pytest.raises(StudyError, match="--fresh"):
        Store(path, HEAD)
    assert path.read_bytes() == head


def test_answers_of_another_model_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Store(path, HEAD).close()
    with pytest.raises(StudyError, match="another study"):
        Store(path, Head(experiment="grid", model="small", sha256="cd", settings=HEAD.settings))


def test_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match="another --output"):
        Store(tmp_path / "file" / "a.jsonl", HEAD)


def test_fresh_forgets_earlier_answers(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_bytes(b"x\n")
    with served(always(200, answer())) as url:
        begin(Box(url, sleep=never), tmp_path, 1, True, None)  # type: ignore[arg-type]
    assert not (tmp_path / "answers.jsonl").exists()
