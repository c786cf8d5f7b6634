"""However a request ends, it has one row in the ledger, exact to the token: as its client was told,
as the engine counted, and as whoever reads the file can compute again.
"""

import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from appliance.ledger.verify.command import main as verify_command
from tests.box.answered import IDS, extra
from tests.box.asking import check_complete
from tests.box.counted import (
    ENGINE,
    LIMITS,
    LONG,
    Counted,
    bring_to,
    check_early_end,
    end_in_every_way,
    name_of,
    named,
    one_of_many,
)
from tests.box.ledgered import (
    Ledgered,
    Row,
    check_chain,
    check_digests,
    check_stages,
    check_sums,
    check_usage,
    settle,
)
from tests.box.running import RunningBox
from tests.box.wire import HELLO, saying


@pytest.fixture(scope="module")
def box_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    """One daemon for all ends that leave it alive."""
    home = tmp_path_factory.mktemp("counted")
    with RunningBox.start(home, engine=ENGINE, limits=LIMITS) as running:
        yield Counted(running, Ledgered(home / "state"))


@pytest.fixture
def counted(box_of_all: Counted) -> Iterator[Counted]:
    box_of_all.box.wait_ready()
    yield box_of_all
    box_of_all.leave()


@pytest.fixture
def client(counted: Counted) -> openai.OpenAI:
    return counted.box.client()


# Answers


def test_a_chat_that_ends_by_itself_is_one_row_with_everything_about_it(
    counted: Counted, client: openai.OpenAI
) -> None:
    call = named()
    answer = client.chat.completions.create(
        messages=HELLO,
        metadata={"scenario": "greeting"},
        seed=11,
        temperature=0.5,
        max_tokens=20,
        extra_body=saying("Hello you.") | IDS,
        **call,
    )
    row = counted.row(name_of(call))
    assert (row["id"], row["outcome"], row["status"], row["code"]) == (answer.id, "stop", 200, "")
    assert (row["route"], row["scenario"]) == ("/v1/chat/completions", "greeting")
    assert (row["key_id"], row["key_name"], row["tenant"]) == ("", "", "default")
    assert (row["n"], row["max_tokens"], row["stream"], row["tier"]) == (1, 20, False, "default")
    assert (row["sampling"]["seed"], row["sampling"]["temperature"]) == (11, 0.5)
    props = counted.box.http.get("/props").json()
    assert row["model"] == props["model_alias"]
    assert row["model_sha256"] == props["model_sha256"]
    assert row["template_sha256"] == props["chat_template_sha256"]
    assert (row["parallel"], row["recovered"], row["exact"]) == (1, False, True)
    assert row["prefill_ns"] > 0
    assert row["decode_ns"] > 0
    assert answer.usage is not None
    check_usage([row], answer.usage.model_dump())
    check_stages(row)
    check_digests(counted.ledger, row)
    told = [extra(answer, "prompt_token_ids"), extra(answer.choices[0], "token_ids")]
    assert counted.ledger.tokens(row) == told
    check_sums(counted.box, counted.ledger)


def test_the_admission_is_an_entry_of_its_own_before_the_row(
    counted: Counted, client: openai.OpenAI
) -> None:
    call = named()
    client.completions.create(prompt="Once", max_tokens=2, **call)
    row = counted.row(name_of(call))
    (admitted,) = (a for a in counted.ledger.entries("admitted") if a["number"] == row["number"])
    assert admitted["seq"] < row["seq"]
    shared = admitted.keys() - {"seq", "wall_ns"}
    assert {name: row[name] for name in shared} == {name: admitted[name] for name in shared}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_of_full_length_is_one_row(
    counted: Counted, client: openai.OpenAI, stream: bool
) -> None:
    call = named()
    fields: Any = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    answer: Any = client.completions.create(
        prompt="Tell me a story:", max_tokens=12, extra_body={"ignore_eos": True}, **fields, **call
    )
    usage = (list(answer) if stream else [answer])[-1].usage
    row = counted.row(name_of(call))
    assert (row["outcome"], row["completion_tokens"], row["stream"]) == ("length", 12, stream)
    check_usage([row], usage.model_dump())
    check_stages(row)
    check_digests(counted.ledger, row)
    check_sums(counted.box, counted.ledger)


def test_a_stop_string_counts_the_tokens_that_it_hides(
    counted: Counted, client: openai.OpenAI
) -> None:
    call = named()
    answer = client.completions.create(
        prompt="Say: ", max_tokens=40, stop=[" three"], extra_body=saying("one two three"), **call
    )
    row = counted.row(name_of(call))
    assert answer.choices[0].text == "one two"
    assert (row["outcome"], row["choices"][0]["stop_type"]) == ("stop", "word")
    assert row["hidden_tokens"] >= 1
    assert answer.usage is not None
    check_usage([row], answer.usage.model_dump())
    check_digests(counted.ledger, row)
    check_sums(counted.box, counted.ledger)


