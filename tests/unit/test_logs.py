"""Log lines: one a record, in both forms, never in the way."""

import json
import logging
import queue

import pytest

from appliance.config import LoggingConfig
from appliance.logformat import JsonFormatter, TextFormatter
from appliance.observe.logs import DroppingHandler, configure


def record(message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("a.b", logging.INFO, "f", 1, message, args, None)


def test_a_message_cannot_forge_a_line() -> None:
    line = TextFormatter().format(record("user said %s", "x\n2026 error fake"))
    assert "\n" not in line
    assert line.endswith(r"a.b: user said x\n2026 error fake")


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
