"""Our C++ kernels against plain arithmetic, compiled by the compiler that is here; the patch
against what it must and must not accept."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.engine.kernels import patch

KERNELS = Path(patch.__file__).parent
GEMM_CHECK = Path(__file__).with_name("gemm_check.cpp")
MASK_CHECK = Path(__file__).with_name("mask_check.cpp")
ATTENTION_CHECK = Path(__file__).with_name("attention_check.cpp")
FLAGS = {
    "plain": ("-mno-avx512f",),
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni", "-mf16c", "-mfma"),
}


Run = Callable[[Path, str], str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Compiles a program against our headers and returns what it prints."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    assert compiler, "the engine cannot be built without a C++ compiler either"

    def compile_and_run(source: Path, flags: str) -> str:
        program = tmp_path / "check"
        command = [compiler, "-std=c++17", "-O2", *FLAGS[flags], f"-I{KERNELS}", str(source)]
        command += ["-pthread", "-o", str(program)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout

    return compile_and_run


def _has_vnni() -> bool:
    return " avx512_vnni" in Path("/proc/cpuinfo").read_text()


def test_products_equal_their_definition(run: Run) -> None:
    if not _has_vnni():
        # There is nothing to run here; that the code is then left out is what must hold.
        assert run(GEMM_CHECK, "plain") == "left out\n"
        return
    lines = run(GEMM_CHECK, "avx512").splitlines()
    checked = [re.fullmatch(r"(\S+) .* worst=(\S+) touched=(\d+)", line) for line in lines[:-1]]
    assert len(checked) == 8 * 3 * 2 * 2
    for found in checked:
        assert found is not None, lines
        assert float(found[2]) < 2e-6, found[0]
        assert found[3] == "0", found[0]


def test_rows_that_do_not_fill_a_tile_are_left_to_ggml(run: Run) -> None:
    flags = "avx512" if _has_vnni() else "plain"
    last = run(GEMM_CHECK, flags).splitlines()[-1]
    assert last in ("q4_1 m=40 n=2 k=2 refused", "left out")


def test_without_avx512_the_products_are_left_out(run: Run) -> None:
    assert run(GEMM_CHECK, "plain") == "left out\n"


@pytest.mark.parametrize("flags", ["plain", *(["avx512"] if _has_vnni() else [])])
def test_the_next_visible_cell_is_found_wherever_it_is(run: Run, flags: str) -> None:
    assert re.fullmatch(r"tried \d{5,} wrong 0\n", run(MASK_CHECK, flags))


def test_attention_equals_its_definition_with_any_number_of_threads(run: Run) -> None:
    if not _has_vnni():
        assert run(ATTENTION_CHECK, "plain") == "left out\n"
        return
    lines = run(ATTENTION_CHECK, "avx512").splitlines()
    checked = [re.fullmatch(r"(\S+) worst=(\S+) same=(\d)", line) for line in lines]
    assert len(checked) == 15
    for found in checked:
        assert found is not None, lines
        assert float(found[2]) < 5e-6, found[0]
        assert found[3] == "1", found[0]


def test_without_avx512_attention_is_left_out(run: Run) -> None:
    assert run(ATTENTION_CHECK, "plain") == "left out\n"


def test_ggml_plans_the_memory_that_attention_takes() -> None:
    header = (KERNELS / "steelyard_flash.h").read_text()
    numbers = {name: re.search(rf"\b{name} = (\d+);", header) for name in ("PIECES", "HEAD")}
    pieces, head = (found[1] for found in numbers.values() if found)
    planned = next(edit.text for edit in patch.EDITS if edit.file.name == "ggml-cpu.c")
    assert f"sizeof(float)*{pieces}*neq2*({head} + DV)" in planned


def test_an_edit_goes_in_front_of_its_line() -> None:
    edit = patch.Edit(Path("x.cpp"), "  here", "new\n")
    assert patch.edited("a\n  here\nb\n", edit) == "a\nnew\n  here\nb\n"
    assert patch.edited("  here\nb\n", edit) == "new\n  here\nb\n"


@pytest.mark.parametrize("text", ["a\nb\n", "  here\n  here\n", "not  here\n", "  here too\n"])
def test_an_edit_whose_line_is_missing_or_ambiguous_is_refused(text: str) -> None:
    with pytest.raises(patch.Changed, match=r"x\.cpp"):
        patch.edited(text, patch.Edit(Path("x.cpp"), "  here", "new\n"))


def _sources(root: Path) -> Path:
    for edit in patch.EDITS:
        path = root / edit.file
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if path.exists() else ""
        path.write_text(before + edit.before + "\n")
    return root


def test_applying_twice_changes_nothing_more(tmp_path: Path) -> None:
    root = _sources(tmp_path)
    patch.apply(root)
    once = {path: path.read_text() for path in root.rglob("*.*")}
    patch.apply(root)
    assert {path: path.read_text() for path in root.rglob("*.*")} == once
    for edit in patch.EDITS:
        assert edit.text + edit.before in (root / edit.file).read_text()
    assert {path.name for path in root.rglob("*.h")} == set(patch.HEADERS)
