"""Log lines: one a record, in both forms, never in the way."""

import json
import logging
import os
import queue
import socket
import subprocess
import sys

import pytest

from appliance.config import LoggingConfig
from appliance.logformat import JsonFormatter, TextFormatter, Upward, for_child, hand_down
from appliance.observe.logs import Children, DroppingHandler, Ring, configure


def record(message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("a.b", logging.INFO, "f", 1, message, args, None)


def test_a_message_cannot_forge_a_line() -> None:
    line = TextFormatter().format(record("user said %s", "x\n2026 error fake"))
    assert "\n" not in line
    assert line.endswith(r"a.b: user said x\n2026 error fake")


@pytest.mark.parametrize(
    ("wild", "told"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b2J", r"\x9b2J"),
        ("a\rb\0", r"a\rb\x00"),
        ("\u202e", r"\u202e"),
    ],
)
def test_a_line_moves_no_cursor_and_turns_no_text(wild: str, told: str) -> None:
    assert TextFormatter().format(record("by %s, 世界\t!", wild)).endswith(f"by {told}, 世界\t!")
    failed = record("it failed")
    failed.exc_text = f"Traceback:\n  a line\nValueError: {wild}"
    assert TextFormatter().format(failed).endswith(f"Traceback:\n  a line\nValueError: {told}")
    ring = Ring()
    ring.emit(record("by %s", wild))
    assert ring.lines(level=logging.DEBUG)[0][-1].text == f"by {told}"


def test_json_lines_are_json() -> None:
    found = json.loads(JsonFormatter().format(record('"%s"', "\u2028")))
    assert found["message"] == '"\u2028"'
    assert (found["level"], found["logger"]) == ("info", "a.b")


def test_a_slow_writer_loses_lines_and_counts_them() -> None:
    handler = DroppingHandler(queue.Queue(1))
    for _ in range(3):
        handler.handle(record("x"))
    assert handler.dropped == 2


@pytest.mark.parametrize("as_json", [False, True])
def test_tracebacks_are_written(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stop = configure(LoggingConfig(level="warning", json=as_json))
    try:
        try:
            raise RuntimeError("broken")
        except RuntimeError:
            logging.getLogger("x").exception("it failed")
        logging.getLogger("x").info("not shown")
    finally:
        stop()
        root.handlers[:] = before
        root.setLevel(level)
    err = capsys.readouterr().err
    assert "RuntimeError: broken" in err
    assert "not shown" not in err


SAYS = """
import logging, sys
from appliance.logformat import to_stderr
to_stderr("info", int(sys.argv[1]))
logging.getLogger("some.engine").warning("it is %s", "warm")
"""


def test_lines_of_a_child_are_heard_and_stand_on_standard_error_too() -> None:
    heard: queue.Queue[logging.LogRecord] = queue.Queue()
    children = Children(heard.put)
    try:
        hand_down(json=False, listening=children.fileno())
        options, inherited = for_child()
        assert options == ["--log-fd", str(children.fileno())]
        command = [sys.executable, "-c", SAYS, options[1]]
        done = subprocess.run(command, pass_fds=inherited, capture_output=True, check=True)
        line = heard.get(timeout=60)
    finally:
        hand_down(json=False)
        children.close()
    assert b"some.engine: it is warm" in done.stderr
    assert (line.name, line.levelname, line.getMessage()) == (
        "some.engine", "WARNING", "it is warm"
    )  # fmt: skip


def test_a_child_waits_for_nobody_who_does_not_listen_and_nonsense_ends_nothing() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    upward = Upward(theirs.detach())
    for _ in range(5000):
        upward.handle(record("x"))
    ours.close()
    upward._socket.close()

    heard: queue.Queue[logging.LogRecord] = queue.Queue()
    children = Children(heard.put)
    with socket.socket(fileno=os.dup(children.fileno())) as mad:
        for data in (b"", b"no line", b"[1,2]"):
            mad.send(data)
    upward = Upward(os.dup(children.fileno()))
    upward.handle(record("still heard"))
    assert heard.get(timeout=60).getMessage() == "still heard"
    upward._socket.close()
    children.close()


def test_where_nobody_listens_a_child_is_told_of_no_listener() -> None:
    hand_down(json=False)
    assert for_child() == ([], [])
