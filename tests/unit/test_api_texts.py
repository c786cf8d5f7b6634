"""Text completions, llama-server's completion, embeddings, tokens."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import openai
import pytest

from appliance.api.box import Box
from appliance.engine.commands import Submit
from appliance.forecast import encoder
from tests.unit.api_box import client_of, events_of, make_box, saying


async def post(box: Box, path: str, **body: Any) -> Any:
    return await client_of(box).post(path, json=body)


def submitted(box: Box) -> list[Submit]:
    supervisor: Any = box.supervisor
    return [ticket.request for ticket in supervisor.tickets.values()]


async def test_a_text_is_continued(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    body = (await post(box, "/v1/completions", prompt="abc")).json()
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["choices"][0] == {
        "index": 0,
        "text": "Hello",
        "finish_reason": "stop",
        "logprobs": None,
    }
    assert body["usage"]["prompt_tokens"] == 3
    assert submitted(box)[0].max_tokens == box.n_ctx - 3


async def test_token_ids_are_a_prompt_as_they_are(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    await post(box, "/v1/completions", prompt=[5, 6, 7])
    assert submitted(box)[0].prompt == (5, 6, 7)
    answer = await post(box, "/v1/completions", prompt=[5, 256])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"


async def test_choices_of_several_prompts_are_numbered_through(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    body = (await post(box, "/v1/completions", prompt=["ab", "c"], n=2)).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [request.prompt for request in submitted(box)] == [(97, 98), (99,)]
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 12


async def test_several_prompts_stream_side_by_side(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    answer = await post(
        box,
        "/v1/completions",
        prompt=["ab", "c"],
        stream=True,
        stream_options={"include_usage": True},
    )
    *events, last = events_of(answer.text)
    assert last == "[DONE]"
    found = [json.loads(event) for event in events]
    for index in (0, 1):
        own = [c for chunk in found for c in chunk["choices"] if c["index"] == index]
        assert "".join(choice["text"] for choice in own) == "Hello"
        assert own[-1]["finish_reason"] == "stop"
    assert found[-1]["usage"]["completion_tokens"] == 6
    assert found[-1]["usage"]["prompt_tokens"] == 3


async def test_logprobs_have_the_old_shape(tmp_path: Path) -> None:
    box = make_box(tmp_path, saying("H", "i"))
    body = (await post(box, "/v1/completions", prompt="a", logprobs=1)).json()
    found = body["choices"][0]["logprobs"]
    assert found["tokens"] == ["H", "i"]
    assert found["text_offset"] == [0, 1]
    assert found["token_logprobs"] == [-0.5, -0.5]
    assert found["top_logprobs"][0] == {"H": -0.5, "A": -1.5}
    answer = await post(box, "/v1/completions", prompt="a", logprobs=1, stream=True)
    chunks = [json.loads(event) for event in events_of(answer.text)[:-1]]
    entries = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    assert [t for e in entries for t in e["tokens"]] == ["H", "i"]
    assert [t for e in entries for t in e["text_offset"]] == [0, 1]


async def test_an_empty_prompt_is_refused(tmp_path: Path) -> None:
    answer = await post(make_box(tmp_path), "/v1/completions", prompt="")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"


async def test_the_native_answer_has_llama_servers_fields(tmp_path: Path) -> None:
    body = (await post(make_box(tmp_path), "/completion", prompt="abc", n_predict=9)).json()
    names = (
        "index content tokens id_slot stop model tokens_predicted tokens_evaluated prompt "
        "generation_settings has_new_line truncated stop_type stopping_word tokens_cached timings"
    )
    assert set(body) == set(names.split())
    assert (body["content"], body["prompt"], body["stop"]) == ("Hello", "abc", True)
    assert (body["tokens_predicted"], body["tokens_evaluated"]) == (3, 3)
    assert (body["stop_type"], body["tokens"]) == ("eos", [])
    assert body["generation_settings"]["n_predict"] == 9


async def test_a_native_stream_ends_with_the_whole_of_it(tmp_path: Path) -> None:
    answer = await post(
        make_box(tmp_path), "/completion", prompt="a", stream=True, return_tokens=True
    )
    *chunks, last = [json.loads(event) for event in events_of(answer.text)]
    assert "".join(chunk["content"] for chunk in chunks) == "Hello"
    assert [t for chunk in chunks for t in chunk["tokens"]] == [72, 108, 0]
    assert all(chunk["stop"] is False for chunk in chunks)
    assert last["stop"] is True
    assert last["content"] == ""
    assert last["timings"]["predicted_n"] == 3


async def test_native_probabilities_and_limits(tmp_path: Path) -> None:
    box = make_box(tmp_path, saying("H", "i"))
    body = (await post(box, "/completions", prompt="a", n_probs=2, n_predict=-1)).json()
    (first, second) = body["completion_probabilities"]
    assert (first["id"], first["token"], second["token"]) == (72, "H", "i")
    assert first["top_logprobs"][1] == {"id": 65, "token": "A", "logprob": -1.5, "bytes": [65]}
    assert submitted(box)[0].max_tokens == box.n_ctx - 1


async def test_several_native_prompts_give_a_list(tmp_path: Path) -> None:
    body = (await post(make_box(tmp_path), "/completion", prompt=["a", "b"], n_predict=2)).json()
    assert [answer["prompt"] for answer in body] == ["a", "b"]


async def test_what_llama_server_takes_and_we_do_not_do_is_listed_or_refused(
    tmp_path: Path,
) -> None:
    box = make_box(tmp_path)
    answer = await post(box, "/completion", prompt="a", id_slot=0, n_keep=4, mirostat=0)
    assert answer.status_code == 200
    assert answer.headers["x-ignored-params"] == "id_slot, n_keep"
    for field, value in {"mirostat": 1, "dry_multiplier": 0.5, "xtc_probability": 0.1}.items():
        answer = await post(box, "/completion", prompt="a", **{field: value})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == field


async def test_tokens_and_texts_are_turned_into_each_other(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    tokens = (await post(box, "/tokenize", content="hé")).json()["tokens"]
    assert tokens == [104, 195, 169]
    assert (await post(box, "/detokenize", tokens=tokens)).json() == {"content": "hé"}
    assert (await post(box, "/detokenize", tokens=[])).json() == {"content": ""}
    pieces = (await post(box, "/tokenize", content="hé", with_pieces=True)).json()["tokens"]
    assert pieces == [
        {"id": 104, "piece": "h"},
        {"id": 195, "piece": [195]},
        {"id": 169, "piece": [169]},
    ]
    assert (await post(box, "/detokenize", tokens=[256])).status_code == 400
    assert (await post(box, "/detokenize", tokens=[-1])).status_code == 400
    messages = [{"role": "user", "content": "hi"}]
    assert (await post(box, "/apply-template", messages=messages)).json() == {"prompt": "hi"}


async def test_embeddings_are_unit_vectors_and_counted_exactly(tmp_path: Path) -> None:
    answer = await post(make_box(tmp_path), "/v1/embeddings", input=["hello world", "hi"])
    body = answer.json()
    assert body["object"] == "list"
    assert [entry["index"] for entry in body["data"]] == [0, 1]
    for entry in body["data"]:
        assert len(entry["embedding"]) == 384
        assert sum(v * v for v in entry["embedding"]) == pytest.approx(1, abs=1e-5)
    assert body["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


async def test_a_text_has_one_vector_whatever_its_company(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    alone = (await post(box, "/v1/embeddings", input="hello")).json()["data"][0]
    long = "a much longer sentence that would have made the others padded"
    beside = (await post(box, "/v1/embeddings", input=[long, "hello"])).json()["data"][1]
    assert alone["embedding"] == beside["embedding"]
    ids = (await post(box, "/v1/embeddings", input=[101, 7592, 102])).json()["data"][0]
    assert ids["embedding"] == alone["embedding"]


async def test_the_openai_client_reads_embeddings(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    sdk = openai.AsyncOpenAI(
        base_url="http://localhost:8421/v1",
        api_key="none",
        http_client=client_of(box),  # type: ignore[arg-type]
    )
    found = await sdk.embeddings.create(model="default", input="hello")
    plain = (await post(box, "/v1/embeddings", input="hello")).json()
    assert found.data[0].embedding == pytest.approx(plain["data"][0]["embedding"], abs=1e-7)
    coded = (await post(box, "/v1/embeddings", input="hello", encoding_format="base64")).json()
    raw = base64.b64decode(coded["data"][0]["embedding"])
    assert list(struct.unpack("<384f", raw)) == plain["data"][0]["embedding"]


@pytest.mark.parametrize(
    "given",
    [
        "",
        ["a", ""],
        [101, 30522, 102],
        [7592],  # without the encoder's marks: another tokenizer's, most likely
        [101, 7592],
        [[15339, 1917]],
        [[]],
        "word " * 300,
        "x" * 70_000,
        [101, *range(1000, 1300), 102],
        [],
        None,
    ],
)
async def test_what_cannot_be_embedded_is_400(tmp_path: Path, given: Any) -> None:
    answer = await post(make_box(tmp_path), "/v1/embeddings", input=given)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("input")


async def test_the_faulty_text_is_named_by_its_place(tmp_path: Path) -> None:
    texts = ["a"] * 20 + ["word " * 300]
    answer = await post(make_box(tmp_path), "/v1/embeddings", input=texts)
    assert "input 20 has 302 tokens" in answer.json()["error"]["message"]
    assert answer.json()["error"]["n_ctx"] == 256


async def test_a_missing_encoder_is_503_and_degraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "MODEL_SHA256", "00" * 32)
    box = make_box(tmp_path)
    answer = await post(box, "/v1/embeddings", input="a")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "encoder_unavailable"
    degraded = (await client_of(box).get("/readyz")).json()["degraded"]
    assert any("model.onnx" in reason for reason in degraded)
    assert not any("/" in reason for reason in degraded)


async def test_embeddings_know_the_encoders_names_alone(tmp_path: Path) -> None:
    box = make_box(tmp_path)
    for name in ("default", encoder.NAME, "all-MiniLM-L6-v2"):
        assert (await post(box, "/v1/embeddings", input="a", model=name)).status_code == 200
    assert (await post(box, "/v1/embeddings", input="a", model="tiny")).status_code == 404
