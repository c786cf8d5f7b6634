"""How many connections may be open, and who makes room."""

import socket

from appliance.api.connections import SPARE, Connections, Place, watch_peers


class Room:
    """Connections by name; remembers which were dropped."""

    def __init__(self, most: int, per_host: int = 0) -> None:
        self.connections = Connections(most, per_host)
        self.dropped: list[str] = []

    def enter(self, name: str, host: str = "10.0.0.1") -> Place:
        place = self.connections.enter(host, lambda: self.dropped.append(name))
        assert place is not None
        return place


def test_a_newcomer_takes_the_place_of_who_has_waited_longest() -> None:
    room = Room(3)
    first, second, third = (room.enter(name) for name in ("first", "second", "third"))
    first.work()
    assert not room.enter("fourth").refused
    assert room.dropped == ["second"]
    first.wait()
    room.enter("fifth")
    room.enter("sixth")
    assert room.dropped == ["second", "third", "fourth"], "the first waits again since later"
    assert len(room.connections) == 3
    second.leave()
    third.leave()
    assert len(room.connections) == 3, "who was dropped leaves only once"


def test_an_address_with_many_idle_connections_pushes_out_its_own() -> None:
    room = Room(10)
    room.enter("neighbour", host="10.0.0.2")
    for number in range(30):
        room.enter(str(number))
    assert room.dropped == [str(number) for number in range(21)]


def test_where_all_work_a_newcomer_is_refused() -> None:
    room = Room(2)
    busy = [room.enter("a"), room.enter("b")]
    for place in busy:
        place.work()
    late = room.enter("late")
    assert late.refused
    assert room.dropped == []
    late.leave()
    busy[0].leave()
    assert not room.enter("next").refused


def test_only_so_many_are_told_that_they_are_refused() -> None:
    room = Room(1)
    room.enter("a").work()
    told = [room.enter(str(number)) for number in range(SPARE)]
    assert all(place.refused for place in told)
    assert room.connections.enter("10.0.0.1", lambda: None) is None
    told[0].leave()
    assert room.connections.enter("10.0.0.1", lambda: None) is not None


def test_one_address_can_be_bounded() -> None:
    room = Room(10, per_host=2)
    one, _ = room.enter("a"), room.enter("b")
    assert room.enter("c").refused
    assert not room.enter("d", host="10.0.0.2").refused
    assert room.dropped == [], "an address does not push its own out"
    one.leave()
    assert not room.enter("e").refused


def test_the_kernel_ends_connections_of_peers_that_are_gone() -> None:
    """And what the listener accepts inherits it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        watch_peers(listener, 2.5)
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2500
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
