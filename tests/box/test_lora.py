"""LoRA adapters on a running box: each request has the answer of its own set, whatever shares the
engine with it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any

import pytest

from appliance.models.packaged import packaged_model
from tests.box.running import RunningBox
from tests.unit.lora_parts import write_adapter

ROUNDING = 0.6
"""Nats. Who else is in a step moved log-probabilities by 0.2 at most (docs/determinism.md)."""
PROMPT = "The three largest rivers of Europe are"
TOKENS = 12
LOUD = [{"id": 0, "scale": 1.0}]
SHRILL = [{"name": "shrill", "scale": 1.0}]


@pytest.fixture(scope="module")
def lora_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """Two adapters of random numbers are loaded, neither is applied unless a request says so."""
    home = tmp_path_factory.mktemp("lora")
    model = packaged_model()
    loud = write_adapter(home / "loud.gguf", model, seed=1, size=3.0)
    shrill = write_adapter(home / "shrill.gguf", model, seed=2, size=3.0)
    arguments = ("--lora", f"{loud}=0", "--lora", f"{shrill}=0")
    with RunningBox.start(home / "box", arguments=arguments) as running:
        yield running


def ask(box: RunningBox, lora: Any = None, **more: Any) -> dict[str, Any]:
    """A greedy answer of `TOKENS` tokens, with their log-probabilities."""
    body = {
        "prompt": PROMPT,
        "n_predict": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "n_probs": 1,
        "cache_prompt": False,
        "return_tokens": True,
        **({} if lora is None else {"lora": lora}),
        **more,
    }
    answer = box.http.post("/completion", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def bits(answer: dict[str, Any]) -> list[tuple[int, float]]:
    """Tokens and log-probabilities, to the last bit."""
    return [(each["id"], each["logprob"]) for each in answer["completion_probabilities"]]


def test_scale_0_is_the_model_itself_to_the_last_bit_and_scale_1_is_not(
    lora_box: RunningBox,
) -> None:
    base = ask(lora_box, exclusive=True)
    assert len(bits(base)) == TOKENS
    loud = ask(lora_box, LOUD, exclusive=True)
    assert bits(loud) != bits(base)
    assert loud["generation_settings"]["lora"] == LOUD
    half = ask(lora_box, [{"id": 0, "scale": 0.5}], exclusive=True)
    assert bits(half) not in (bits(base), bits(loud))
    both = ask(lora_box, [*LOUD, *SHRILL], exclusive=True)
    assert bits(both) not in (bits(base), bits(loud))
    # And back: nothing of an adapter stays.
    zero = ask(lora_box, [{"id": 0, "scale": 0.0}], exclusive=True)
    assert bits(zero) == bits(base)
    assert bits(ask(lora_box, [], exclusive=True)) == bits(base)
    assert bits(ask(lora_box, LOUD, exclusive=True)) == bits(loud)


def test_requests_of_all_sets_at_once_have_each_its_own_answer(lora_box: RunningBox) -> None:
    """Whoever shares a step changes the rounding, and so at times the likeliest token: compared is
    what the model expected, as long as the text before is the same."""
    sets: list[Any] = [None, LOUD, SHRILL]
    alone = [ask(lora_box, lora, n_probs=10, exclusive=True) for lora in sets]
    for one, other in combinations(alone, 2):
        assert distances(one, other)[0] > 2 * ROUNDING
    with ThreadPoolExecutor(9) as pool:
        answers = list(pool.map(lambda lora: ask(lora_box, lora, n_probs=10), sets * 3))
    for place, answer in enumerate(answers):
        assert max(distances(answer, alone[place % 3])) < ROUNDING


def distances(answer: dict[str, Any], other: dict[str, Any]) -> list[float]:
    """How far the expectations are apart, in nats, from token to token, up to the first at which
    the texts part."""
    found = []
    for one, two in zip(
        answer["completion_probabilities"], other["completion_probabilities"], strict=True
    ):
        a, b = ({top["id"]: top["logprob"] for top in each["top_logprobs"]} for each in (one, two))
        least = min(*a.values(), *b.values())
        found.append(max(abs(a.get(id, least) - b.get(id, least)) for id in a | b))
        if one["id"] != two["id"]:
            break
    return found


def test_a_cached_prefix_is_reused_by_requests_of_its_own_set_alone(lora_box: RunningBox) -> None:
    def cached(lora: Any) -> int:
        answer = ask(lora_box, lora, prompt=PROMPT + " and of Asia", cache_prompt=True)
        return int(answer["timings"]["cache_n"])

    assert cached(None) == 0
    assert cached(LOUD) == 0
    first = cached(None)
    assert first > 0
    assert cached(LOUD) == first
    assert cached(SHRILL) == 0


def test_chats_and_completions_take_adapters_too(lora_box: RunningBox) -> None:
    client = lora_box.client()
    texts = []
    for lora in ([], LOUD):
        answer = client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": "What is a lever?"}],
            max_tokens=TOKENS,
            temperature=0,
            logprobs=True,
            extra_body={"lora": lora, "exclusive": True, "ignore_eos": True},
        )
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        texts.append([(token.token, token.logprob) for token in logprobs.content])
    assert texts[0] != texts[1]
    answer = lora_box.http.post(
        "/v1/completions",
        json={"prompt": "x", "max_tokens": 1, "lora": SHRILL, "cache_prompt": False},
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("lora", "says"),
    [
        (
            [{"id": 2, "scale": 1}],
            "lora.0: no adapter has the id 2: there are 0 (loud), 1 (shrill)",
        ),
        ([{"name": "lout", "scale": 1}], "no adapter is called 'lout': did you mean 'loud'?"),
        ([{"id": 0, "scale": 1}, {"name": "loud", "scale": 1}], "lora.1: the adapter 'loud' is"),
        ([{"id": 0}], "lora.0.scale"),
        ([{"scale": 1}], "give the adapter's id or its name"),
        ([{"id": 0, "name": "loud", "scale": 1}], "give the adapter's id or its name"),
        ([{"id": 0, "scale": 101}], "lora.0.scale: must be less than or equal to 100"),
        ([{"id": 0, "scale": "1"}], "lora.0.scale"),
        ([{"id": 0, "scale": 1, "sale": 2}], "unknown field 'lora.0.sale'; did you mean 'scale'?"),
        ([{"id": -1, "scale": 1}], "lora.0.id"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_a_hint(
    lora_box: RunningBox, lora: Any, says: str
) -> None:
    answer = lora_box.http.post("/completion", json={"prompt": "x", "lora": lora})
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_nan_is_refused(lora_box: RunningBox) -> None:
    body = '{"prompt": "x", "lora": [{"id": 0, "scale": NaN}]}'
    assert lora_box.http.post("/completion", content=body).status_code == 400


def test_operators_change_what_requests_without_lora_get(lora_box: RunningBox) -> None:
    base, loud = ask(lora_box, [], exclusive=True), ask(lora_box, LOUD, exclusive=True)
    assert lora_box.http.post("/lora-adapters", json=LOUD).status_code == 401
    answer = lora_box.admin("POST", "/lora-adapters", json=LOUD)
    assert answer.json() == {"success": True, "recorded": True}
    try:
        listed = lora_box.admin("GET", "/lora-adapters").json()
        assert [(each["id"], each["name"], each["scale"]) for each in listed] == [
            (0, "loud", 1.0),
            (1, "shrill", 0.0),
        ]
        assert [each["path"] for each in listed] == ["loud.gguf", "shrill.gguf"]
        assert bits(ask(lora_box, exclusive=True)) == bits(loud)
        assert bits(ask(lora_box, [], exclusive=True)) == bits(base)
        actions = lora_box.admin("GET", "/admin/actions?action=lora.scale").json()["actions"]
        assert actions[0]["detail"]["lora"][0]["name"] == "loud"
        worse = lora_box.admin("POST", "/lora-adapters", json=[{"id": 7, "scale": 1}])
        assert worse.status_code == 400
        assert "adapters.0: no adapter has the id 7" in worse.json()["error"]["message"]
    finally:
        lora_box.admin("POST", "/lora-adapters", json={"adapters": []})
    assert bits(ask(lora_box, exclusive=True)) == bits(base)


def test_the_ledger_has_the_set_and_a_replay_uses_it(lora_box: RunningBox) -> None:
    answer = lora_box.http.post(
        "/v1/completions",
        json={
            "prompt": PROMPT,
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "exclusive": True,
            "lora": [*LOUD, {"name": "shrill", "scale": 0.25}],
        },
    )
    name = answer.json()["id"]
    path = f"/admin/requests/{name}"

    def written() -> bool:
        """The final row is written in the background."""
        found = lora_box.admin("GET", path).json()
        return any("outcome" in entry for entry in found.get("entries", ()))

    lora_box.wait_until(written, what="the request is in the ledger")
    kept = lora_box.admin("GET", path).json()["entries"][-1]["sampling"]["lora"]
    assert [(each["name"], each["scale"]) for each in kept] == [("loud", 1.0), ("shrill", 0.25)]
    listed = lora_box.admin("GET", "/lora-adapters").json()
    assert [each["sha256"] for each in kept] == [each["sha256"] for each in listed]
    replay = lora_box.admin("POST", f"/admin/audit/{name}/replay", json={})
    assert replay.status_code == 200, replay.text
    assert replay.json()["replay"] == "identical"
    assert replay.json()["report"]["facts"]["lora"] == kept


def test_an_agreed_length_is_kept_with_adapters(lora_box: RunningBox) -> None:
    """What is tried as an ending and taken back is computed with the request's own set."""

    def agreed(lora: Any) -> dict[str, Any]:
        body = {
            "messages": [{"role": "user", "content": "Tell me of levers."}],
            "budget": {"tokens": 24, "mode": "strict"},
            "temperature": 0,
            "seed": 1,
            "exclusive": True,
            "return_token_ids": True,
            "lora": lora,
        }
        answer = lora_box.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        choice: dict[str, Any] = answer.json()["choices"][0]
        return choice

    loud = agreed(LOUD)
    assert 21 <= len(loud["token_ids"]) <= 27
    assert agreed([])["token_ids"] != loud["token_ids"]
    assert agreed(LOUD)["token_ids"] == loud["token_ids"]


def test_a_new_engine_has_the_adapters_again(lora_box: RunningBox) -> None:
    before = ask(lora_box, LOUD, exclusive=True)
    assert lora_box.admin("POST", "/admin/engine/restart").status_code == 200

    def restarted() -> bool:
        found = lora_box.http.get("/readyz").json()["engine"]
        return bool(found["restarts"] == 1 and found["state"] == "ready")

    lora_box.wait_until(restarted, what="another engine")
    assert bits(ask(lora_box, LOUD, exclusive=True)) == bits(before)
    assert bits(ask(lora_box, [], exclusive=True)) != bits(before)
