"""Configuration: what is accepted, what is refused and how it is said."""

import tomllib
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from appliance.config import (
    Config,
    ConfigError,
    describe,
    effective,
    is_loopback,
    load,
    reference,
)
from appliance.config.load import sections, settings, variable
from appliance.config.setting import about

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


def problems(text: str, tmp_path: Path, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, tmp_path, env)
    return str(caught.value)


def read(text: str, tmp_path: Path, env: dict[str, str] | None = None) -> Config:
    file = tmp_path / "steelyard.toml"
    file.write_text(text, encoding="utf-8")
    return load(file, env or {})


def test_defaults_without_a_file_listen_on_loopback_only() -> None:
    config = load(None, {"HOME": "/home/op"})
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8421)
    assert config.server.state_dir == Path("/home/op/.local/state/steelyard")
    assert config == replace(
        Config(), server=replace(Config().server, state_dir=config.server.state_dir)
    )


def test_a_user_without_a_home_has_a_state_directory_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs as a number: what is set counts, and nothing else is asked."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert load(None, {}).server.state_dir == Path("/var/lib/steelyard")
    given = load(None, {"STEELYARD_SERVER_STATE_DIR": str(tmp_path)})
    assert given.server.state_dir == tmp_path


def test_file_sets_values_of_every_kind(tmp_path: Path) -> None:
    config = read(
        """
        [server]
        port = 9000
        drain_s = 5
        allowed_hosts = ["box.lan", "10.0.0.5"]
        [model]
        path = "m/x.gguf"
        aliases = { "gpt-4o" = "default" }
        lora = [{ path = "a.gguf", scale = 0.5 }, { path = "/b.gguf" }]
        [engine]
        kv_type = "q8_0"
        mlock = true
        """,
        tmp_path,
    )
    assert config.server.port == 9000
    assert config.server.drain_s == 5.0
    assert config.server.allowed_hosts == ("box.lan", "10.0.0.5")
    assert config.model.path == str(tmp_path / "m" / "x.gguf")
    assert dict(config.model.aliases) == {"gpt-4o": "default"}
    assert [(lora.path, lora.scale) for lora in config.model.lora] == [
        (str(tmp_path / "a.gguf"), 0.5),
        ("/b.gguf", 1.0),
    ]
    assert config.engine.kv_type == "q8_0"
    assert config.engine.mlock is True


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[server]\nprot = 1", "no key `server.prot`; did you mean `server.port`?"),
        ("[sever]\nport = 1", "no section `sever`; did you mean `server`?"),
        ("port = 1", "did you mean `server.port`?"),
        ("server = 1", "write its keys under [server]"),
        ("[engine]\ntemperature = 1", "did you mean `sampling.temperature`?"),
        ("[auth]\nzzz = 1", "known are loopback_open"),
        ("[server]\nport = 65536", "server.port: 65536 is out of bounds; it takes a whole number"),
        ("[server]\nport = -1", "from 0 to 65535"),
        ("[server]\nport = 80.0", "80.0 does not fit"),
        ("[server]\nport = '80'", "'80' does not fit"),
        ("[server]\nport = true", "true does not fit"),
        ("[server]\nport = 1" + "0" * 4000, "server.port: 1000"),
        ("[server]\nport = 1" + "0" * 5000, "not valid TOML"),
        ("[server]\ndrain_s = nan", "nan does not fit"),
        ("[server]\ndrain_s = inf", "inf does not fit"),
        ("[server]\nhost = 'a b'", "it takes an IP address or a host name"),
        ("[server]\nstate_dir = ''", "server.state_dir: '' does not fit; it takes a file name"),
        ("[engine]\nmlock = 1", "it takes true or false"),
        ("[engine]\nkv_type = 'f8'", 'it takes one of "f16", "bf16", "q8_0", "q4_0", "f32"'),
        ("[engine]\nkv_type = []", "engine.kv_type: [] does not fit"),
        ("[model]\nsha256 = 'abc'", "it takes 64 hexadecimal digits"),
        ('[model]\npath = "a\\u0000b"', "holds a character that no text may have"),
        ("[model]\nname = ' a'", "without line breaks or spaces around it"),
        ("[control]\nbatch_share = 0", "control.batch_share: 0 of 8192 cells"),
        ("[control]\nbatch_share = 1", "leaves pool A 0 of 8192 cells (engine.context)"),
        ("[control]\nbatch_share = 0.99", "and it needs 128: 0.98 is the most"),
        ("[control]\nbatch_share = 1.5", "control.batch_share: 1.5 is out of bounds"),
        ("[control]\nbatch_share = -0.1", "control.batch_share: -0.1 is out of bounds"),
        ("[control]\nbatch_share = nan", "nan does not fit"),
        ("[control]\npolicy = 'sjf'", 'it takes one of "expected-cost", "fcfs", "shuffled"'),
        ("[control]\noverflow_target = 0", "control.overflow_target: 0 is out of bounds"),
        ("[engine]\ncontext = 128\n[control]\nbatch_share = 0.6", "and it needs 64"),
        ("[model]\naliases = ['a']", "it takes a table"),
        ("[model]\naliases = { a = 'b' }", '`a` must be "default"'),
        ("[model]\naliases = { '' = 'default' }", "model.aliases: '' does not fit"),
        ("[model]\nlora = ['a.gguf']", "tables with `path` and `scale`"),
        ("[model]\nlora = [{ scale = 1.0 }]", "tables with `path` and `scale`"),
        ("[model]\nlora = [{ path = 'a', sale = 1.0 }]", "tables with `path` and `scale`"),
        ("[model]\nlora = [{ path = 'a', scale = 1e9 }]", "from -100 to 100"),
        ("[api]\ncors_origins = ['intranet']", "origins such as"),
        ("[api]\ncors_origins = 'x'", "it takes a list"),
        ("[server]\nallowed_hosts = [" + "'a'," * 257 + "]", "257 entries; at most 256"),
        ("[engine]\ncontext = 1024\nbatch = 2048", "2048 is more than engine.context"),
        ("[engine]\nubatch = 1024", "1024 is more than engine.batch, which is 512"),
        ("[engine]\nprefill_tokens = 1024", "more than engine.batch"),
        ("[engine]\nmax_sequences = 250", "at most 256 are possible"),
        ("[engine]\nkv_type = 'q4_0'\nflash_attention = 'off'", "needs engine.flash_attention"),
        ("[limits]\nprepare_s = 1", "shorter than limits.template_s"),
        ("[server", "not valid TOML"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("#" + "x" * 1_100_000, "larger than"),
    ],
)
def test_wrong_file_is_refused_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    said = problems(text, tmp_path)
    assert says in said
    assert str(tmp_path / "steelyard.toml") in said
    assert len(said) < 400


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(b"[model]\nname = '\xff'")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(file, {})


