"""The box announced on real sockets, and what else has to know its name."""

import ipaddress
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from appliance.api.guard import Hosts
from appliance.config import Config, ConfigError, load
from appliance.discovery import Announcing, host_label, links
from appliance.discovery.addresses import addresses6
from appliance.discovery.links import Link, Network, interface_names, networks
from appliance.discovery.service import KIND, service_of
from appliance.discovery.wire import Kind, Message, Question, decode, encode
from appliance.tls.names import wanted_names

BROWSE = Question(KIND, Kind.PTR)


def config_of(tmp_path: Path, host: str = "0.0.0.0") -> Config:
    env = {
        "STEELYARD_DISCOVERY_MDNS": "true",
        "STEELYARD_SERVER_HOST": host,
        "STEELYARD_SERVER_STATE_DIR": str(tmp_path),
    }
    return load(None, env)


class Loop:
    """A network that one listener of ours hears, in place of a multicast group."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.listener = udp()
        self.socket = udp()
        self.closed = False

    def tell(self, packet: bytes) -> None:
        self.socket.sendto(packet, self.listener.getsockname())

    def reply(self, packet: bytes, to: tuple[str, int]) -> None:
        self.socket.sendto(packet, to)

    def close(self) -> None:
        self.closed = True
        self.socket.close()


def udp() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    made.setblocking(False)
    return made


def next_of(sock: socket.socket) -> Message:
    assert select.select([sock], [], [], 30)[0], "nothing came"
    return decode(sock.recv(9000))


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop(Network("127.0.0.1", ipaddress.IPv4Network("127.0.0.0/8")))
    yield made
    made.listener.close()


def test_a_box_is_announced_answers_and_says_goodbye(tmp_path: Path, loop: Loop) -> None:
    announcing = Announcing(
        config_of(tmp_path),
        "1.0",
        find=lambda host: (loop.network,),
        link=lambda network: loop,  # type: ignore[arg-type,return-value]
    )
    announcing.start(8421, tls=True)
    try:
        said = [next_of(loop.listener) for _ in range(4)]
        assert [message.response for message in said] == [False] * 3 + [True]
        with udp() as asker:
            for junk in (b"", b"\xff" * 40, bytes(12)):
                asker.sendto(junk, loop.socket.getsockname())
            question = encode(Message(response=False, questions=(BROWSE,), id=9))
            asker.sendto(question, loop.socket.getsockname())
            answer = next_of(asker)
        assert answer.id == 9
        assert [(one.name, one.kind) for one in answer.answers] == [(KIND, Kind.PTR)]
    finally:
        announcing.stop()
    last = next_of(loop.listener)
    while any(record.ttl for record in last.answers):  # the second announcement
        last = next_of(loop.listener)
    assert last.answers
    assert loop.closed


def test_the_texts_say_how_to_reach_it(tmp_path: Path) -> None:
    service = service_of(config_of(tmp_path), port=1, tls=True, version="1.0")
    assert {"path=/v1", "scheme=https", "version=1.0"} <= set(service.texts)


def test_a_port_that_cannot_be_used_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network("127.0.0.1", ipaddress.IPv4Network("127.0.0.0/8"))

    def refuse(_: Network) -> Link:
        raise OSError(98, "Address already in use")

    announcing = Announcing(config_of(tmp_path), "1.0", find=lambda _: (network,), link=refuse)
    announcing.start(8421, tls=False)
    announcing.stop()
    assert "not announced on the network of 127.0.0.1" in caplog.text


def test_a_real_socket_of_the_group_hears_what_another_tells() -> None:
    """Over the loopback interface and a port of its own, so that nobody else hears it."""
    network = Network("127.0.0.1", ipaddress.IPv4Network("127.0.0.0/8"))
    with udp() as free:
        port = free.getsockname()[1]
    first, second = (Link(network, group="239.255.42.42", port=port) for _ in range(2))
    try:
        first.tell(b"hello")
        assert select.select([second.socket], [], [], 30)[0], "nothing came"
        data, sender = second.socket.recvfrom(100)
        assert (data, sender) == (b"hello", ("127.0.0.1", port))
    finally:
        first.close()
        second.close()


def test_a_real_socket_of_ipv6_joins_its_group_and_answers_or_says_that_there_is_none() -> None:
    """The loopback interface carries no multicast of IPv6, but takes part in groups."""
    network = Network("::1", ipaddress.IPv6Network("::1/128"), "lo", loopback_index())
    with udp() as free:
        port = free.getsockname()[1]
    if not any(one.address == "::1" for one in addresses6()):
        with pytest.raises(OSError, match=r".+"):
            Link(network, group="ff01::4242", port=port)
        return
    link = Link(network, group="ff01::4242", port=port)
    try:
        joined = Path("/proc/net/igmp6").read_text().split()
        assert "ff010000000000000000000000004242" in joined
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as asker:
            asker.bind(("::1", 0))
            asker.sendto(b"who is there", ("::1", port))
            assert select.select([link.socket], [], [], 30)[0], "nothing came"
            _, sender = link.socket.recvfrom(100)
            assert network.near(sender[0])
            link.reply(b"a box", sender)
            assert select.select([asker], [], [], 30)[0], "no answer came"
            assert asker.recv(100) == b"a box"
    finally:
        link.close()


def loopback_index() -> int:
    return int(Path("/sys/class/net/lo/ifindex").read_text())


TABLE = """\
00000000000000000000000000000001 01 80 10 80       lo
20010db8000000000000000000000007 02 40 00 01     eth0
20010db8000000000000000000000008 02 40 00 80     eth0
fe80000000000000000000fffe000001 02 40 20 80     eth0
fe80000000000000000000fffe000002 03 40 20 80     eth1
fd000000000000000000000000000009 04 40 00 40     eth2
"""


def test_addresses_of_ipv6_are_read_from_the_kernels_list(tmp_path: Path) -> None:
    table = tmp_path / "if_inet6"
    assert addresses6(table) == ()  # no IPv6 here
    table.write_text(TABLE)
    found = addresses6(table)
    assert [one.address for one in found if one.usable] == [
        "2001:db8::8", "fe80::ff:fe00:1", "fe80::ff:fe00:2",
    ]  # fmt: skip
    assert [one.address for one in found if one.temporary] == ["2001:db8::7"]
    assert [(one.interface, one.index, one.prefix) for one in found][3] == ("eth0", 2, 64)


def test_networks_are_those_where_the_box_can_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wildcard of IPv6 takes both kinds, and each interface tells all that it has."""
    table = tmp_path / "if_inet6"
    table.write_text(TABLE)
    four = Network("192.0.2.7", ipaddress.IPv4Network("192.0.2.0/24"), "eth0")
    monkeypatch.setattr(links, "_networks", lambda: [four])
    monkeypatch.setattr(links, "_carries", lambda probe, name: name != "lo")
    monkeypatch.setattr(links, "addresses6", lambda: addresses6(table))
    assert networks("0.0.0.0") == (four,)
    assert networks("192.0.2.7") == (four,)
    assert networks("192.0.2.8") == ()
    (alone,) = networks("fe80::ff:fe00:2")
    assert alone.told == ("fe80::ff:fe00:2",)
    found = networks("::")
    assert [one.told for one in found] == [
        ("192.0.2.7", "2001:db8::8"), ("192.0.2.7", "2001:db8::8"), ("fe80::ff:fe00:2",),
    ]  # fmt: skip
    assert [one.reach.version for one in found] == [4, 6, 6]


