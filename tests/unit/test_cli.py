"""The `steelyard` command: what it prints, where, and how it ends."""

import json
import shlex
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.accounts.keys import FILE_NAME, KeyStore
from appliance.backup.errors import BackupError
from appliance.banner import banner, base_url
from appliance.cli import run
from appliance.config import Config, reference


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of its own, and no configuration but what the test gives."""
    monkeypatch.setenv("STEELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("STEELYARD_CONFIG", raising=False)
    return tmp_path / "state"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Stands in for the daemon: keeps the configurations it was started with; exits with 7."""
    seen: list[Config] = []

    def keep(config: Config) -> int:
        seen.append(config)
        return 7

    stand_in(monkeypatch, keep)
    return seen


def stand_in(monkeypatch: pytest.MonkeyPatch, function: Callable[[Config], int]) -> None:
    def serve(config: Config, *, simulate_board: bool) -> int:
        return function(config)

    for name, does in (("daemon", {"serve": serve}), ("selftest", {"selftest": function})):
        module = types.ModuleType(f"appliance.{name}")
        vars(module).update(does)
        monkeypatch.setitem(sys.modules, f"appliance.{name}", module)


def make_key(state: Path, *scopes: str) -> str:
    return KeyStore(state / FILE_NAME).create("key", scopes)