def test_several_errors_are_reported_together(tmp_path: Path) -> None:
    said = problems(
        "[server]\nport = -1\nhots = 'x'\n[egine]\n", tmp_path, {"STEELYARD_SERVER_PROT": "1"}
    )
    assert len(said.splitlines()) == 4


def test_missing_file_that_was_named_is_an_error(tmp_path: Path) -> None:
    for path, env in ((tmp_path / "no", {}), (None, {"STEELYARD_CONFIG": str(tmp_path / "no")})):
        with pytest.raises(ConfigError, match="No such file"):
            load(path, env)


def test_environment_wins_over_file_and_options_over_both(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[server]\nport = 1\nhost = '::1'\ndrain_s = 1")
    env = {
        "STEELYARD_CONFIG": str(file),
        "STEELYARD_SERVER_PORT": "2",
        "STEELYARD_SERVER_HOST": "::",
    }
    config = load(None, env, {"server.port": 3})
    assert (config.server.port, config.server.host, config.server.drain_s) == (3, "::", 1.0)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("server.drain_s", "2.5", 2.5),
        ("engine.mlock", "true", True),
        ("server.allowed_hosts", "a.lan, b.lan", ("a.lan", "b.lan")),
        ("server.allowed_hosts", '["a.lan"]', ("a.lan",)),
        ("model.aliases", '{ a = "default" }', {"a": "default"}),
        ("engine.kv_type", "q8_0", "q8_0"),
        ("model.name", "7", "7"),
    ],
)
def test_environment_sets_every_kind(name: str, text: str, value: object) -> None:
    config = load(None, {variable(name): text})
    section, _, key = name.partition(".")
    assert getattr(getattr(config, section), key) == value