@pytest.mark.parametrize(
    ("host", "near"),
    [("fe80::1%eth0", True), ("2001:db8::9", True), ("2001:db9::9", False), ("192.0.2.9", False),
     ("", False)],
)  # fmt: skip
def test_strangers_from_afar_are_none_of_a_network(host: str, near: bool) -> None:
    network = Network("2001:db8::8", ipaddress.IPv6Network("2001:db8::/64"), "eth0", 2)
    assert network.near(host) is near


def test_it_is_off_by_default_and_refused_where_nobody_could_come(tmp_path: Path) -> None:
    assert not Config().discovery.mdns
    with pytest.raises(ConfigError, match=r"discovery\.mdns: nobody on the network"):
        config_of(tmp_path, host="127.0.0.1")
    quiet = Announcing(Config(), "1.0", find=lambda host: pytest.fail("it looked for networks"))
    quiet.start(8421, tls=False)
    quiet.stop()


def test_the_announced_name_is_in_the_certificate_and_taken_as_a_host(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    name = f"{host_label(config)}.local"
    assert name in wanted_names(config)
    assert Hosts(config).refuse(Headers({"host": f"{name}:8421"})) is None
    assert Hosts(config).refuse(Headers({"host": "steelyard-evil.local"})) is not None
    assert host_label(config) == host_label(config_of(tmp_path))


def test_interfaces_are_found_without_netlink(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[tuple[int, str]]:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "if_nameindex", refuse)
    assert "lo" in interface_names()