def test_several_choices_share_one_row_and_one_prompt(
    counted: Counted, client: openai.OpenAI
) -> None:
    call = named()
    answer = client.completions.create(
        prompt="The sea is", max_tokens=9, n=3, extra_body=IDS | {"ignore_eos": True}, **call
    )
    row = counted.row(name_of(call))
    assert (row["n"], len(row["choices"])) == (3, 3)
    assert row["completion_tokens"] == 27
    assert answer.usage is not None
    check_usage([row], answer.usage.model_dump())
    check_digests(counted.ledger, row)
    assert counted.ledger.tokens(row)[1:] == [extra(c, "token_ids") for c in answer.choices]
    check_sums(counted.box, counted.ledger)


def test_several_prompts_have_a_row_each_under_one_name(
    counted: Counted, client: openai.OpenAI
) -> None:
    call = named()
    answer = client.completions.create(
        prompt=["One", "Two and", "Three and four"],
        max_tokens=5,
        n=2,
        extra_body={"ignore_eos": True},
        **call,
    )
    rows = counted.ledger.wait_for(3, request_id=name_of(call))
    rows.sort(key=lambda row: row["part"])
    assert [(row["part"], row["parts"]) for row in rows] == [(0, 3), (1, 3), (2, 3)]
    assert len({row["trace_id"] for row in rows}) == 1
    assert len({row["id"] for row in rows}) == 3
    assert answer.usage is not None
    check_usage(rows, answer.usage.model_dump())
    check_sums(counted.box, counted.ledger)


def test_a_prompt_asked_again_is_counted_as_cached(counted: Counted, client: openai.OpenAI) -> None:
    prompt = "A prompt that nobody else asks for, of some length: " + "again and " * 20
    rows = []
    for _ in range(2):
        call = named()
        answer = client.completions.create(prompt=prompt, max_tokens=3, **call)
        rows.append(counted.row(name_of(call)))
        assert answer.usage is not None
        check_usage([rows[-1]], answer.usage.model_dump())
    first, second = rows
    assert second["cached_tokens"] > first["cached_tokens"]
    assert second["prefill_tokens"] + second["cached_tokens"] == second["prompt_tokens"]
    check_sums(counted.box, counted.ledger)


def test_embeddings_are_a_row_too(counted: Counted, client: openai.OpenAI) -> None:
    call = {**named(), "model": "text-embedding"}
    call["model"] = client.models.list().data[1].id
    answer = client.embeddings.create(input=["one", "two words"], **call)
    row = counted.row(name_of(call))
    assert (row["outcome"], row["route"]) == ("stop", "/v1/embeddings")
    assert row["model"] == call["model"]
    assert row["prompt_tokens"] == answer.usage.prompt_tokens
    check_sums(counted.box, counted.ledger)