def test_version_names_llama_cpp(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("steelyard ")
    assert "(llama.cpp " in out
    assert ", llama-cpp-python " in out
    assert ", built with " in out


def test_command_starts_without_heavy_modules() -> None:
    program = (
        "import sys, appliance.cli; "
        "print(*{name.partition('.')[0] for name in sys.modules}, "
        "*[name for name in sys.modules if name.startswith('appliance.')])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(out.stdout.split())
    assert not loaded & {"llama_cpp", "numpy", "fastapi", "uvicorn", "msgspec", "onnxruntime"}
    ours = {name for name in loaded if name.startswith("appliance.")}
    light = {"appliance.cli", "appliance.errors"}
    assert {name for name in ours if not name.startswith("appliance.commands")} == light


def test_serve_hands_the_configuration_to_the_daemon_and_exits_with_its_code(
    served: list[Config], tmp_path: Path
) -> None:
    assert run(["serve", "--host", "::1", "--port", "9", "--model", "m.gguf"]) == 7
    assert (served[0].server.host, served[0].server.port) == ("::1", 9)
    assert served[0].model.path == str(Path.cwd() / "m.gguf")


def test_selftest_exits_with_the_code_of_the_daemon(served: list[Config]) -> None:
    assert run(["selftest"]) == 7
    assert len(served) == 1


def test_serve_on_the_lan_without_a_key_is_refused_and_names_the_command(
    served: list[Config], state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--host", "0.0.0.0"]) == 1
    assert "`steelyard keys create NAME --scope infer`" in capsys.readouterr().err
    make_key(state, "admin")
    assert run(["serve", "--host", "0.0.0.0"]) == 1
    assert served == []


def test_serve_on_the_lan_with_a_key_starts(served: list[Config], state: Path) -> None:
    make_key(state, "infer")
    assert run(["serve", "--host", "0.0.0.0"]) == 7


def test_serve_with_keys_that_cannot_be_read_is_refused(
    served: list[Config], state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_key(state, "infer")
    (state / FILE_NAME).write_text("{")
    assert run(["serve"]) == 1
    assert "Nobody can authenticate" in capsys.readouterr().err
    assert served == []


def test_bad_option_value_names_the_option(
    served: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--port", "70000"]) == 2
    assert "--port: server.port: 70000 is out of bounds" in capsys.readouterr().err
    assert served == []


def test_unexpected_failure_is_one_line_and_a_traceback_only_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(config: Config) -> int:
        raise OSError(98, "Address already in use")

    stand_in(monkeypatch, fail)
    assert run(["serve"]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "Address already in use" in said
    assert run(["--debug", "serve"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_what_stands_in_a_file_of_others_does_nothing_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(config: Config) -> int:
        raise BackupError("made by version \x1b[2K\x9b1A\rall is well\nnext line")

    stand_in(monkeypatch, fail)
    assert run(["selftest"]) == 1
    said = capsys.readouterr().err
    assert all(sign.isprintable() for sign in said.replace("\n", ""))
    assert said.endswith("all is well\nnext line\n")


def test_a_word_that_is_not_utf_8_is_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", "create", "app", "--scope", "infer"]) == 0
    capsys.readouterr()
    assert run(["requests", "list", "--tenant", "caf\udce9"]) == 1
    assert "'caf\\udce9' is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "input or output: No space left on device ("),
        (PermissionError(13, "Permission denied", "/a/b"), "/a/b: Permission denied ("),
    ],
)
def test_what_the_machine_refuses_is_told_without_names_of_python(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OSError,
    said: str,
) -> None:
    def failing(config: object) -> int:
        raise error

    monkeypatch.setattr("appliance.selftest.selftest", failing)
    assert run(["selftest"]) == 1
    assert capsys.readouterr().err.startswith(f"steelyard: {said}")


def test_config_check_prints_ok_and_the_effective_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[server]\nport = 9000")
    assert run(["config", "check", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"ok: {file}\n")
    assert "\nport = 9000\n" in out


def test_config_check_prints_every_error_and_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[server]\nport = -1\nprot = 1")
    assert run(["config", "check", str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 3
    assert "did you mean `server.port`?" in said.err


def test_config_show_comments_out_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show"]) == 0
    assert "[server]\n# host = " in capsys.readouterr().out


def test_config_docs_writes_the_reference(tmp_path: Path) -> None:
    assert run(["config", "docs", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text() == reference()


def test_created_key_is_alone_on_standard_output_and_works(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", "create", "app", "--scope", "infer", "--expires", "2999-01-31"]) == 0
    secret = capsys.readouterr().out.strip()
    key = KeyStore(state / FILE_NAME).authenticate(secret)
    assert key is not None
    assert (key.name, str(key.expires)) == ("app", "2999-01-31")


def test_keys_are_listed_without_secrets_and_revoked_by_name(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", "list"]) == 0
    assert "No keys" in capsys.readouterr().err
    secret = make_key(state, "infer", "metrics")
    assert run(["keys", "list"]) == 0
    out = capsys.readouterr().out
    assert "infer,metrics" in out
    assert secret not in out
    assert run(["keys", "revoke", "key"]) == 0
    assert KeyStore(state / FILE_NAME).authenticate(secret) is None
    capsys.readouterr()
    assert run(["keys", "list"]) == 0
    assert "revoked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["keys", "create", "k_1"], 1, "is no name for a key"),
        (["keys", "create", "a", "--scope", "root"], 2, "'root' is not one of"),
        (["keys", "create", "a", "--expires", "soon"], 2, "soon"),
        (["keys", "create", "a", "--expires", "2000-01-01"], 1, "take a later day"),
        (["keys", "revoke", "nobody"], 1, "no key named 'nobody'"),
        (["serve", "--config", "/none.toml"], 2, "/none.toml: cannot be read: No such file"),
        (["surve"], 2, "No such command"),
    ],
)
def test_bad_use_says_what_is_wrong(
    args: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == code
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


def test_banner_shows_url_key_and_a_curl_line_that_a_shell_takes() -> None:
    text = banner("http://127.0.0.1:8421", "sk-steelyard-x", "tiny")
    assert "tiny at http://127.0.0.1:8421/v1" in text
    assert "    sk-steelyard-x\n" in text
    line = next(line for line in text.splitlines() if line.strip().startswith("curl"))
    words = shlex.split(line)
    assert words[1] == "http://127.0.0.1:8421/v1/chat/completions"
    assert json.loads(words[words.index("-d") + 1])["model"] == "default"
    assert "Authorization" not in line


def test_banner_without_a_new_key_shows_none_and_says_when_one_is_needed() -> None:
    text = banner("http://10.0.0.5:80", None, "tiny", key_needed=True)
    assert "Admin key" not in text
    assert "steelyard keys create NAME --scope infer" in text
    assert 'Bearer $STEELYARD_API_KEY"' in text


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
        ("box.lan", "http://box.lan:80"),
    ],
)
def test_url_is_one_that_a_client_can_open(host: str, url: str) -> None:
    assert base_url(host, 80) == url
