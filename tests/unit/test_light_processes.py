"""What the box's processes hold of other packages: no more than they use."""

import subprocess
import sys

import pytest


def loaded_by(program: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after `program`."""
    code = f"{program}\nimport sys\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("child", ["engine", "prepare"])
def test_children_load_the_bindings_of_llama_cpp_and_nothing_else_of_it(child: str) -> None:
    loaded = loaded_by(f"import appliance.{child}.process")
    assert "llama_cpp.llama_cpp" in loaded
    assert not loaded & {"llama_cpp.llama", "llama_cpp.llama_chat_format", "diskcache", "sqlite3"}


def test_daemon_loads_neither_llama_cpp_nor_a_template_engine() -> None:
    loaded = loaded_by("import appliance.daemon")
    assert "appliance.service" in loaded
    assert not loaded & {"llama_cpp", "jinja2", "llguidance", "onnxruntime", "matplotlib"}


def test_whole_package_is_there_for_who_asks_for_it() -> None:
    program = (
        "from appliance.engine.llama import llama_cpp as ours\n"
        "import llama_cpp, sys\n"
        "assert llama_cpp.llama_cpp is ours and 'llama_cpp.llama' not in sys.modules\n"
        "assert not hasattr(llama_cpp, '__no_such_name__') and not hasattr(llama_cpp, 'nothing')\n"
        "assert llama_cpp.Llama.__module__ == 'llama_cpp.llama'\n"
        "assert llama_cpp.llama_cpp is ours and llama_cpp.llama_decode is ours.llama_decode"
    )
    assert "llama_cpp.llama" in loaded_by(program)


def test_package_that_is_loaded_already_stays_as_it_is() -> None:
    program = (
        "import llama_cpp\n"
        "before = llama_cpp.Llama\n"
        "from appliance.engine.llama import llama_cpp as ours\n"
        "assert llama_cpp.Llama is before and llama_cpp.llama_cpp is ours"
    )
    assert "diskcache" in loaded_by(program)
