"""The diff protocol from outside: digests that a client computes itself, conflicts, replays."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.accounts.keys import FILE_NAME, KeyStore
from tests.box.conftest import Start
from tests.box.running import RunningBox
from tests.box.wire import CHAT, HELLO, events_of, saying

ROOT = Path(__file__).resolve().parents[2]
NAME = "X-Token-Diff-SHA256"
FORGED = "5a" * 32
GREEDY: dict[str, Any] = {"temperature": 0, "return_token_ids": True}


def documented(box: RunningBox, key: str = "none") -> dict[str, Any]:
    """The client's side as docs/diff-protocol.md shows it, for this box."""
    page = (ROOT / "docs/diff-protocol.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    found: dict[str, Any] = {}
    exec(code, found)
    found.update(URL=box.url, KEY=key)
    return found


def complete(box: RunningBox, **body: Any) -> httpx.Response:
    answer = box.http.post("/v1/completions", json={**GREEDY, **body})
    assert answer.status_code == 200, answer.text
    return answer


def verify(box: RunningBox, name: str, **body: Any) -> httpx.Response:
    return box.http.post(f"/v1/audit/{name}/verify", json=body)


def conflict(box: RunningBox, name: str, **body: Any) -> Any:
    answer = verify(box, name, **{"digest": FORGED, **body})
    assert answer.status_code == 409, answer.text
    return answer.json()["error"]


SHAPES: list[dict[str, Any]] = [
    {"max_tokens": 12},
    {"max_tokens": 8, "n": 2, "temperature": 0.9, "seed": 3},
    {"stop": [" two"], **saying("one two three")},
    {"max_tokens": 30, **saying("Fine.")},
    {"max_tokens": 8, "exclusive": True, "n": 2},
]


@pytest.mark.parametrize("more", SHAPES, ids=["limit", "n=2", "stop", "eos", "exclusive"])
def test_a_client_computes_the_same_digest_whole_and_streamed(
    box: RunningBox, more: dict[str, Any]
) -> None:
    digest = documented(box)["digest"]
    body = {"messages": HELLO, **GREEDY, **more}
    whole = box.http.post(CHAT, json=body)
    answer = whole.json()
    mine = [digest(answer["prompt_token_ids"], c["token_ids"]) for c in answer["choices"]]
    assert whole.headers[NAME] == ",".join(mine)
    assert verify(box, answer["id"], digests=mine).json()["status"] == "archived"

    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage = events_of(box.http.post(CHAT, json=asked).text)
    prompt = next(chunk["prompt_token_ids"] for chunk in chunks if "prompt_token_ids" in chunk)
    ids: dict[int, list[int]] = {}
    told: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            ids.setdefault(choice["index"], []).extend(choice.get("token_ids", ()))
            if choice["finish_reason"]:
                told[choice["index"]] = chunk[NAME]
    mine = [digest(prompt, ids[index]) for index in sorted(ids)]
    assert [told[index] for index in sorted(told)] == mine
    assert usage[NAME] == ",".join(mine)
    assert verify(box, usage["id"], digest=usage[NAME]).status_code == 200


def test_the_documented_client_works_as_it_stands(box: RunningBox) -> None:
    ask = documented(box)["ask_and_verify"]
    assert ask({"messages": HELLO, "max_tokens": 6, "n": 2}) == "archived"


@pytest.mark.parametrize("stream", [False, True])
def test_native_route_has_it_too(box: RunningBox, stream: bool) -> None:
    digest = documented(box)["digest"]
    prompt = box.http.post("/tokenize", json={"content": "Once", "add_special": True}).json()
    body = {"prompt": "Once", "n_predict": 5, "return_tokens": True, "temperature": 0}
    answer = box.http.post("/completion", json={**body, "stream": stream})
    if stream:
        events = events_of(answer.text)
        ids, told = [t for e in events for t in e["tokens"]], events[-1][NAME]
    else:
        ids, told = answer.json()["tokens"], answer.headers[NAME]
    assert told == digest(prompt["tokens"], ids)


def test_exclusive_greedy_answer_is_replayed_to_the_last_bit(box: RunningBox) -> None:
    for number in range(3):  # others' prompts, kept in the cache
        complete(box, prompt=f"Number {number} of many others.", max_tokens=4)
    answer = complete(box, prompt="The sea is", max_tokens=24, exclusive=True, logprobs=0)
    (choice,) = answer.json()["choices"]
    error = conflict(box, answer.json()["id"])
    report = error["report"]
    assert error["replay"] == "identical"
    assert (report["positions"], report["differing"]) == (24, 0)
    assert report["facts"]["exclusive"] is True
    assert report["facts"]["replay_exclusive"] is True
    assert report["facts"]["reasons"] == []
    steps = report["steps"]
    assert [step["token"] for step in steps] == choice["token_ids"]
    assert [step["picked"] for step in steps] == choice["token_ids"]
    assert [step["logprob"] for step in steps] == choice["logprobs"]["token_logprobs"], "every bit"

    complete(box, prompt="And others again.", max_tokens=4)
    again = box.admin(
        "POST", f"/admin/audit/{answer.json()['id']}/replay", json={"force": True}
    ).json()
    assert again["replay_seq"] > error["replay_seq"]
    assert again["report"]["steps"] == steps


def test_seeded_choice_is_replayed_alone_with_its_own_seed(box: RunningBox) -> None:
    answer = complete(
        box, prompt="It was", max_tokens=12, n=2, temperature=1.1, seed=9, exclusive=True,
        ignore_eos=True,
    )  # fmt: skip
    name, digests = answer.json()["id"], answer.headers[NAME].split(",")
    assert digests[0] != digests[1], "two different answers"
    error = conflict(box, name, choice=1)
    assert (error["choice"], error["replay"]) == (1, "identical")


def test_forged_answer_is_found_and_the_true_one_still_verifies(box: RunningBox) -> None:
    answer = complete(box, prompt="Once upon a time", max_tokens=8)
    body = answer.json()
    (choice,) = body["choices"]
    ids = list(choice["token_ids"])
    ids[3] = (ids[3] + 1) % 1000
    forged = documented(box)["digest"](body["prompt_token_ids"], ids)
    error = conflict(box, body["id"], digest=forged, token_ids=ids)
    assert error["first_difference"] == len(body["prompt_token_ids"]) + 4
    assert error["ids_have_the_claimed_digest"] is True
    assert verify(box, body["id"], digest=answer.headers[NAME]).status_code == 200
    (shown,) = box.http.get(f"/v1/audit/{body['id']}").json()["requests"]
    assert {audit["kind"] for audit in shown["audits"]} == {"conflict", "replay", "archived"}
    listed = box.admin("GET", "/admin/audit/conflicts").json()["conflicts"]
    assert forged in [entry["claimed"] for entry in listed]


def test_exclusive_request_runs_alone_beside_others_and_all_are_answered(box: RunningBox) -> None:
    prompt = {"prompt": "The bridge over", "max_tokens": 16, "logprobs": 0}
    alone = complete(box, **prompt, exclusive=True).json()
    with httpx.Client(base_url=box.url, timeout=120) as other:

        def ask(number: int) -> Any:
            body = {"prompt": f"Other {number}", "max_tokens": 12, **GREEDY}
            if number % 3 == 1:
                body |= {**prompt, "exclusive": True}
            return other.post("/v1/completions", json=body)

        with ThreadPoolExecutor(9) as pool:
            answers = list(pool.map(ask, range(9)))
    assert [answer.status_code for answer in answers] == [200] * 9
    for answer in answers[1::3]:
        found = answer.json()
        assert found["timings"]["parallel"] == 1
        assert found["choices"][0]["token_ids"] == alone["choices"][0]["token_ids"]
        assert found["choices"][0]["logprobs"] == alone["choices"][0]["logprobs"]


def test_what_else_the_box_did_leaves_no_trace_in_an_exclusive_answer(start_box: Start) -> None:
    """Without flash attention, the place of a cell changes the last bits of an answer."""
    box = start_box(engine={"flash_attention": "off"})
    body = {"prompt": "It was used by", "max_tokens": 40, "logprobs": 3}
    first = complete(box, **body, exclusive=True).json()["choices"]
    for number in range(6):
        text = f"Other prompt {number} about bridges and rivers and mountains. " * 5
        complete(box, prompt=text, max_tokens=20)
    assert complete(box, **body, exclusive=True).json()["choices"] == first
    for number in range(3):
        complete(box, prompt=f"More of other prompts: {number}", max_tokens=20)
    crowded = complete(box, **body, cache_prompt=False).json()
    assert crowded["timings"]["parallel"] == 1
    error = conflict(box, crowded["id"])
    assert error["replay"] in ("identical", "differs"), "that is for the machine to say"
    assert error["report"]["facts"]["exclusive"] is False
    assert any("cache" in reason for reason in error["report"]["facts"]["reasons"])


def test_another_key_finds_nothing(start_box: Start, tmp_path: Path) -> None:
    box = start_box()
    store = KeyStore(tmp_path / "1" / "state" / FILE_NAME)
    mine, other = ({"Authorization": f"Bearer {store.create(n, ['infer'])}"} for n in "ab")
    answer = box.http.post(
        CHAT, json={"messages": HELLO, "max_tokens": 4, "temperature": 0}, headers=mine
    )
    path = f"/v1/audit/{answer.json()['id']}"
    body = {"digest": answer.headers[NAME]}
    assert box.http.post(f"{path}/verify", json=body, headers=other).status_code == 404
    assert box.http.get(path, headers=other).status_code == 404
    assert box.http.post(f"{path}/verify", json=body, headers=mine).status_code == 200
    assert box.admin("GET", path).status_code == 200
