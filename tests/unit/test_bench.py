"""The benchmark's own parts: reading answers, dealing out prompts, pairing figures."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import memory, overhead, serve
from bench.load import LoadError, Reply, dechunk, read_reply
from bench.options import assignment
from bench.prompts import DistinctPrompts, choose, conversation, general_texts, load_dialogues
from bench.report import Cell, document, row
from bench.results import markdown
from bench.scenarios import SCENARIOS
from bench.servers import StartError, running, toml
from bench.stats import Run, figures, quantile, ratio, ratios, verdict


def make_reply(sent: float, ended: float, marks: Sequence[float] = (), tokens: int = 10) -> Reply:
    return Reply(sent, ended, tuple(marks), "text", 100, tokens, 0)


def make_run(*replies: Reply, foreign: float | None = 0.0) -> Run:
    return Run(replies, client_cpu=0.01, server_cpu=1.0, foreign_cpu=foreign)


def answer(body: bytes, headers: str = "", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}\r\n".encode() + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


def event(content: object) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


STREAM = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"


# Statistics


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([5.0], 0.99) == 5.0
    assert quantile(range(101), 0.99) == 99


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.floats(0, 1))
def test_no_quantile_leaves_the_range_of_its_values(values: list[float], q: float) -> None:
    slack = 1e-6
    assert min(values) - slack <= quantile(values, q) <= max(values) + slack


def test_throughput_counts_from_first_request_to_last_answer() -> None:
    run = make_run(make_reply(10.0, 12.0), make_reply(11.0, 15.0, tokens=40))
    assert run.wall == 5.0
    assert figures([run])["tokens_per_s"] == 10.0


def test_only_streams_have_a_first_token_and_gaps() -> None:
    whole = figures([make_run(make_reply(0.0, 2.0))])
    streamed = figures([make_run(make_reply(0.0, 2.0, marks=(0.5, 0.75, 1.75)))])
    assert "ttft_p50" not in whole
    assert "itl_p50" not in whole
    assert streamed["ttft_p50"] == 0.5
    assert streamed["itl_p50"] == 0.625


def test_ratio_is_the_median_of_rounds_and_not_the_ratio_of_medians() -> None:
    pairs = [
        ({"tokens_per_s": a}, {"tokens_per_s": b})
        for a, b in ((10.0, 5.0), (9.0, 9.0), (30.0, 10.0))
    ]
    found = ratios(pairs)["tokens_per_s"]
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    assert found.each == (2.0, 1.0, 3.0)


def test_figures_that_one_side_lacks_are_not_compared() -> None:
    assert ratios([({"a": 1.0, "b": 1.0, "c": 0.0}, {"a": 2.0, "c": 1.0})]).keys() == {"a"}


def test_throughput_has_to_reach_its_target_and_a_latency_to_stay_below() -> None:
    measured = {"tokens_per_s": ratio([1.0]), "ttft_p50": ratio([0.6])}
    targets = {"tokens_per_s": 1.0, "ttft_p50": 0.5, "e2e_p50": 1.0}
    assert verdict(targets, measured) == {"tokens_per_s": True, "ttft_p50": False}


# Reading answers


def test_whole_answer_of_llama_server_is_read() -> None:
    body = {"content": "hi", "tokens_predicted": 7, "tokens_evaluated": 100, "stop": True}
    raw = answer(json.dumps(body | {"timings": {"cache_n": 3}}).encode())
    reply = read_reply(1.0, [(2.0, raw[:30]), (3.0, raw[30:])])
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("hi", 100, 7)
    assert reply.cached_tokens == 3
    assert reply.marks == ()
    assert reply.e2e == 2.0


def test_stream_of_openai_form_is_read_with_times_of_its_texts() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    parts = [
        event({"choices": [{"delta": {"role": "assistant", "content": None}}]}),
        b": ping\n\n",
        event({"choices": [{"delta": {"content": "Hello"}}]}),
        event({"choices": [{"delta": {"content": " you"}}]}),
        event({"choices": [], "usage": usage}),
        b"data: [DONE]\n\n",
    ]
    chunks = [(0.1, answer(b"", STREAM))]
    chunks += [(float(n), chunked(part)[: -len(b"0\r\n\r\n")]) for n, part in enumerate(parts, 1)]
    reply = read_reply(0.0, [*chunks, (7.0, b"0\r\n\r\n")])
    assert reply.text == "Hello you"
    assert reply.marks == (3.0, 4.0)
    assert reply.ttft == 3.0
    assert reply.ended == 5.0
    assert reply.completion_tokens == 2


def test_bytes_may_arrive_one_at_a_time() -> None:
    last = {"content": "", "stop": True, "tokens_predicted": 2, "tokens_evaluated": 5}
    body = chunked(event({"content": "a\u00e9", "stop": False}), event(last))
    raw = answer(body, STREAM)
    reply = read_reply(0.0, [(float(n), raw[n : n + 1]) for n in range(len(raw))])
    assert reply.text == "a\u00e9"
    assert len(reply.marks) == 1
    assert reply.completion_tokens == 2


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.integers(1, 30))
def test_dechunking_gives_back_every_byte(parts: list[bytes], step: int) -> None:
    raw = chunked(*parts)
    pieces = [(float(n), raw[n : n + step]) for n in range(0, len(raw), step)]
    assert b"".join(data for _, data in dechunk(pieces)) == b"".join(parts)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "before a response"),
        (answer(b'{"error": {}}', status="503 Unavailable"), "HTTP 503"),
        (answer(b'{"error": {"message": "engine died"}}'), "engine died"),
        (answer(chunked(event({"content": "a", "stop": False})), STREAM), "without token counts"),
    ],
)
def test_failed_answer_voids_the_run(raw: bytes, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read_reply(0.0, [(1.0, raw)] if raw else [])


# Prompts


def test_distinct_prompts_have_one_length_and_no_common_first_token() -> None:
    prompts = DistinctPrompts([n % 50 for n in range(400)], 100, seed=1)
    taken = prompts.take(50)
    assert {len(ids) for ids in taken} == {100}
    assert len({ids[0] for ids in taken}) == 50


def test_prompts_are_the_same_for_the_same_seed() -> None:
    tokens = list(range(1000))
    first, second = (DistinctPrompts(tokens, 20, seed=7).take(9) for _ in "ab")
    assert first == second
    assert DistinctPrompts(tokens, 20, seed=8).take(9) != first


def test_too_little_text_for_the_prompts_is_an_error() -> None:
    with pytest.raises(ValueError, match="too short"):
        DistinctPrompts([1, 2, 3], 4, seed=1)
    with pytest.raises(ValueError, match="first tokens"):
        DistinctPrompts([1, 2] * 9, 4, seed=1).take(3)


def test_word_generator_needs_no_data_and_varies() -> None:
    texts = general_texts(None, seed=1)
    assert texts == general_texts(None, seed=1)
    assert len(set(texts)) == len(texts)
    assert sum(map(len, texts)) > 250_000


def test_general_prompts_come_from_the_data_folder(tmp_path: Path) -> None:
    rows = [{"id": str(n), "prompt": f"prompt {n}"} for n in range(20)]
    (tmp_path / "prompts_general.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert sorted(general_texts(tmp_path, seed=1)) == sorted(f"prompt {n}" for n in range(20))


def messages(system: str, *users: str) -> list[dict[str, str]]:
    turns = [
        message
        for text in users
        for message in (
            {"role": "user", "content": text},
            {"role": "assistant", "content": "recorded answer"},
        )
    ]
    return [{"role": "system", "content": system}, *turns]


def write_dialogues(folder: Path) -> None:
    rows = [
        {"prompt_group": "short", "messages": messages("Be brief.", f"a{n}", "b")} for n in range(4)
    ]
    rows += [
        {"prompt_group": "long", "messages": messages("Be brief. " * 9, f"c{n}", "d", "e")}
        for n in range(3)
    ]
    rows += [{"messages": messages("No group.", "x")}]
    rows += [{"prompt_group": "none", "messages": [{"role": "user", "content": "no system"}]}]
    (folder / "dialogues.jsonl").write_text("\n".join(map(json.dumps, rows)))


def test_dialogues_are_grouped_by_system_prompt_longest_first(tmp_path: Path) -> None:
    write_dialogues(tmp_path)
    groups = load_dialogues(tmp_path)
    assert [len(group) for group in groups] == [3, 4]
    assert all(talk.system == groups[0][0].system for talk in groups[0])


def test_recorded_answers_are_not_part_of_a_conversation() -> None:
    talk = conversation(messages("System.", "one", "two"))
    assert talk is not None
    assert talk.turns == ("one", "two")
    assert conversation([{"role": "user", "content": "hi"}]) is None


def test_chosen_conversations_share_one_system_prompt_new_in_every_round(tmp_path: Path) -> None:
    write_dialogues(tmp_path)
    groups = load_dialogues(tmp_path)
    first = choose(groups, count=3, turns=2, round_=0, salt="r0")
    second = choose(groups, count=3, turns=2, round_=1, salt="r1")
    assert len({talk.system for talk in first}) == 1
    assert len(set(first)) == 3
    assert {len(talk.turns) for talk in first} == {2}
    assert first[0].system.startswith("[r0] ")
    assert second[0].system != first[0].system


def test_conversations_with_too_few_turns_are_not_chosen(tmp_path: Path) -> None:
    write_dialogues(tmp_path)
    groups = load_dialogues(tmp_path)
    assert {talk.turns[1:] for talk in choose(groups, 3, 3, 1, "r")} == {("d", "e")}
    with pytest.raises(ValueError, match="4 turns"):
        choose(groups, 1, 4, 0, "r")


# Report, settings, overhead


def make_cell(ours: float, peer: float, foreign: float | None = 0.0) -> Cell:
    pairs = tuple(
        (
            make_run(make_reply(0.0, 1 / ours, tokens=1), foreign=foreign),
            make_run(make_reply(0.0, 1 / peer, tokens=1), foreign=foreign),
        )
        for _ in range(3)
    )
    return Cell(SCENARIOS[0], 1, pairs)


def test_row_tells_a_missed_target_and_noise() -> None:
    assert "misses tokens_per_s" in row(make_cell(0.9, 1.0), cores=2)
    assert "noisy" in row(make_cell(2.0, 1.0, foreign=1.0), cores=2)
    assert row(make_cell(2.0, 1.0), cores=2).rstrip().endswith("-")


def test_noise_is_unknown_for_servers_that_others_started() -> None:
    assert make_cell(1.0, 1.0, foreign=None).noise(cores=2) is None


def test_document_keeps_every_raw_sample_and_is_json() -> None:
    cell = document([make_cell(1.2, 1.0)], {"benchmark": "serve"}, cores=2)["cells"][0]
    assert cell["reached"] == {"tokens_per_s": True}
    assert len(cell["rounds"]) == 3
    assert cell["rounds"][0]["peer"]["requests"][0]["completion_tokens"] == 1
    json.dumps(cell)


def test_written_document_becomes_a_table() -> None:
    about = {
        "at": "2030-01-02T03:04:05Z",
        "machine": {"cpu": "C", "cores": 2, "memory": "1 kB", "kernel": "6", "python": "3.11"},
        "model": "m.gguf",
        "options": {"threads": 2, "rounds": 3},
        "servers": [{"ours": {"version": "1"}, "peer": {"version": "2"}}],
    }
    lines = markdown(document([make_cell(1.2, 1.0)], about, cores=2)).splitlines()
    assert lines[0].startswith("2030-01-02, C, 2 cores")
    assert lines[-1].startswith("| distinct | 1 | 1.2 | 1.0 | 1.20 (1.20-1.20) |")


def test_status_tells_a_missed_target_or_a_failed_self_check() -> None:
    assert serve.conclude([make_cell(1.0, 1.0)], self_check=False) == 0
    assert serve.conclude([make_cell(0.9, 1.0)], self_check=False) == 1
    assert serve.conclude([make_cell(0.99, 1.0)], self_check=True) == 0
    assert serve.conclude([make_cell(1.2, 1.0)], self_check=True) == 1


def test_dialogues_are_left_out_without_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STEELYARD_DATA", raising=False)
    assert serve.main(["--scenarios", "dialogues"]) == 2
    assert "dialogues: left out" in capsys.readouterr().out


def test_unknown_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve.parse(["--scenarios", "distinkt"])
    assert "no scenario distinkt" in capsys.readouterr().err


def test_settings_become_tables_of_toml() -> None:
    text = toml({"server.port": 1, "engine.threads": 2, "engine.mlock": False, "model.path": 'a"b'})
    assert text.startswith("[server]\nport = 1\n")
    assert "[engine]\nthreads = 2\nmlock = false\n" in text
    assert 'path = "a\\"b"' in text


def test_assignment_reads_numbers_flags_and_texts() -> None:
    assert assignment("engine.draft_tokens=4") == ("engine.draft_tokens", 4)
    assert assignment("kv_unified=true") == ("kv_unified", True)
    assert assignment("engine.kv_type=q8_0") == ("engine.kv_type", "q8_0")


def test_address_of_a_running_server_must_be_http() -> None:
    assert running("ours", "http://127.0.0.1:8421").address.port == 8421
    with pytest.raises(StartError, match="look like"):
        running("ours", "127.0.0.1:8421")


def test_model_pages_are_told_apart_from_the_rest() -> None:
    text = (
        "7f00-7f10 r--p 00000000 fe:00 12   /models/a b.gguf\n"
        "Rss:  100 kB\nPss:  50 kB\nAnonymous:  0 kB\nVmFlags: rd mr\n"
        "7f20-7f30 rw-p 00000000 00:00 0 \n"
        "Rss:  10 kB\nPss:  10 kB\nPss_Dirty:  10 kB\nAnonymous:  10 kB\n"
    )
    found = memory.parse_smaps(text, "/models/a b.gguf")
    assert found == memory.Resident(110 * 1024, 60 * 1024, 10 * 1024, 100 * 1024, 50 * 1024)


def test_counters_of_the_engine_are_found_among_others() -> None:
    text = (
        "# TYPE steelyard:engine_compute_seconds_total counter\n"
        "steelyard:engine_compute_seconds_total 1.5\n"
        'steelyard:engine_busy_seconds_total{model="m"} 2.0\n'
        "steelyard:engine_busy_seconds_created 1.7e9\n"
        "steelyard:engine_last_step_seconds 0.1\n"
    )
    assert overhead.parse_counters(text) == {"compute": 1.5, "busy": 2.0}
