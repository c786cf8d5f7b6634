"""Token digests of answers as they are written: the definition, however the tokens come."""

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.digests import Digests
from appliance.ledger.verify import token_digest
from tests.unit.api_box import chat, client_of, events_of, make_box, saying

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=40)


def by_hand(tokens: Sequence[int]) -> str:
    """The definition (version 1), written once more."""
    said = hashlib.sha256(b"steelyard-token-v1\n")
    for place, token in enumerate(tokens, start=1):
        said.update(struct.pack("<I", token) + struct.pack("<I", place))
    return said.hexdigest()


def test_digest_of_a_known_answer() -> None:
    digests = Digests([(1, 2, 3)], 1)
    digests.add(0, (4,))
    expected = "81116996b79eb3baf56cc30122f7b99e96f7492216b1c59ff3f89bb4e2550dea"
    assert digests.of(0) == by_hand([1, 2, 3, 4]) == token_digest([1, 2, 3], [4]) == expected


@given(prompt=IDS, parts=st.lists(IDS, max_size=6))
def test_it_does_not_matter_in_which_pieces_the_tokens_come(
    prompt: list[int], parts: list[list[int]]
) -> None:
    digests = Digests([prompt], 1)
    for part in parts:
        digests.add(0, part)
    whole = [token for part in parts for token in part]
    assert digests.of(0) == by_hand(prompt + whole) == token_digest(prompt, whole)


def test_choices_and_prompts_do_not_mix() -> None:
    digests = Digests([(1,), (2, 3)], 2)
    for step in range(3):
        for choice in range(4):
            digests.add(choice, (10 * choice + step,))
    expected = [
        by_hand([1, 0, 1, 2]),
        by_hand([1, 10, 11, 12]),
        by_hand([2, 3, 20, 21, 22]),
        by_hand([2, 3, 30, 31, 32]),
    ]
    assert digests.all == ",".join(expected)
    assert [digests.of(choice) for choice in range(4)] == expected


def test_choice_without_tokens_has_the_digest_of_its_prompt() -> None:
    digests = Digests([(5, 6)], 2)
    digests.add(1, (7,))
    assert digests.of(0) == by_hand([5, 6])
    assert digests.all == f"{by_hand([5, 6])},{by_hand([5, 6, 7])}"


def test_digest_can_be_asked_in_the_middle() -> None:
    digests = Digests([(1,)], 1)
    for token in range(5):
        digests.add(0, (token,))
        assert digests.of(0) == by_hand([1, *range(token + 1)])


def test_order_and_position_count() -> None:
    assert by_hand([1, 2]) != by_hand([2, 1])
    swapped = Digests([(2,)], 1)
    swapped.add(0, (1,))
    assert swapped.of(0) == by_hand([2, 1]) != by_hand([1, 2])


# In answers

NAME = "X-Token-Diff-SHA256"
HI = tuple(b"hi")
SCRIPT = saying(choice_texts=[["Hel", "lo"], ["Yo"]])
SAID = [[ord("H"), ord("l"), 0], [ord("Y"), 0]]
"""Its token ids, with the EOS that no text shows."""
DIGESTS = [token_digest(HI, ids) for ids in SAID]

ROUTES = [
    ("/v1/chat/completions", chat(n=2)),
    ("/v1/completions", {"prompt": "hi", "n": 2}),
    ("/completion", {"prompt": "hi", "n_cmpl": 2}),
]
routes = pytest.mark.parametrize(("path", "body"), ROUTES, ids=[path for path, _ in ROUTES])


async def streamed(tmp_path: Path, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await client_of(make_box(tmp_path, SCRIPT)).post(path, json={**body, "stream": True})
    assert answer.status_code == 200
    assert NAME not in answer.headers, "it is not known yet"
    return [json.loads(event) for event in events_of(answer.text) if event != "[DONE]"]


@routes
async def test_whole_answer_has_a_header_with_every_choices_digest(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    answer = await client_of(make_box(tmp_path, SCRIPT)).post(path, json=body)
    assert answer.headers[NAME] == ",".join(DIGESTS)
    assert NAME not in answer.text


@routes
async def test_chunk_that_ends_a_choice_has_its_digest(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    found = {}
    for chunk in await streamed(tmp_path, path, body):
        ending = chunk if path == "/completion" else chunk["choices"][0]
        ends = ending.get("stop") or ending.get("finish_reason")
        assert (NAME in chunk) == bool(ends)
        if ends:
            found[ending["index"]] = chunk[NAME]
    assert found == dict(enumerate(DIGESTS))


@pytest.mark.parametrize(("path", "body"), ROUTES[:2], ids=["chat", "completions"])
async def test_usage_chunk_has_all_digests(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    asked = {**body, "stream_options": {"include_usage": True}}
    *_, last = await streamed(tmp_path, path, asked)
    assert last["usage"]["completion_tokens"] == 5
    assert last[NAME] == ",".join(DIGESTS)


async def test_every_prompt_of_a_call_has_digests_of_its_own(tmp_path: Path) -> None:
    body = {"prompt": ["hi", "ho"], "n": 1}
    answer = await client_of(make_box(tmp_path, saying("x"))).post("/v1/completions", json=body)
    expected = [token_digest(tuple(prompt), [ord("x"), 0]) for prompt in (b"hi", b"ho")]
    assert answer.headers[NAME] == ",".join(expected)


async def test_web_pages_that_may_call_can_read_the_header(tmp_path: Path) -> None:
    box = make_box(tmp_path, api={"cors_origins": ("https://app.example",)})
    headers = {"Origin": "https://app.example"}
    answer = await client_of(box).post("/v1/chat/completions", json=chat(), headers=headers)
    assert NAME in answer.headers["access-control-expose-headers"]
