"""LoRA adapters of the box: found, named, chosen by requests, kept by the ledger."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.adapters import Adapter, Adapters, NotLoaded, adapters_of, lora_set
from appliance.api.box import Box
from appliance.commands.lora import entry_of, loras_of
from appliance.config import Config, Lora, ModelConfig, ServerConfig, effective, load
from appliance.engine.commands import Submit
from appliance.gguf import BadModel
from appliance.models import ModelFile, Stored, StoredLora, check
from tests.unit.api_box import chat, client_of, make_box
from tests.unit.audit_parts import CHAT, WRONG, Desk
from tests.unit.lora_parts import write_adapter, write_gguf

SHA = {"loud": "11" * 32, "shrill": "22" * 32}


def make_adapters(loud: float = 0.0, shrill: float = 0.0) -> Adapters:
    scales = {"loud": loud, "shrill": shrill}
    return Adapters(
        Adapter(id, name, Path(f"/adapters/{name}.gguf"), SHA[name], scales[name])
        for id, name in enumerate(scales)
    )


# The configuration


def test_an_entry_has_a_path_a_scale_and_a_name(tmp_path: Path) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text('[model]\nlora = [{ path = "a.gguf", name = "loud", scale = 0.5 }]\n')
    (lora,) = load(file, {}).model.lora
    assert lora == Lora(str(tmp_path / "a.gguf"), 0.5, "loud")
    again = tmp_path / "again.toml"
    again.write_text(effective(load(file, {})))
    assert load(again, {}).model.lora == (lora,)


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ("a.gguf", {"path": "a.gguf"}),
        ("a.gguf=0.5", {"path": "a.gguf", "scale": 0.5}),
        ("a=b.gguf", {"path": "a=b.gguf"}),
        ("a=b.gguf=-1", {"path": "a=b.gguf", "scale": -1.0}),
        ("a.gguf=", {"path": "a.gguf="}),
        ("=1", {"path": "=1"}),
    ],
)
def test_option_names_a_file_and_maybe_a_scale(given: str, entry: dict[str, Any]) -> None:
    assert entry_of(given) == entry
    assert loras_of(None, None, (given, given)) == [entry, entry]
    assert loras_of(None, None, ()) is None


def test_the_option_takes_the_place_of_the_list(tmp_path: Path) -> None:
    file = tmp_path / "steelyard.toml"
    file.write_text('[model]\nlora = [{ path = "/x.gguf" }]\n')
    config = load(file, {}, {"model.lora": [{"path": "/y.gguf", "scale": 0.0}]})
    assert config.model.lora == (Lora("/y.gguf", 0.0),)


# The files


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def model(home: Path) -> ModelFile:
    """The packaged one."""
    return check(Config(server=ServerConfig(state_dir=home)))


@pytest.fixture(scope="module")
def adapter(home: Path, model: ModelFile) -> Path:
    return write_adapter(home / "loud.gguf", model.path)


def listing(home: Path, *loras: Lora) -> Config:
    return Config(server=ServerConfig(state_dir=home), model=ModelConfig(lora=loras))


def test_adapters_are_those_of_the_list_with_their_digests(
    home: Path, model: ModelFile, adapter: Path
) -> None:
    config = listing(home, Lora(str(adapter)), Lora(str(adapter), 0.5, "half"))
    first, second = adapters_of(config, model)
    assert (first.id, first.name, first.scale) == (0, "loud", 1.0)
    assert (second.id, second.name, second.scale) == (1, "half", 0.5)
    assert len(first.sha256) == 64
    assert first.sha256 == second.sha256


def test_adapters_of_one_name_missing_ones_and_misfits_are_told(
    home: Path, model: ModelFile, adapter: Path
) -> None:
    with pytest.raises(BadModel, match="two LoRA adapters are called loud"):
        adapters_of(listing(home, Lora(str(adapter)), Lora(str(adapter))), model)
    with pytest.raises(BadModel, match=r"none\.gguf: no such file"):
        adapters_of(listing(home, Lora(str(home / "none.gguf"))), model)
    with pytest.raises(BadModel, match="not a LoRA adapter"):
        adapters_of(listing(home, Lora(str(model.path))), model)
    one = np.ones((2, 7), dtype=np.float32)
    pair = {"blk.0.attn_q.weight.lora_a": one, "blk.0.attn_q.weight.lora_b": one.T.copy()}
    write_gguf(home / "small.gguf", model.header.architecture, pair)
    with pytest.raises(BadModel, match="does not fit the model"):
        adapters_of(listing(home, Lora(str(home / "small.gguf"))), model)
    write_gguf(home / "other.gguf", "gpt2", pair)
    with pytest.raises(BadModel, match="gpt2"):
        adapters_of(listing(home, Lora(str(home / "other.gguf"))), model)


def stored(model: ModelFile, home: Path, *loras: StoredLora) -> ModelFile:
    """The model as if it lay in the store, with these beside it."""
    entry = Stored(
        name="stored", files=(), architecture="", parameters=0, quantisation="", licence="",
        added="", source="", folder=home, lora=loras,
    )  # fmt: skip
    return replace(model, stored=entry)


def test_adapters_beside_the_model_follow_and_are_not_applied(
    home: Path, model: ModelFile, adapter: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sha256 = hashlib.sha256(adapter.read_bytes()).hexdigest()
    beside = stored(
        model,
        home,
        StoredLora("loud.gguf", 0, sha256, name="loud"),
        StoredLora("loud.gguf", 0, sha256, name="calm"),
    )
    found = adapters_of(listing(home, Lora(str(adapter), 0.5)), beside)
    assert [(each.id, each.name, each.scale) for each in found] == [
        (0, "loud", 0.5),
        (1, "calm", 0),
    ]
    assert "not loaded, model.lora has another of its name" in caplog.text


def test_an_adapter_of_the_store_that_was_changed_is_refused(
    home: Path, model: ModelFile, adapter: Path
) -> None:
    beside = stored(model, home, StoredLora(adapter.name, 0, "00" * 32, name="loud"))
    with pytest.raises(BadModel, match="steelyard model remove stored --lora loud"):
        adapters_of(listing(home), beside)


# The sets


def test_a_set_is_in_order_and_without_what_is_not_applied() -> None:
    assert lora_set({2: 1.0, 0: 0.5, 1: 0.0, 3: -0.0}) == ((0, 0.5), (2, 1.0))


def test_scales_that_are_set_count_for_whoever_chooses_nothing() -> None:
    adapters = make_adapters(loud=1.0)
    assert adapters.default == ((0, 1.0),)
    adapters.rescale({1: 0.5})
    assert adapters.default == ((1, 0.5),)
    assert [adapters.scale(adapter) for adapter in adapters.loaded] == [0.0, 0.5]


def test_what_the_ledger_keeps_finds_the_same_file_under_another_id() -> None:
    record = make_adapters().recorded(((0, 1.0), (1, 0.5)))
    assert record[0] == {"name": "loud", "sha256": SHA["loud"], "scale": 1.0}
    turned = Adapters(
        Adapter(id, "x", Path("/x"), sha, 0.0) for id, sha in enumerate(reversed(SHA.values()))
    )
    assert turned.of_record(record) == ((0, 0.5), (1, 1.0))
    with pytest.raises(NotLoaded, match=r"loud \(111111111111\) is not loaded"):
        Adapters().of_record(record)


# Requests


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return replace(make_box(tmp_path), adapters=make_adapters(shrill=0.5))


def submitted(box: Box) -> Submit:
    supervisor: Any = box.supervisor
    found = supervisor.last.request
    assert isinstance(found, Submit)
    return found


@pytest.mark.parametrize(
    ("lora", "expected"),
    [
        (None, ((1, 0.5),)),
        ([], ()),
        ([{"id": 0, "scale": 0}], ()),
        ([{"id": 0, "scale": 2}], ((0, 2.0),)),
        ([{"name": "shrill", "scale": -1.5}, {"name": "loud", "scale": 1}], ((0, 1.0), (1, -1.5))),
    ],
)
async def test_a_request_has_what_it_names_else_what_is_set(
    box: Box, lora: Any, expected: Any
) -> None:
    client = client_of(box)
    prompt = {"prompt": "hi"}
    for path, body in ((CHAT, chat()), ("/v1/completions", prompt), ("/completion", prompt)):
        answer = await client.post(path, json={**body, "lora": lora})
        assert answer.status_code == 200, answer.text
        assert submitted(box).lora == expected


async def test_a_box_without_adapters_says_so(tmp_path: Path) -> None:
    client = client_of(make_box(tmp_path))
    answer = await client.post(CHAT, json=chat(lora=[{"id": 0, "scale": 1}]))
    assert answer.status_code == 400
    assert "no LoRA adapters" in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "lora.0"
    assert (await client.get("/lora-adapters")).json() == []


async def test_everybody_may_see_the_scales_and_operators_alone_may_set_them(box: Box) -> None:
    client = client_of(box)
    keys = {scope: box.keys.create(scope, [scope]) for scope in ("infer", "admin")}
    headers = {scope: {"Authorization": f"Bearer {key}"} for scope, key in keys.items()}
    body = [{"name": "loud", "scale": 1}]
    refused = await client.post("/lora-adapters", json=body, headers=headers["infer"])
    assert refused.status_code == 403
    done = await client.post("/lora-adapters", json=body, headers=headers["admin"])
    assert done.json() == {"success": True, "recorded": True}
    listed = (await client.get("/lora-adapters", headers=headers["infer"])).json()
    assert [adapter["scale"] for adapter in listed] == [1.0, 0.0]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.ledger.close()


async def test_a_replay_has_the_set_of_the_answer_or_is_impossible(desk: Desk) -> None:
    with_both = client_of(replace(desk.box, adapters=make_adapters()))
    lora = [{"name": "shrill", "scale": 0.25}]
    answer = await with_both.post(CHAT, json=chat(temperature=0, lora=lora))
    name = answer.json()["id"]
    refused = await desk.verify(name, digest=WRONG)
    error = refused.json()["error"]
    assert error["replay"] == "impossible"
    assert "shrill" in error["said"]
    assert not desk.engine.replays
    told = await with_both.post(f"/v1/audit/{name}/verify", json={"digest": WRONG})
    assert told.json()["error"]["replay"] == "identical"
    assert [submit.lora for submit in desk.engine.replays] == [((1, 0.25),)]
    facts = told.json()["error"]["report"]["facts"]
    assert facts["lora"] == [{"name": "shrill", "sha256": SHA["shrill"], "scale": 0.25}]
