"""POST /v1/rerank: order, scores, long documents, both forms, what is refused, and the account."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from appliance.api import reranking
from appliance.api.app import create_app
from appliance.api.box import Box
from appliance.api.encoding import WAITING, EncoderRoom
from appliance.api.reranking import STRIDE, WINDOW, nearest, windows
from appliance.forecast import encoder
from tests.unit.api_box import client_of, ledger_of, make_box

QUERY = "Who keeps bees?"
BAKER, KEEPER, LAW = (
    "The baker sells bread.",
    "A beekeeper looks after hives.",
    "Tax law of 1842.",
)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Box:
    """One for all: its encoder is loaded once."""
    return make_box(tmp_path_factory.mktemp("box"))


async def post(box: Box, path: str = "/v1/rerank", **body: Any) -> Any:
    return await client_of(box).post(path, json={"query": QUERY, **body})


async def vectors(box: Box, *texts: str) -> list[np.ndarray[Any, Any]]:
    answer = await client_of(box).post("/v1/embeddings", json={"input": list(texts)})
    return [np.array(entry["embedding"], np.float32) for entry in answer.json()["data"]]


async def test_the_nearest_comes_first_and_scores_are_cosines(box: Box) -> None:
    body = (await post(box, documents=[BAKER, KEEPER, LAW])).json()
    assert (body["model"], body["object"]) == (encoder.NAME, "list")
    assert [entry["index"] for entry in body["results"]] == [1, 0, 2]
    query, *others = await vectors(box, QUERY, KEEPER, BAKER, LAW)
    scores = [entry["relevance_score"] for entry in body["results"]]
    assert scores == pytest.approx([float(other @ query) for other in others], abs=1e-6)
    assert scores[0] > scores[1] + 0.2
    assert "document" not in body["results"][0]


async def test_top_n_and_documents_are_given_back(box: Box) -> None:
    documents = [BAKER, {"text": KEEPER}, LAW]
    answer = await post(box, documents=documents, top_n=2, return_documents=True)
    results = answer.json()["results"]
    assert [entry["document"] for entry in results] == [{"text": KEEPER}, {"text": BAKER}]
    assert len((await post(box, documents=documents, top_n=9)).json()["results"]) == 3


async def test_equals_stay_in_order(box: Box) -> None:
    answer = await post(box, documents=[BAKER, KEEPER, BAKER, KEEPER])
    assert [entry["index"] for entry in answer.json()["results"]] == [1, 3, 0, 2]


@pytest.mark.parametrize("path", ["/rerank", "/reranking", "/v1/reranking"])
async def test_the_form_with_texts_is_a_list(box: Box, path: str) -> None:
    plain = await post(box, path, texts=[BAKER, KEEPER], truncate=True, raw_scores=False)
    assert [set(entry) for entry in plain.json()] == [{"index", "score"}] * 2
    assert plain.headers["x-ignored-params"] == "truncate"
    full = (await post(box, path, texts=[BAKER, KEEPER], return_text=True)).json()
    assert [entry["text"] for entry in full] == [KEEPER, BAKER]


async def test_a_long_document_counts_by_its_best_window(box: Box) -> None:
    filler = "The tax law of that year has many parts. " * 60
    long = [f"{filler}{KEEPER}", filler]
    results = (await post(box, documents=[*long, BAKER])).json()["results"]
    scores = {entry["index"]: entry["relevance_score"] for entry in results}
    assert scores[0] > scores[1] + 0.1
    cut = (await post(box, documents=[*long, BAKER], max_tokens_per_doc=100)).json()["results"]
    scores = {entry["index"]: entry["relevance_score"] for entry in cut}
    assert scores[0] == scores[1]


async def test_every_token_read_is_on_the_account(box: Box) -> None:
    ids = box.encoder.tokens
    long = "hive " * 600
    answer = await post(box, documents=[BAKER, long])
    read = [len(row) + 2 for row in windows(ids(long)[1:-1])]
    assert len(read) == 3
    tokens = len(ids(QUERY)) + len(ids(BAKER)) + sum(read)
    assert answer.json()["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    row = ledger_of(box).rows[-1]
    assert (row.route, row.outcome, row.prompt_tokens) == ("/v1/rerank", "stop", tokens)
    assert row.model == encoder.NAME


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": ["a"], "texts": ["a"]}, "documents"),
        ({"documents": ["a", ""]}, "documents"),
        ({"texts": [""]}, "texts"),
        ({"documents": ["x" * 70_000]}, "documents"),
        ({"documents": [{"txt": "a"}]}, "documents"),
        ({"documents": "a"}, "documents"),
        ({"documents": ["a"], "query": ""}, "query"),
        ({"documents": ["a"], "query": "word " * 300}, "query"),
        ({"documents": ["a"], "query": "x" * 70_000}, "query"),
        ({"documents": ["a"], "query": None}, "query"),
        ({"documents": ["a"], "top_n": 0}, "top_n"),
        ({"documents": ["a"], "max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ({"documents": ["a"], "texts_": 1}, "texts_"),
    ],
)
async def test_what_cannot_be_ordered_is_400(box: Box, body: dict[str, Any], param: str) -> None:
    answer = await post(box, **body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"] or error["message"]).startswith(param)


async def test_more_windows_than_one_request_may_have(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reranking, "INPUTS", 3)
    documents = ["hive " * 600, BAKER]
    error = (await post(box, documents=documents)).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "4 windows" in error["message"]
    assert (await post(box, documents=documents, max_tokens_per_doc=400)).status_code == 200


async def test_it_knows_the_encoders_names_alone(box: Box) -> None:
    assert (await post(box, documents=["a"], model="default")).status_code == 200
    assert (await post(box, documents=["a"], model="bge-reranker")).status_code == 404


async def test_too_many_at_a_time_are_told_to_come_again(box: Box) -> None:
    app = create_app(box)
    client = client_of(box, app)
    room: EncoderRoom = app.state.encoder_room
    places = [room.place() for _ in range(WAITING)]
    for place in places:
        place.__enter__()
    answer = await client.post("/v1/rerank", json={"query": QUERY, "documents": ["a"]})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    places[0].__exit__(None, None, None)
    answer = await client.post("/v1/rerank", json={"query": QUERY, "documents": ["a"]})
    assert answer.status_code == 200


def test_windows_cover_all_tokens_and_overlap() -> None:
    for size in (0, 1, WINDOW, WINDOW + 1, WINDOW + STRIDE, WINDOW + STRIDE + 1, 5000):
        ids = list(range(size))
        found = windows(ids)
        assert sorted({token for window in found for token in window}) == ids
        assert all(len(window) <= WINDOW for window in found)
        assert len(found) == 1 or all(len(window) == WINDOW for window in found)
        starts = [window[0] for window in found if window]
        assert all(after - before <= STRIDE for before, after in pairwise(starts))
        assert len(set(map(tuple, found))) == len(found)
    assert windows(list(range(900)), most=10) == [list(range(10))]


def test_each_document_has_the_best_of_its_own_windows() -> None:
    query = np.array([1, 0], np.float32)
    rows = [np.array(row, np.float32) for row in ([0, 1], [1, 0], [0.6, 0.8], [-1, 0])]
    assert nearest(query, rows, [2, 1, 1]) == pytest.approx([1, 0.6, -1])
