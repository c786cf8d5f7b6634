"""What rows of logits come to: our C function, as this machine's compiler makes it, and NumPy's
way where it is missing, both against their definition."""

import ctypes
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from appliance.engine.kernels import patch
from appliance.engine.rows import Reader

KERNELS = Path(patch.__file__).parent
FLAGS = {"plain": ("-O3",), "here": ("-O3", "-march=native")}
WIDTHS = (1, 3, 15, 16, 17, 63, 64, 65, 130, 1023, 1024, 1025, 5000)
Logits = NDArray[np.float32]
ReaderOf = Callable[[set[int]], Reader]


@pytest.fixture(scope="module", params=["numpy", *FLAGS])
def reader_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ReaderOf:
    """Makes readers that use NumPy, or our functions compiled for any CPU or for this one."""
    if request.param == "numpy":
        return Reader
    library = compiled(tmp_path_factory.mktemp("rows"), FLAGS[request.param])
    return lambda eogs: Reader(eogs, library)


def compiled(folder: Path, flags: tuple[str, ...]) -> ctypes.CDLL:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    assert compiler, "the engine cannot be built without a C++ compiler either"
    source, library = folder / "rows.cpp", folder / "rows.so"
    source.write_text('#include "steelyard_rows.h"\n')
    command = [compiler, "-std=c++17", *flags, "-Wall", "-Werror", f"-I{KERNELS}", str(source)]
    command += ["-shared", "-fPIC", "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(library))


def make_logits(n_vocab: int, seed: int = 0, n_rows: int = 3) -> Logits:
    made = np.random.default_rng(seed).normal(scale=4.0, size=(n_rows, n_vocab))
    return made.astype(np.float32)


def entropy_of(row: Logits) -> tuple[float, float]:
    """Logarithm of the sum, and entropy, by their definitions."""
    values = row.astype(np.float64)
    log_sum = float(np.log(np.exp(values - values.max()).sum()) + values.max())
    chances = np.exp(values - log_sum)
    held = chances[chances > 0]
    return log_sum, float(-(held * np.log(held)).sum())


@pytest.mark.parametrize("n_vocab", WIDTHS)
def test_best_highest_and_ends_are_those_of_each_row(reader_of: ReaderOf, n_vocab: int) -> None:
    for seed in range(4):
        logits = make_logits(n_vocab, seed)
        ends = {0, n_vocab // 2, n_vocab - 1}
        found = reader_of(ends).read(logits)
        for i, row in enumerate(logits):
            assert found.best[i] == row.argmax()
            assert found.highest[i] == row.max()
            assert found.ends[i] == row[sorted(ends)].max()


@pytest.mark.parametrize("n_vocab", WIDTHS)
def test_of_equal_logits_the_first_is_best(reader_of: ReaderOf, n_vocab: int) -> None:
    logits = np.round(make_logits(n_vocab) / 4.0)
    found = reader_of({0}).read(logits)
    assert [found.best[i] for i in range(3)] == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("n_vocab", WIDTHS)
@pytest.mark.parametrize("spoiled", [math.nan, math.inf])
def test_row_with_no_usable_highest_has_no_best_and_its_neighbours_have(
    reader_of: ReaderOf, n_vocab: int, spoiled: float
) -> None:
    logits = make_logits(n_vocab)
    for place in {0, n_vocab // 2, n_vocab - 1}:
        rows = logits.copy()
        rows[1, place] = spoiled
        found = reader_of({0}).read(rows)
        assert found.best[1] == -1
        assert not math.isfinite(found.highest[1])
        assert [found.best[0], found.best[2]] == [logits[0].argmax(), logits[2].argmax()]


def test_row_of_forbidden_tokens_has_no_best(reader_of: ReaderOf) -> None:
    found = reader_of({0}).read(np.full((1, 100), -np.inf, dtype=np.float32))
    assert (found.best[0], found.highest[0]) == (-1, -math.inf)


def test_model_without_an_end_is_never_near_it(reader_of: ReaderOf) -> None:
    assert reader_of(set()).read(make_logits(100)).ends[2] == -math.inf


def test_step_without_outputs_has_no_rows(reader_of: ReaderOf) -> None:
    assert len(reader_of({0}).read(np.empty((0, 100), dtype=np.float32)).best) == 0


def test_more_rows_than_ever_before_are_read_as_well(reader_of: ReaderOf) -> None:
    reader, logits = reader_of({0}), make_logits(70, n_rows=40)
    for count in (1, 40, 7):
        found = reader.read(logits[:count])
        assert [found.best[i] for i in range(count)] == logits[:count].argmax(axis=1).tolist()


@pytest.mark.parametrize("n_vocab", [*WIDTHS, 49152])
def test_spread_is_that_of_the_softmax(reader_of: ReaderOf, n_vocab: int) -> None:
    for seed in range(3):
        (row,) = make_logits(n_vocab, seed, n_rows=1)
        found = reader_of({0}).spread(row, float(row.max()))
        log_sum, entropy = entropy_of(row)
        assert found.log_sum == pytest.approx(log_sum, abs=1e-5)
        assert found.entropy == pytest.approx(entropy, abs=1e-5)


def test_forbidden_and_hopeless_tokens_do_not_count(reader_of: ReaderOf) -> None:
    row = np.full(200, -np.inf, dtype=np.float32)
    row[[3, 90]] = 5.0
    row[100] = -500.0
    found = reader_of({0}).spread(row, 5.0)
    assert found.log_sum == pytest.approx(5.0 + math.log(2.0))
    assert found.entropy == pytest.approx(math.log(2.0))


def test_certain_row_has_no_entropy(reader_of: ReaderOf) -> None:
    row = np.full(500, -40.0, dtype=np.float32)
    row[499] = 40.0
    found = reader_of({0}).spread(row, 40.0)
    assert found.log_sum == pytest.approx(40.0)
    assert found.entropy == pytest.approx(0.0, abs=1e-9)


def test_switched_off_kernels_leave_the_reading_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ours:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"{name} was asked for")

    monkeypatch.setenv("STEELYARD_KERNELS", "off")
    logits = make_logits(100)
    assert Reader({0}, Ours()).read(logits).best[0] == logits[0].argmax()
