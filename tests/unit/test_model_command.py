"""`steelyard model`: what it prints, and its exit codes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance import models
from appliance.cli import run
from appliance.commands.modelexamined import Gpu, examine
from appliance.commands.modeltext import info, warnings
from appliance.config import load
from appliance.models import Store
from appliance.models.memory import Available
from tests.unit.model_parts import write_lora, write_mite, write_parts
from tests.unit.test_gguf import U32


class Box:
    """A configuration of its own, and the command on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.store = Store(self.state_dir)
        self.config = folder / "steelyard.toml"
        self.write("[engine]\ncontext = 512\nbatch = 128\nubatch = 128\n")
        self._capsys = capsys

    def write(self, toml: str) -> None:
        self.config.write_text(f'[server]\nstate_dir = "{self.state_dir}"\n{toml}')

    def run(self, *args: object) -> tuple[int, str, str]:
        code = run(["model", *map(str, args), "--config", str(self.config)])
        out, err = self._capsys.readouterr()
        return code, out, err

    def said(self, *args: object) -> str:
        code, out, err = self.run(*args)
        assert code == 0, err
        return out

    def json(self, *args: object) -> Any:
        return json.loads(self.said(*args, "--json"))


@pytest.fixture
def box(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Box:
    return Box(tmp_path, capsys)


def test_a_fresh_box_lists_the_model_that_came_with_it(box: Box) -> None:
    line = box.said("list").splitlines()[1]
    assert line.startswith(f"*  {models.packaged_model().stem}")
    assert "apache-2.0" in line
    assert box.said("verify").startswith("the box holds no model but")


def test_add_says_what_it_took_and_what_is_wrong_with_it(box: Box) -> None:
    mite = write_mite(box.folder / "mite.gguf", tokenizer__chat_template=(8, "{{ messages }}"))
    said = box.said("add", mite, "--name", "house", "--licence", "ours")
    assert said.startswith("added `house`: llama, 18 k, F32, ")
    assert "licence: ours" in said
    assert "chat template: It adds no generation prompt" in said
    assert "It was trained for 256 tokens of context, and engine.context is 512" in said
    assert "`steelyard model use house` serves it" in said
    assert box.store.get("house").licence == "ours"


def test_list_marks_what_is_served(box: Box) -> None:
    box.store.add(write_mite(box.folder / "mite.gguf"), name="a")
    box.store.add(write_lora(box.folder / "accent.gguf"))
    box.store.select("a")
    lines = box.said("list").splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("*")] == [["*", "a"]]
    assert "+ accent" in lines[-1]
    found = box.json("list")
    assert (found["selected"], found["configured"], found["problems"]) == ("a", None, [])
    assert [model["name"] for model in found["models"]] == [models.packaged_model().stem, "a"]
    assert found["models"][1]["lora"][0]["name"] == "accent"
    box.write(f'[model]\npath = "{box.folder}/mite.gguf"\n')
    said = box.said("list")
    assert "model.path is set, so none of these is served but" in said
    assert "*" not in said


def test_a_damaged_model_is_listed_as_such(box: Box) -> None:
    stored = box.store.add(write_mite(box.folder / "mite.gguf"), name="a")
    (stored.folder / "manifest.json").write_text("{")
    code, out, err = box.run("list")
    assert code == 1
    assert "came with the box" in out
    assert err.startswith(f"damaged: {stored.folder}/manifest.json: it is damaged")
    assert box.run("verify")[0] == 1


def test_verify_tells_each_model_and_fails_for_one(box: Box) -> None:
    file = write_mite(box.folder / "mite.gguf")
    file.chmod(0o666)
    box.store.add(file, name="a")
    stored = box.store.add(file, name="b")
    assert box.said("verify") == "a: ok\nb: ok\n"
    stored.path.write_bytes(b"something else")
    code, out, _ = box.run("verify")
    assert code == 1
    assert out.startswith(f"a: ok\nb: {stored.path}: its SHA-256 is")
    code, out, _ = box.run("verify", "--json")
    assert code == 1
    assert [model["ok"] for model in json.loads(out)["models"]] == [True, False]
    assert box.said("verify", "a") == "a: ok\n"
    code, out, _ = box.run("verify", "nothing")
    assert (code, out[:24]) == (1, "nothing: no model is nam")


