"""The diff protocol: digests compared, archived or in conflict, and answers replayed once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.api.archive import MOST_CONFLICTS
from appliance.api.audit import first_difference
from appliance.engine.reports import Started
from appliance.ledger.verify import token_digest
from appliance.prepare.messages import Prepared
from tests.unit.api_box import chat, client_of, make_box, saying
from tests.unit.audit_parts import CHAT, GREEDY, HI, RIGHT, SAID, WRONG, Desk, conflict_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.ledger.close()


# Archived


async def test_right_digest_is_archived_once_under_every_name_of_the_request(desk: Desk) -> None:
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-Id": "order-7"}
    answer = await desk.ask(headers=headers)
    assert answer.headers["X-Token-Diff-SHA256"] == RIGHT
    seqs = set()
    for name in (answer.json()["id"], "order-7", TRACE):
        found = await desk.verify(name, digest=RIGHT)
        assert found.status_code == 200, found.text
        body = found.json()
        assert body["status"] == "archived"
        (told,) = body["answers"]
        assert (told["id"], told["choice"], told["digest"]) == (answer.json()["id"], 0, RIGHT)
        assert len(told["hash"]) == len(body["head"]["hash"]) == 64
        seqs.add((told["seq"], told["archived_seq"]))
    assert len(seqs) == 1
    assert desk.rows("archived") == 1
    assert not desk.engine.replays


async def test_header_can_be_sent_back_as_it_came(desk: Desk) -> None:
    desk.engine.say = saying(choice_texts=[["a"], ["b", "c"]])
    answer = await desk.ask(n=2)
    name, header = answer.json()["id"], answer.headers["X-Token-Diff-SHA256"]
    found = await desk.verify(name, digest=header)
    assert [told["choice"] for told in found.json()["answers"]] == [0, 1]
    listed = await desk.verify(name, digests=header.upper().split(","))
    assert listed.json()["answers"] == found.json()["answers"]
    one = await desk.verify(name, digest=header.split(",")[1], choice=1)
    assert [told["choice"] for told in one.json()["answers"]] == [1]


async def test_several_prompts_of_one_call_are_answers_in_order(desk: Desk) -> None:
    body = {"prompt": ["hi", "ho"], **GREEDY}
    answer = await desk.client.post(
        "/v1/completions", json=body, headers={"X-Request-Id": "two-prompts"}
    )
    header = answer.headers["X-Token-Diff-SHA256"]
    found = await desk.verify("two-prompts", digest=header)
    assert found.status_code == 200, found.text
    first, second = found.json()["answers"]
    alone = await desk.verify("two-prompts", digest=header.split(",")[1], id=second["id"])
    assert alone.json()["answers"] == [second]
    assert first["id"] != second["id"]


async def test_wrong_number_of_digests_names_the_answers(desk: Desk) -> None:
    answer = await desk.ask(n=2)
    found = await desk.verify(answer.json()["id"], digest=RIGHT)
    assert found.status_code == 400
    message = found.json()["error"]["message"]
    assert "2 answers" in message
    assert f"{answer.json()['id']} choice 1" in message
    assert desk.rows("conflict") == 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"digest": ""},
        {"digest": "xyz"},
        {"digest": RIGHT[:-1]},
        {"digest": RIGHT, "digests": [RIGHT]},
        {"digests": []},
        {"digests": [RIGHT, "x"]},
        {"digest": RIGHT, "prompt_token_ids": [1]},
        {"digests": [RIGHT, RIGHT], "token_ids": [1]},
        {"digest": RIGHT, "token_ids": [-1]},
        {"digest": RIGHT, "other": 1},
    ],
)
async def test_bodies_that_say_nothing_clear_are_refused(desk: Desk, body: dict[str, Any]) -> None:
    name = (await desk.ask()).json()["id"]
    assert (await desk.verify(name, **body)).status_code == 400


# Whose


async def test_requests_of_others_are_as_unknown_as_those_that_never_were(desk: Desk) -> None:
    mine, other = desk.key("mine", "infer"), desk.key("other", "infer", "metrics")
    name = (await desk.ask(headers=mine)).json()["id"]
    for digest in (RIGHT, WRONG):
        foreign = await desk.verify(name, headers=other, digest=digest)
        unknown = await desk.verify("never-was", headers=other, digest=digest)
        assert (foreign.status_code, unknown.status_code) == (404, 404)
        assert foreign.json()["error"]["code"] == "request_not_found"
        assert foreign.text.replace(name, "never-was") == unknown.text
    shown = await desk.client.get(f"/v1/audit/{name}", headers=other)
    assert shown.status_code == 404
    assert desk.rows("conflict") == 0
    assert (await desk.verify(name, headers=mine, digest=RIGHT)).status_code == 200


async def test_request_id_that_two_keys_share_means_each_ones_own(desk: Desk) -> None:
    mine, other = desk.key("mine", "infer"), desk.key("other", "infer")
    names = {"X-Request-Id": "shared"}
    first = (await desk.ask(headers={**mine, **names})).json()["id"]
    second = (await desk.ask(headers={**other, **names})).json()["id"]
    for key, name in ((mine, first), (other, second)):
        (told,) = (await desk.verify("shared", headers=key, digest=RIGHT)).json()["answers"]
        assert told["id"] == name


async def test_admin_keys_may_look_at_all(desk: Desk) -> None:
    name = (await desk.ask(headers=desk.key("app", "infer"))).json()["id"]
    admin = desk.key("boss", "admin")
    assert (await desk.show(name, headers=admin))["requests"][0]["request"]["id"] == name
    assert (await desk.verify(name, headers=admin, digest=RIGHT)).status_code == 200


async def test_refused_request_has_nothing_to_verify(desk: Desk) -> None:
    refused = await desk.client.post(
        CHAT, json=chat(temperature=9), headers={"X-Request-Id": "refused"}
    )
    assert refused.status_code == 400
    found = await desk.verify("refused", digest=RIGHT)
    assert found.status_code == 404
    assert "refused" in found.json()["error"]["message"]


async def test_request_that_runs_is_told_to_run(desk: Desk) -> None:
    desk.engine.say = lambda submit: [Started(submit.id, 1.0, 0), 60.0]
    task = asyncio.create_task(desk.ask(headers={"X-Request-Id": "long"}))
    while not desk.box.supervisor.tickets:
        await asyncio.sleep(0)
    found = await desk.verify("long", digest=RIGHT)
    assert found.status_code == 409
    assert found.json()["error"]["code"] == "request_not_finished"
    assert found.headers["retry-after"] == "1"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_box_without_a_ledger_says_so(tmp_path: Path) -> None:
    client = client_of(make_box(tmp_path))
    found = await client.post("/v1/audit/x/verify", json={"digest": RIGHT})
    assert found.status_code == 503
    assert found.json()["error"]["code"] == "ledger_unavailable"


# Conflicts


async def test_wrong_digest_is_a_chained_conflict_with_a_replay(desk: Desk) -> None:
    answer = await desk.ask()
    error = conflict_of(await desk.verify(answer.json()["id"], digest=WRONG))
    assert (error["claimed"], error["digest"]) == (WRONG, RIGHT)
    assert (error["replay"], error["first_difference"]) == ("identical", None)
    report = error["report"]
    assert report["result"] == "identical"
    assert (report["positions"], report["differing"]) == (3, 0)
    assert [step["token"] for step in report["steps"]] == list(SAID)
    assert [step["position"] for step in report["steps"]] == [3, 4, 5]
    assert all(step["equal"] and step["picked"] == step["token"] for step in report["steps"])
    assert desk.rows("conflict") == desk.rows("replay") == 1


async def test_replay_runs_what_the_ledger_has(desk: Desk) -> None:
    answer = await desk.ask(seed=5, temperature=0.7, top_k=7, repeat_penalty=1.5, n=2)
    header = answer.headers["X-Token-Diff-SHA256"].split(",")
    await desk.verify(answer.json()["id"], digests=[header[0], WRONG])
    (submit,) = desk.engine.replays
    assert (submit.prompt, submit.forced, submit.max_tokens) == (HI, SAID, 3)
    assert (submit.n, submit.exclusive, submit.cache_prompt) == (1, True, False)
    sampling = submit.sampling
    assert sampling.seed == 6, "choice 1 had seed + 1"
    assert (sampling.temperature, sampling.top_k, sampling.repeat_penalty) == (0.7, 7, 1.5)
    assert sampling.logprobs >= 0


async def test_one_replay_ever_however_many_wrong_digests_come(desk: Desk) -> None:
    name = (await desk.ask()).json()["id"]
    errors = []
    for number in range(MOST_CONFLICTS + 4):
        errors.append(conflict_of(await desk.verify(name, digest=f"{number:064x}")))
    assert len(desk.engine.replays) == 1
    assert len({str(error["report"]) for error in errors}) == 1
    assert desk.rows("conflict") == MOST_CONFLICTS
    assert errors[-1]["conflict_seq"] is None
    again = conflict_of(await desk.verify(name, digest=f"{0:064x}"))
    assert again["conflict_seq"] == errors[0]["conflict_seq"]
    assert (await desk.verify(name, digest=RIGHT)).status_code == 200, "the truth still counts"


async def test_replay_that_differs_says_where_and_what_may_explain_it(desk: Desk) -> None:
    name = (await desk.ask()).json()["id"]
    desk.engine.picks = {1: 77}
    error = conflict_of(await desk.verify(name, digest=WRONG))
    report = error["report"]
    assert (error["replay"], report["differing"], report["first_difference"]) == ("differs", 1, 4)
    step = report["steps"][1]
    assert (step["token"], step["picked"], step["equal"], step["rank"]) == (SAID[1], 77, False, 2)
    assert (step["logprob"], step["picked_logprob"]) == (-0.5, -0.25)
    assert any("exclusive" in reason for reason in report["facts"]["reasons"])


async def test_answer_drawn_without_a_seed_has_one_of_the_boxs_own(desk: Desk) -> None:
    name = (await desk.ask(temperature=1.0)).json()["id"]
    report = conflict_of(await desk.verify(name, digest=WRONG))["report"]
    assert (report["facts"]["sampling"], report["result"]) == ("seeded", "identical")


async def test_grammar_that_is_not_kept_leaves_a_different_pick_open(desk: Desk) -> None:
    preparer: Any = desk.box.preparer
    preparer.prepared = Prepared(prompt=(), text="", grammar="a grammar")
    name = (await desk.ask()).json()["id"]
    desk.engine.picks = {1: 77}
    report = conflict_of(await desk.verify(name, digest=WRONG))["report"]
    assert report["result"] == "inconclusive"
    assert [step["equal"] for step in report["steps"]] == [True, None, True]
    assert any("grammar" in reason for reason in report["facts"]["reasons"])
    assert desk.engine.replays[0].grammar is None


async def test_token_ids_tell_the_first_difference(desk: Desk) -> None:
    name = (await desk.ask()).json()["id"]
    cases: list[tuple[dict[str, Any], int | None]] = [
        ({"token_ids": [SAID[0], 9, 0]}, 4),
        ({"token_ids": list(SAID[:2])}, 5),
        ({"token_ids": [*SAID, 7]}, 6),
        ({"token_ids": list(SAID), "prompt_token_ids": [HI[0], 9]}, 2),
        ({"token_ids": list(SAID), "prompt_token_ids": list(HI)}, None),
    ]
    for number, (ids, first) in enumerate(cases):
        error = conflict_of(await desk.verify(name, digest=f"{number:064x}", **ids))
        assert error["first_difference"] == first, ids
        assert error["ids_have_the_claimed_digest"] is False
    true = token_digest(HI, [SAID[0], 9])
    error = conflict_of(await desk.verify(name, digest=true, token_ids=[SAID[0], 9]))
    assert error["ids_have_the_claimed_digest"] is True


def test_first_difference_of_equal_and_longer_lists() -> None:
    assert first_difference([], []) is None
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1], []) == 1
    assert first_difference([1], [1, 2]) == 2
    assert first_difference([1, 2], [3, 2]) == 1


async def test_of_several_wrong_digests_the_first_is_replayed_and_right_ones_count(
    desk: Desk,
) -> None:
    answer = await desk.ask(n=3)
    error = conflict_of(await desk.verify(answer.json()["id"], digests=[RIGHT, WRONG, WRONG]))
    assert error["choice"] == 1
    assert [told["choice"] for told in error["further"]] == [2]
    assert [told["choice"] for told in error["archived"]] == [0]
    assert (desk.rows("conflict"), desk.rows("archived"), len(desk.engine.replays)) == (2, 1, 1)
