"""What a model needs: by the formula, and by what llama.cpp says that it took."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance import gguf, models
from appliance.config import Config, EngineConfig, Lora, ModelConfig
from appliance.models.memory import Available, available, memory_free, need, need_of, verdict
from tests.unit.model_parts import gguf_bytes, pairs, tensors, write_mite
from tests.unit.test_gguf import ARR, BOOL, U32

ENGINE = Config().engine
MIB = 1024 * 1024

SETTINGS: list[dict[str, Any]] = [
    {"context": 2048, "max_sequences": 4, "cached_sequences": 4, "draft_tokens": 0},
    {"context": 1000, "batch": 64, "ubatch": 64, "kv_type": "q8_0"},
    {"context": 4096, "flash_attention": "off"},
]

ASK_LLAMA = """
import ctypes, json, sys
import llama_cpp
from appliance.engine import runner
from appliance.engine.commands import Load

lines = []
heard = llama_cpp.llama_log_callback(lambda _level, text, _user: lines.append(text.decode()))
llama_cpp.llama_log_set(heard, ctypes.c_void_p(0))
for load in json.loads(sys.stdin.read()):
    runner.Runner(Load(**load)).close()
    lines.append("END")
print("".join(lines))
"""


def header_of(tmp_path: Path, **more: tuple[int, Any] | None) -> gguf.Header:
    return gguf.read(write_mite(tmp_path / "mite.gguf", **more))


@pytest.fixture(scope="module")
def told() -> list[str]:
    """llama.cpp's own words on each of the settings."""
    loads = []
    for setting in SETTINGS:
        engine = replace(ENGINE, **setting)
        loads.append(
            {
                "model_path": str(models.packaged_model()),
                "n_ctx": engine.context,
                "max_sequences": engine.max_sequences,
                "n_batch": engine.batch,
                "n_ubatch": engine.ubatch,
                "threads": 1,
                "threads_batch": 1,
                "n_gpu_layers": 0,
                "flash_attention": engine.flash_attention,
                "kv_type": engine.kv_type,
                "cached_sequences": engine.cached_sequences,
                "draft_tokens": engine.draft_tokens,
                "prefill_tokens": engine.prefill_tokens,
            }
        )
    done = subprocess.run(
        [sys.executable, "-c", ASK_LLAMA], input=json.dumps(loads), capture_output=True, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("END")[:-1]


def mib(text: str, what: str) -> float:
    """A size in llama.cpp's log."""
    found = re.search(rf"{what} size *= +([0-9.]+) MiB", text)
    assert found is not None, f"llama.cpp no longer tells its {what} size"
    return float(found[1])


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_the_figures_are_those_of_the_real_engine(told: list[str], number: int) -> None:
    engine, said = replace(ENGINE, **SETTINGS[number]), told[number]
    found = need(gguf.read(models.packaged_model()), engine)
    assert found.weights / MIB == pytest.approx(mib(said, "file"), abs=0.01)
    assert found.kv / MIB == pytest.approx(mib(said, "KV buffer"), abs=0.01)
    # The buffer grows when drafts ask for more rows.
    assert found.outputs / MIB >= mib(said, "output buffer") - 0.01
    if not engine.draft_tokens:
        assert found.outputs / MIB == pytest.approx(mib(said, "output buffer"), abs=0.01)
    assert found.compute / MIB == pytest.approx(mib(said, "compute buffer"), rel=0.1)


def test_the_cache_counts_cells_and_shared_heads(tmp_path: Path) -> None:
    found = need(header_of(tmp_path), replace(ENGINE, context=1000, max_sequences=4))
    assert found.cells == 1024
    assert found.kv_per_token == 2 * 2 * 8 * 2  # Keys and values of 2 heads of 8 half floats.
    assert found.kv == 1024 * found.kv_per_token
    assert found.cells_per_sequence == 256
    assert found.per_sequence == 256 * found.kv_per_token
    assert found.total == found.own + found.weights


def test_the_type_of_the_cache_counts(tmp_path: Path) -> None:
    header = header_of(tmp_path, llama__attention__head_count_kv=(U32, 4))
    half = need(header, replace(ENGINE, kv_type="f16")).kv
    assert need(header, replace(ENGINE, kv_type="f32")).kv == 2 * half
    assert need(header, replace(ENGINE, kv_type="q8_0")).kv == half * 34 // 64


def test_layers_that_share_or_compress_their_cache_take_less(tmp_path: Path) -> None:
    plain = header_of(tmp_path)
    assert header_of(tmp_path, llama__attention__shared_kv_layers=(U32, 1)).kv_bytes_per_token(
        "f16"
    ) == 0  # fmt: skip
    latent = header_of(
        tmp_path,
        llama__attention__key_length_mla=(U32, 8),
        llama__attention__value_length_mla=(U32, 8),
    )
    assert latent.kv_bytes_per_token("f16") == plain.kv_bytes_per_token("f16") // 2


def test_a_sliding_window_is_counted_whole_and_told(tmp_path: Path) -> None:
    engine = replace(ENGINE, context=8192, max_sequences=2, ubatch=256, batch=256)
    plain = need(header_of(tmp_path), engine)
    found = need(header_of(tmp_path, llama__attention__sliding_window=(U32, 512)), engine)
    assert found.kv == plain.kv
    assert found.windowed == found.kv_per_token * (2 * 512 + 256)
    assert plain.windowed == 0


@pytest.mark.parametrize(
    ("pattern", "windowed"),
    [
        ((U32, 2), (True, False)),
        ((ARR, (BOOL, [False, True])), (False, True)),
        ((ARR, (BOOL, [True])), ()),
        (None, (True, True)),
    ],
)
def test_which_layers_have_a_window_is_read(
    tmp_path: Path, pattern: tuple[int, Any] | None, windowed: tuple[bool, ...]
) -> None:
    header = header_of(
        tmp_path,
        llama__block_count=(U32, 2),
        llama__attention__sliding_window=(U32, 64),
        llama__attention__sliding_window_pattern=pattern,
    )
    assert header.cache.windowed == windowed


def test_the_experts_that_a_token_uses_count_together(tmp_path: Path) -> None:
    dense = header_of(tmp_path)
    mixed = header_of(
        tmp_path,
        llama__expert_feed_forward_length=(U32, 512),
        llama__expert_used_count=(U32, 4),
    )
    assert (dense.n_ff, mixed.n_ff) == (64, 2048)
    assert need(mixed, ENGINE).compute > need(dense, ENGINE).compute


def test_recurrent_layers_keep_a_state_for_each_sequence(tmp_path: Path) -> None:
    more = {
        "llama.block_count": (U32, 4),
        "llama.full_attention_interval": (U32, 4),
        "llama.ssm.inner_size": (U32, 64),
        "llama.ssm.state_size": (U32, 16),
        "llama.ssm.group_count": (U32, 1),
        "llama.ssm.conv_kernel": (U32, 4),
    }
    path = tmp_path / "hybrid.gguf"
    path.write_bytes(gguf_bytes(pairs() | more, tensors()))
    header = gguf.read(path)
    assert header.cache.recurrent == (True, True, True, False)
    one = 4 * (3 * (64 + 2 * 16) + 16 * 64)
    assert header.cache.state_bytes == 3 * one
    found = need(header, replace(ENGINE, max_sequences=2, cached_sequences=3))
    assert found.state == 5 * 3 * one
    assert found.kv_per_token == 64  # One layer of four.


def test_adapters_of_the_configuration_count_as_weights(tmp_path: Path) -> None:
    header = header_of(tmp_path)
    (tmp_path / "lora.gguf").write_bytes(b"x" * 1000)
    paths = (str(tmp_path / "lora.gguf"), str(tmp_path / "none.gguf"))
    config = Config(model=ModelConfig(lora=tuple(Lora(path) for path in paths)))
    assert need_of(header, config).weights == header.tensor_bytes + 1000


def test_the_verdict_says_what_to_do(tmp_path: Path) -> None:
    found = need(gguf.read(models.packaged_model()), ENGINE)
    assert verdict(found, Available(10**12, found.total)).level == "fits"
    tight = verdict(found, Available(10**12, found.total - 1))
    assert tight.level == "tight"
    lacks = verdict(found, Available(10**12, found.own - 1))
    assert lacks.level == "lacks"
    context = int(re.findall(r"Lower engine\.context to (\d+)", lacks.text)[0])
    less = need(gguf.read(models.packaged_model()), replace(ENGINE, context=context))
    assert less.total <= found.own - 1
    assert "Take a smaller model" in verdict(found, Available(10**12, 1000)).text


def make_proc(tmp_path: Path, group: str = "0::/box.service\n") -> tuple[Path, Path]:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (groups / "box.service").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 8000 kB\nMemFree: 1 kB\nMemAvailable: 6000 kB\n")
    (proc / "self" / "cgroup").write_text(group)
    return proc, groups


def test_a_control_group_may_allow_less_than_the_machine_has(tmp_path: Path) -> None:
    proc, groups = make_proc(tmp_path)
    assert available(proc, groups) == Available(8000 * 1024, 6000 * 1024)
    inner = groups / "box.service"
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("1\n")
    (inner / "memory.stat").write_text("anon 1\n")
    assert available(proc, groups) == Available(8000 * 1024, 6000 * 1024)
    (inner / "memory.max").write_text("3000000\n")
    (inner / "memory.current").write_text("1500000\n")
    (inner / "memory.stat").write_text("anon 5\ninactive_file 400000\n")
    assert available(proc, groups) == Available(3_000_000, 1_900_000, limited=True)
    (inner / "memory.current").write_text("9000000\n")
    assert available(proc, groups) == Available(3_000_000, 0, limited=True)


@pytest.mark.parametrize("text", ["", "MemTotal: x kB\nMemAvailable: 3 kB\n", "MemTotal 3 kB\n"])
def test_a_kernel_that_does_not_tell_is_not_guessed(tmp_path: Path, text: str) -> None:
    proc, groups = make_proc(tmp_path)
    (proc / "meminfo").write_text(text)
    assert available(proc, groups) is None


def test_this_machine_tells_its_memory() -> None:
    found = available()
    assert found is not None
    assert 0 < found.available <= found.total
    assert memory_free() > 0


def test_the_need_of_a_checked_model_is_one_number(tmp_path: Path) -> None:
    config = Config(server=replace(Config().server, state_dir=tmp_path / "state"))
    found = models.check(config)
    assert models.memory_need(found, config) == need(found.header, EngineConfig()).total