def test_remove_deletes_and_names_the_nearest(box: Box) -> None:
    box.store.add(write_mite(box.folder / "mite.gguf"), name="house")
    code, _, err = box.run("remove", "hause")
    assert (code, err) == (1, "steelyard: no model is named `hause`. Did you mean `house`?\n")
    assert box.said("remove", "house") == "removed `house`\n"
    assert box.store.list() == ()


def test_info_tells_of_the_served_model_and_its_memory(box: Box) -> None:
    said = box.said("info")
    assert "llama" in said
    assert "30 layers, 9 heads, 3 with keys of their own, 64 numbers each" in said
    assert "Memory, for 512 tokens of context in f16:" in said
    assert "23.0 kB a token" in said
    assert "Chat template (set by the box or its configuration):" in said
    found = box.json("info")
    assert found["memory"]["kv"] == 512 * 23040
    assert found["memory"]["total"] > found["memory"]["weights"]
    assert found["template"]["problems"] == []
    assert found["licence"]["name"] == "apache-2.0"
    assert found["verdict"]["level"] in ("fits", "tight", "lacks")


def test_info_takes_a_name_a_file_or_an_adapter(box: Box) -> None:
    parts = write_parts(box.folder)
    assert "in 3 parts" in box.said("info", parts[0])
    (box.folder / "LICENSE").write_text("You may.")
    stored = box.store.add(parts[0], name="a")
    said = box.said("info", "a")
    assert f"SHA-256    {stored.sha256}" in said
    assert f"its text: {stored.folder}/LICENSE.txt" in said
    lora = write_lora(box.folder / "accent.gguf")
    assert "for llama models, Accent" in box.said("info", lora)
    assert box.json("info", lora)["rank"] == 2
    code, _, err = box.run("info", box.folder / "none.gguf")
    assert (code, err) == (1, f"steelyard: {box.folder}/none.gguf: no such file\n")


def test_info_says_when_the_engine_will_refuse(box: Box) -> None:
    path = write_mite(box.folder / "m.gguf", llama__full_attention_interval=(U32, 2))
    assert "It keeps recurrent state" in box.said("info", path)


async def test_gpus_windows_and_a_missing_licence_are_told(box: Box) -> None:
    path = write_mite(
        box.folder / "m.gguf", general__license=None, llama__attention__sliding_window=(U32, 16)
    )
    found = await examine(path, load(box.config))
    gpus = (Gpu("H200", 150 * 10**9, 140 * 10**9), Gpu("T4", 16 * 10**9, 10**6))
    said = info(replace(found, gpus=gpus))
    assert "H200: 140.00 GB of 150.00 GB are free; all of it fits." in said
    assert "T4: 1.0 MB of 16.00 GB are free; not all of it fits." in said
    assert "Layers with a sliding window (16 tokens) are kept whole" in said
    assert "the file names none: find out before you use it" in said
    lacking = replace(found, has=Available(10**9, 10**6, limited=True))
    assert any("does not fit into the memory" in line for line in warnings(lacking))
    assert "Of 1.00 GB that this control group may use" in info(lacking)


def test_a_file_cannot_command_the_terminal(box: Box) -> None:
    evil = "\x1b]0;owned\x07 \x9b2J free"
    path = write_mite(
        box.folder / "m.gguf",
        general__name=(8, evil),
        general__license=(8, evil),
        tokenizer__chat_template=(8, evil + "{{ messages }}"),
    )
    for said in (box.said("add", path, "--name", "a"), box.said("list"), box.said("info", "a")):
        assert "owned" in said
        assert not set("\x1b\x07\x9b") & set(said)


def test_an_adapter_is_added_beside_its_model(box: Box) -> None:
    box.store.add(write_mite(box.folder / "mite.gguf"), name="a")
    lora = write_lora(box.folder / "accent.gguf")
    assert box.said("add", lora, "--name", "x") == "added the LoRA adapter `x` to `a`\n"
    said = box.said("remove", "a", "--lora", "x")
    assert said == "removed the LoRA adapter `x` of `a`\n"
    assert box.store.get("a").lora == ()


def test_drift_compares_names_and_files(box: Box) -> None:
    box.store.add(write_mite(box.folder / "mite.gguf"), name="a")
    found = box.json("drift", models.packaged_model(), "a")
    assert not found["same"]
    assert len(found["counts"]) == 5
    bad = write_mite(box.folder / "bad.gguf", tokenizer__ggml__model=(8, "unheard-of"))
    code, _, err = box.run("drift", "a", bad)
    assert code == 1
    assert err.splitlines()[-1].startswith("steelyard: the tokenizers cannot be compared: ")