@pytest.mark.parametrize("text", ["x", "", "1\nb = 2", "[", "yes", "[" * 9999])
def test_bad_environment_value_names_the_variable(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^\$STEELYARD_SERVER_PORT: server.port: .* takes a whole"
    ):
        load(None, {"STEELYARD_SERVER_PORT": text})


def test_misspelt_variable_is_an_error_and_others_are_left_alone() -> None:
    with pytest.raises(ConfigError, match=r"did you mean \$STEELYARD_SERVER_PORT"):
        load(None, {"STEELYARD_SERVR_PORT": "1"})
    load(None, {"STEELYARD_DATA": "x", "STEELYARD_SERVICE_PORT": "x", "STEELYARD_API_KEY": "x"})


def test_state_directory_comes_from_the_environment() -> None:
    assert load(None, {"STEELYARD_STATE": "/a"}).server.state_dir == Path("/a")
    assert load(None, {"STATE_DIRECTORY": "/b:/c"}).server.state_dir == Path("/b")
    both = {"STEELYARD_STATE": "/a", "STEELYARD_SERVER_STATE_DIR": "/d"}
    assert load(None, both).server.state_dir == Path("/d")


def test_unset_sizes_follow_a_smaller_context(tmp_path: Path) -> None:
    engine = read("[engine]\ncontext = 256", tmp_path).engine
    assert (engine.batch, engine.ubatch, engine.prefill_tokens) == (256, 256, 256)
    engine = read("[engine]\nbatch = 64", tmp_path).engine
    assert (engine.batch, engine.ubatch, engine.prefill_tokens) == (64, 64, 64)


def test_every_setting_is_described_and_every_number_is_bounded() -> None:
    for key, (hint, of) in settings().items():
        assert about(of).doc, key
        if hint in (int, float):
            low, high = about(of).bounds
            assert isinstance(of.default, int | float)
            assert low <= of.default <= high, key
    assert [entry.key for entry in describe()] == list(settings())


def test_defaults_are_within_their_own_bounds(tmp_path: Path) -> None:
    text = effective(load(None, {})).replace("# ", "")
    assert read(text, tmp_path) == load(None, {})


@hypothesis_settings(deadline=None)
@given(data=st.data())
def test_effective_toml_gives_the_same_configuration_again(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = data.draw(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=40))
    config = Config(
        server=replace(Config().server, port=data.draw(st.integers(0, 65535))),
        model=replace(Config().model, name=name, aliases={name: "default"}),
        limits=replace(Config().limits, deadline_s=data.draw(st.floats(0, 86400))),
    )
    assert read(effective(config), tmp_path_factory.getbasetemp()) == config


@hypothesis_settings(deadline=None)
@given(body=st.binary(max_size=200))
def test_any_bytes_make_a_configuration_or_a_config_error(
    body: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(body)
    with suppress(ConfigError):
        load(file, {})


def test_effective_toml_comments_out_defaults_only(tmp_path: Path) -> None:
    shown = effective(read("[server]\nport = 9000", tmp_path))
    assert tomllib.loads(shown)["server"] == {"port": 9000}
    assert '# host = "127.0.0.1"' in shown


def test_reference_page_is_in_step_with_the_settings() -> None:
    assert DOCS.read_text(encoding="utf-8") == reference(), "run `steelyard config docs`"


def test_sections_are_frozen_and_slotted() -> None:
    for _, section in sections():
        assert section.__dataclass_params__.frozen
        assert not hasattr(section(), "__dict__")
        assert fields(section)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"]
)
def test_loopback_hosts_are_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "box.lan", "localhost.evil", "", "128.0.0.1"]
)
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)