def test_a_ranking_is_a_row_too(counted: Counted) -> None:
    body = {"query": "Who keeps bees?", "documents": ["A baker.", "A beekeeper."]}
    answer = counted.box.http.post("/v1/rerank", json=body, headers={"X-Request-Id": "ranked"})
    assert [entry["index"] for entry in answer.json()["results"]] == [1, 0]
    row = counted.row("ranked")
    assert (row["outcome"], row["route"]) == ("stop", "/v1/rerank")
    assert row["prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]
    check_sums(counted.box, counted.ledger)


# Cancellations


@pytest.mark.parametrize("state", ["queued", "prefill", "decode"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("by", ["client", "operator", "deadline"])
def test_a_request_ended_early_is_one_row_with_what_was_computed(
    counted: Counted, state: str, stream: bool, by: str
) -> None:
    limit = {"deadline_s": 0.8} if by == "deadline" else {}
    asked, name = bring_to(counted, state, stream=stream, **limit)
    if by == "client":
        asked.hang_up()
    elif by == "operator":
        (found,) = (row["id"] for row in counted.box.requests() if row["max_tokens"] == LONG)
        counted.box.admin("DELETE", f"/admin/requests/{found}")
    asked.wait()
    check_early_end(counted, counted.row(name), asked, state, by)
    counted.leave()
    check_sums(counted.box, counted.ledger)


def test_an_operators_cancellation_is_in_the_ledger_with_his_name(counted: Counted) -> None:
    asked, name = bring_to(counted, "decode")
    (found,) = (row["id"] for row in counted.box.requests())
    headers = {"Authorization": f"Bearer {counted.box.admin_key}", "X-Operator": "mina"}
    counted.box.http.delete(f"/admin/requests/{found}", headers=headers)
    asked.wait()
    row = counted.row(name)
    action = counted.ledger.entries("action")[-1]
    assert (action["action"], action["operator"]) == ("request.cancel", "mina")
    assert action["target"] == row["id"]


# Refusals


def test_a_request_that_was_not_let_in_is_a_row_without_tokens(
    counted: Counted, client: openai.OpenAI
) -> None:
    call = named()
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(prompt="x " * 9000, max_tokens=5, **call)
    row = counted.row(name_of(call))
    assert (row["outcome"], row["status"]) == ("refused", 400)
    assert row["code"] == refused.value.code == "context_length_exceeded"
    assert (row["prompt_tokens"], row["completion_tokens"], row["count"]) == (0, 0, 1)


def test_a_full_queue_is_a_row(counted: Counted, client: openai.OpenAI) -> None:
    counted.box.admin("POST", "/admin/hold")
    waiting = []
    try:
        places = ENGINE["max_sequences"]
        for number in range(places):
            waiting.append(counted.ask(f"Number {number}", max_tokens=2)[0])
        counted.box.wait_for_waiting(places)
        call = named()
        with pytest.raises(openai.RateLimitError):
            client.completions.create(prompt="Once", max_tokens=5, **call)
    finally:
        counted.box.admin("POST", "/admin/release")
    for asked in waiting:
        check_complete(counted.box, asked)
    row = counted.row(name_of(call))
    assert (row["outcome"], row["status"], row["code"]) == ("refused", 429, "queue_full")
    check_sums(counted.box, counted.ledger)


def test_refusals_that_come_in_crowds_are_counted_together(counted: Counted) -> None:
    """They cost nothing to send, so they must not fill the disk."""

    def refused() -> list[Row]:
        return counted.ledger.rows(outcome="refused", code="model_not_found")

    def ask_once(_: int) -> int:
        body = {"model": "none", "prompt": "x"}
        return int(counted.box.http.post("/v1/completions", json=body).status_code)

    with ThreadPoolExecutor(10) as users:
        assert set(users.map(ask_once, range(30))) == {404}
    counted.box.wait_until(lambda: sum(row["count"] for row in refused()) == 30, what="30 counted")
    assert len(refused()) < 30


# Deaths


def test_a_crashed_engine_leaves_rows_that_sum_to_its_counters(counted: Counted) -> None:
    streams = [counted.ask(f"Story {number}", max_tokens=LONG) for number in range(2)]
    whole, whole_name = counted.ask("Poem", max_tokens=LONG, stream=False)
    for stream, _ in streams:
        stream.wait_for_tokens(3)
    counted.box.wait_for_running(3)
    counted.box.engine().send_signal(signal.SIGSEGV)
    for asked, name in [*streams, (whole, whole_name)]:
        asked.wait()
        row = counted.row(name)
        assert (row["outcome"], row["code"]) == ("failed", "engine_crashed")
        tokens = counted.ledger.tokens(row)[1]
        assert tokens[: len(asked.token_ids)] == asked.token_ids, "a token was told and not kept"
        check_digests(counted.ledger, row)
        (error,) = asked.errors
        assert error["usage"]["completion_tokens"] == row["completion_tokens"]
    counted.box.wait_ready()
    check_sums(counted.box, counted.ledger)


def test_a_request_that_survived_the_engine_is_one_row(counted: Counted) -> None:
    counted.box.admin("POST", "/admin/hold")
    waits, name = counted.ask("Wait", max_tokens=4)
    counted.box.wait_for_waiting(1)
    counted.box.engine().kill()
    counted.box.admin("POST", "/admin/release")
    check_complete(counted.box, waits)
    row = counted.row(name)
    assert (row["outcome"], row["recovered"]) == ("length", False)
    check_usage([row], waits.usage)
    check_stages(row)
    check_sums(counted.box, counted.ledger)


def test_random_work_with_cancellations_and_a_crash_sums_to_the_token(counted: Counted) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    pick = random.Random(seed)
    crash_at = pick.randrange(10, 30)
    with ThreadPoolExecutor(3) as users:
        jobs = [
            users.submit(one_of_many, counted, random.Random(seed + number), number == crash_at)
            for number in range(40)
        ]
        told = [usage for job in jobs if (usage := job.result()) is not None]
    check_sums(counted.box, counted.ledger)
    for name, usage in told:
        parts = counted.ledger.rows(request_id=name)
        check_usage(parts, usage)
    assert told


def test_the_chain_verifies_while_the_box_runs(
    counted: Counted, capsys: pytest.CaptureFixture[str]
) -> None:
    end_in_every_way(counted)
    settle(counted.box, counted.ledger)
    check_chain(counted.ledger)
    outcomes = {row["outcome"] for row in counted.ledger.rows()}
    assert outcomes >= {"stop", "length", "cancelled", "deadline", "refused", "failed"}
    assert verify_command([str(counted.ledger.path)]) == 0
    assert "intact" in capsys.readouterr().out
