"""What the set-up assistant takes, and the files that it would write."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.config import load
from images.layout import HERE
from tests.unit.assistant_parts import Shelf, answers, machine
from tui.assistant import checks, files
from tui.assistant.checks import Static, Wrong, static
from tui.assistant.machine import BOARD, Interface, has_password
from tui.assistant.steps import STEPS, first_answers, first_wrong
from tui.words import LANGS, Words

SHIPPED = (HERE / "rootfs/steelyard.toml").read_text()


@pytest.mark.parametrize(
    ("address", "gateway", "dns", "says", "field"),
    [
        ("192.168.7.20", "", "", "prefix", "net.address"),
        ("", "", "", "address", "net.address"),
        ("192.168.7.300/24", "", "", "address", "net.address"),
        ("192.168.7.20/33", "", "", "address", "net.address"),
        ("fe80::1%eth0/64", "", "", "address", "net.address"),
        ("192.168.7.0/24", "", "", "whole_network", "net.address"),
        ("192.168.7.255/24", "", "", "whole_network", "net.address"),
        ("127.0.0.1/8", "", "", "no_interface_address", "net.address"),
        ("224.0.0.5/24", "", "", "no_interface_address", "net.address"),
        ("192.168.7.20/24", "192.168.8.1", "", "gateway", "net.gateway"),
        ("192.168.7.20/24", "192.168.7.20", "", "gateway", "net.gateway"),
        ("192.168.7.20/24", "fd00::1", "", "gateway", "net.gateway"),
        ("192.168.7.20/24", "router", "", "address", "net.gateway"),
        ("192.168.7.20/24", "", "site.example", "address", "net.dns"),
        ("10.0.0.1/24\nDHCP=yes", "", "", "address", "net.address"),
    ],
)
def test_address_that_cannot_work_is_refused_at_its_field(
    address: str, gateway: str, dns: str, says: str, field: str
) -> None:
    with pytest.raises(Wrong) as wrong:
        static(address, gateway, dns)
    assert (wrong.value.key, wrong.value.field) == (f"assist.wrong.{says}", field)


def test_addresses_of_both_kinds_are_taken() -> None:
    assert static("10.0.0.4/31") == Static("10.0.0.4/31")
    assert static(" fd00::5/64 ", "fd00::1").gateway == "fd00::1"


def test_file_of_networkd_is_read_as_it_was_written() -> None:
    chosen = static("192.168.7.20/24", "192.168.7.1", "192.168.7.1, 192.168.7.2")
    text = files.network_file("enp1s0", chosen)
    assert {"Name=enp1s0", "Address=192.168.7.20/24", "DHCP=no"} <= set(text.splitlines())
    assert files.network_of(text) == ("enp1s0", chosen)
    text = files.network_file("enp1s0", None)
    assert "DHCP=yes" in text
    assert files.network_of(text) == ("enp1s0", None)
    assert files.network_of("") == ("", None)


def test_our_file_is_read_before_the_shipped_one() -> None:
    """networkd takes the first that matches, by name."""
    shipped = next((HERE / "rootfs").glob("*.network")).name
    assert Path(files.NETWORK).name < shipped


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\nName=b", "longer-than-fifteen"])
def test_interface_that_is_no_name_never_gets_into_a_file(name: str) -> None:
    with pytest.raises(Wrong):
        files.network_file(name, None)


@pytest.mark.parametrize("server", ["", "time site", "x\nNTP=y", "-x", "a;b"])
def test_server_that_is_no_name_is_refused(server: str) -> None:
    with pytest.raises(Wrong):
        checks.time_server(server)


@pytest.mark.parametrize(
    ("first", "again", "says"),
    [("short", "short", "short"), ("long enough", "another one", "not_same"),
     ("long enough", "", "not_same"), ("with\ncontrol", "with\ncontrol", "control")],
)  # fmt: skip
def test_password_that_cannot_be_meant_is_refused(first: str, again: str, says: str) -> None:
    with pytest.raises(Wrong) as wrong:
        checks.password(first, again)
    assert wrong.value.key == f"assist.wrong.{says}"


def test_time_is_taken_to_the_minute() -> None:
    assert checks.moment(" 2027-01-31 14:05 ") == "2027-01-31 14:05:00"
    for text in ("31.1.2027", "2027-02-30 10:00", ""):
        with pytest.raises(Wrong):
            checks.moment(text)


# -- the configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("server", "host", "0.0.0.0"),
        ("board", "device", BOARD),
        ("tls", "names", ["box.site", "10.0.0.4"]),
        ("server", "port", "x"),
    ],
)
def test_one_setting_is_changed_and_everything_else_stays(
    section: str, key: str, value: str | list[str]
) -> None:
    changed = files.edited(SHIPPED, section, key, value)
    expected = tomllib.loads(SHIPPED)
    expected.setdefault(section, {})[key] = value
    assert tomllib.loads(changed) == expected
    comments = [row for row in SHIPPED.splitlines() if row.startswith("#")]
    assert [row for row in changed.splitlines() if row.startswith("#")] == comments
    assert files.edited(changed, section, key, value) == changed


@pytest.mark.parametrize(
    "text",
    [
        "server = { port = 1 }\n",
        "server.host = '::1'\n",
        "[server]\nhost = '''\nmany\nlines'''\n",
        "[server]\nallowed_hosts = [\n 'a',\n]\n'host' = 'x'\n",
        "[server\n",
    ],
)
def test_configuration_of_a_persons_own_shape_is_left_to_them(text: str) -> None:
    with pytest.raises(Wrong, match=r"config_shape|config_toml"):
        files.edited(text, "server", "host", "0.0.0.0")


@given(st.text(st.characters(blacklist_categories=("Cs",)), max_size=40))
def test_value_of_any_text_is_one_value(text: str) -> None:
    try:
        changed = files.edited(SHIPPED, "server", "host", text)
    except Wrong:
        return
    assert tomllib.loads(changed)["server"]["host"] == text
    assert tomllib.loads(changed)["board"] == {"device": ""}


def test_what_the_assistant_writes_the_box_can_use(tmp_path: Path) -> None:
    text = files.edited(SHIPPED, "server", "host", "0.0.0.0")
    text = files.edited(text, "tls", "names", ["box.site", "192.168.7.20"])
    text = files.edited(text, "board", "device", BOARD)
    (tmp_path / "steelyard.toml").write_text(text)
    config = load(tmp_path / "steelyard.toml", {})
    assert config.tls.names == ("box.site", "192.168.7.20")
    assert str(config.board.device) == BOARD


# -- what is there, and what is asked --------------------------------------------------------------


def test_machine_is_seen_as_it_is(tmp_path: Path) -> None:
    facts = machine(tmp_path, Shelf(keys={"admin": "admin", "web": "infer"})).look()
    assert facts.interfaces == (Interface("enp1s0", True), Interface("enp2s0", False))
    assert facts.clock == "2027-01-31 14:05"
    assert not facts.password
    assert not facts.open
    assert facts.has_key("infer")
    assert [key.name for key in facts.keys or ()] == ["admin", "web"]  # the revoked one is not good
    assert not facts.board_seen


def test_board_is_seen_by_what_udev_keeps_of_it(tmp_path: Path) -> None:
    kept = tmp_path / "run/udev/data/c166:0"
    kept.parent.mkdir(parents=True)
    kept.write_text("S:serial/by-id/other\nS:appliance-mcu-2\n")
    assert not machine(tmp_path).look().board_seen
    kept.write_text("S:serial/by-id/other\nS:appliance-mcu\nW:5\n")
    facts = machine(tmp_path).look()
    assert facts.board_seen
    assert first_answers(facts)["board.how"] == BOARD


def test_machine_that_can_tell_nothing_is_still_set_up(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    facts = machine(tmp_path, Shelf(blind=True), interfaces=0).look()
    assert facts.keys is None
    assert facts.models == ()
    given = first_answers(facts)
    assert first_wrong(given, facts) is None
    for step in STEPS:
        assert all(field.name in given for field in step.fields(given, facts))


def test_first_answers_change_nothing_and_every_option_is_worded(tmp_path: Path) -> None:
    facts = machine(tmp_path).look()
    given = answers(facts, net_how="static", time_how="hand", serve_who="0.0.0.0")
    for lang in LANGS:
        words = Words(lang)
        for step in STEPS:
            for field in step.fields(given, facts):
                assert words.has(f"assist.field.{field.name}")
                assert all(words.has(option.word) for option in field.options)
                values = [option.value for option in field.options]
                assert not values or given[field.name] in values
                assert values or words.has(f"assist.takes.{field.name}")


@pytest.mark.parametrize(
    ("given", "at", "field"),
    [
        ({"net_how": "static"}, 1, "net.address"),
        ({"net_how": "dhcp", "net_interface": "eth9"}, 1, "net.interface"),
        ({"time_how": "server"}, 2, "time.server"),
        ({"time_how": "hand", "time_now": "now"}, 2, "time.now"),
        ({"login_first": "abc"}, 3, "login.first"),
        ({"serve_who": "0.0.0.0"}, 4, "serve.app"),
        ({"serve_who": "0.0.0.0", "serve_app": "--scope"}, 4, "serve.app"),
        ({"serve_who": "0.0.0.0", "serve_app": "w", "serve_names": "a;b"}, 4, "serve.names"),
        ({"admin_how": "make", "admin_name": "admin"}, 5, "admin.name"),
        ({"serve_who": "0.0.0.0", "serve_app": "x", "admin_how": "make", "admin_name": "x"}, 5,
         "admin.name"),
    ],
)  # fmt: skip
def test_wrong_answer_is_found_with_its_step(
    tmp_path: Path, given: dict[str, str], at: int, field: str
) -> None:
    facts = machine(tmp_path).look()
    found = first_wrong(answers(facts, **given), facts)
    assert found is not None
    assert (found[0], found[1].field) == (at, field)
    assert all(Words(lang).has(found[1].key) for lang in LANGS)


@pytest.mark.parametrize(
    ("shadow", "has"),
    [("root:$y$j9T$abc:1:::", True), ("root:*:1:::", False), ("root:!:1:::", False),
     ("root::1:::", False), ("", False), ("rooter:$y$x:1", False)],
)  # fmt: skip
def test_password_of_root_is_seen(shadow: str, has: bool) -> None:
    assert has_password(shadow + "\n") is has
