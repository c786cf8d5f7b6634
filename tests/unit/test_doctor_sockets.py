"""Who listens and who holds a lock, read from this machine's own kernel; and what is made of it."""

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.alone import only_daemon
from appliance.doctor import port
from appliance.doctor.box import look as look_at_box
from appliance.doctor.ground import Ground
from appliance.doctor.running import LOCK, Answer, Box
from appliance.doctor.sockets import Holder, holder_of, listeners, locked_by, on_port, ports_of
from tests.unit.doctor_parts import TellingBox, levels, machine, make_config, make_ground, only

LISTENS = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.socket(family)
listener.bind((sys.argv[1], 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[tuple[int, int]]:
    """A process of another kind that listens: its number, and its port."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTENS, host], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate()


def test_who_listens_is_named() -> None:
    with listening() as (pid, number):
        found = on_port(number, "127.0.0.1")
        assert [one.address for one in found] == ["127.0.0.1"]
        holder = holder_of(found[0].inode)
        assert holder is not None
        assert holder.pid == pid
        assert "python" in str(holder)
        assert [one.port for one in ports_of(pid)] == [number]


def test_a_listener_on_all_addresses_takes_the_port_of_each() -> None:
    with listening("0.0.0.0") as (_, number):
        assert on_port(number, "127.0.0.1")
        assert on_port(number, "0.0.0.0")


def test_one_on_another_address_does_not() -> None:
    with listening("127.0.0.2") as (_, number):
        assert on_port(number, "127.0.0.1") == []


def test_kernels_table_is_read_in_its_own_byte_order(tmp_path: Path) -> None:
    head = "  sl  local_address rem_address   st tx rx tr tm retrnsmt uid timeout inode\n"
    row = "   0: {}:20E5 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1 x\n"
    machine(
        tmp_path,
        {"net/tcp": head + row.format("0100007F"),
         "net/tcp6": head + row.format("B80D0120000000000000000001000000")},
    )  # fmt: skip
    found = listeners(tmp_path)
    assert [one.address for one in found] == ["127.0.0.1", "2001:db8::1"]
    assert {(one.port, one.inode) for one in found} == {(8421, 4711)}


def test_garbage_in_the_kernels_table_is_no_listener(tmp_path: Path) -> None:
    machine(tmp_path, {"net/tcp": "head\n\nx\n"})
    assert listeners(tmp_path) == []


# -- the lock of the state directory ---------------------------------------------------------------


def test_daemon_is_known_by_the_lock_it_holds(tmp_path: Path) -> None:
    lock = tmp_path / LOCK
    assert locked_by(lock) is None
    with only_daemon(tmp_path):
        holder = locked_by(lock)
        assert holder is not None
        assert holder.pid == os.getpid()
    assert locked_by(lock) is None


def test_looking_for_the_daemon_takes_no_lock(tmp_path: Path) -> None:
    lock = tmp_path / LOCK
    lock.touch()
    locked_by(lock)
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_lock_on_a_file_system_with_volumes_is_known_by_who_has_it_open(tmp_path: Path) -> None:
    """btrfs lists another device there than a file says."""
    lock = tmp_path / "state" / LOCK
    lock.parent.mkdir()
    lock.touch()
    inode = lock.stat().st_ino
    proc = machine(tmp_path / "proc", {"locks": f"1: FLOCK ADVISORY WRITE 7 ff:ff:{inode} 0 EOF\n"})
    assert locked_by(lock, proc) is None, "another file of that number"
    (proc / "7/fd").mkdir(parents=True)
    (proc / "7/fd/3").symlink_to(lock)
    found = locked_by(lock, proc)
    assert found is not None
    assert found.pid == 7
    (proc / "locks").unlink()
    found = locked_by(lock, proc)
    assert found is not None, "a kernel without such a list"
    assert found.pid == 7


def test_box_is_found_by_its_lock_and_its_port(tmp_path: Path) -> None:
    config = make_config(tmp_path, server={"state_dir": tmp_path, "port": 0})
    assert not Box.find(config).runs
    with only_daemon(tmp_path), socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        box = Box.find(config)
        assert box.runs
        assert box.url.startswith("http://127.0.0.1:")


# -- the port --------------------------------------------------------------------------------------


def test_port_that_another_has_fails_and_names_it(tmp_path: Path) -> None:
    with listening() as (pid, number):
        ground = make_ground(tmp_path, server={"port": number})
        found = only(port.look(ground), "port.listen")
    assert found.level == "fail"
    assert f"process {pid}" in found.found


def test_free_port_is_well(tmp_path: Path) -> None:
    assert levels(port.look(make_ground(tmp_path, server={"port": 0}))) == {"port.listen": "ok"}


def test_address_that_this_machine_does_not_have_fails(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, server={"host": "192.0.2.1", "port": 0})
    found = only(port.look(ground), "port.listen")
    assert (found.level, "no address of this machine" in found.found) == ("fail", True)


def test_box_for_this_machine_alone_is_well(tmp_path: Path) -> None:
    ground = make_ground(tmp_path, box=TellingBox({"/health": (200, {})}))
    assert levels(port.look(ground)) == {"port.listen": "ok", "port.lan": "ok"}


def test_address_where_nobody_answers_fails(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    found = levels(look_at_box(Ground(config, Box.find(config, url="http://127.0.0.1:9"))))
    assert found == {"box.running": "fail"}


class _Encrypted(Box):
    """As a box that was started with `--host` answers, on a port that speaks TLS."""

    def _once(self, path: str) -> Answer:
        told = b'{"error": {"code": "tls_required"}}'
        return Answer(200, b"{}") if self.url.startswith("https:") else Answer(400, told)


def test_a_box_that_was_told_to_listen_elsewhere_is_asked_by_tls(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    found = _Encrypted.find(config)
    assert found.url == ""
    found.holder, found.url = Holder(1, "box"), "http://127.0.0.1:1"
    assert found.get("/health").ok
    assert found.url == "https://127.0.0.1:1"
    named = _Encrypted.find(config, url="http://127.0.0.1:1", key="sk-x")
    assert not named.get("/health").ok  # who names an address is not led elsewhere
    assert named.url == "http://127.0.0.1:1"
