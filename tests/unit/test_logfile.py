"""The log in a file: bounded, and never in the way."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.config import LoggingConfig
from appliance.observe.logfile import KEPT, BoundedFile
from appliance.observe.logs import configure
from tests.unit.ledger_parts import until


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("a.b", logging.INFO, "f", 1, message, (), None)


def handler_of(path: Path, most: int) -> BoundedFile:
    made = BoundedFile(path, most)
    made.setFormatter(logging.Formatter("%(message)s"))
    return made


def test_it_takes_no_more_room_than_it_was_given(tmp_path: Path) -> None:
    handler = handler_of(tmp_path / "log", 100)
    for number in range(400):
        handler.handle(record(f"line {number:04d}"))
    handler.close()
    names = {"log", *(f"log.{number}" for number in range(1, KEPT + 1))}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())
    ordered = [tmp_path / f"log.{number}" for number in range(KEPT, 0, -1)] + [tmp_path / "log"]
    lines = "".join(path.read_text() for path in ordered).split("\n")[:-1]
    assert lines == [f"line {number:04d}" for number in range(400 - len(lines), 400)]


def test_a_line_longer_than_the_file_may_be_is_whole(tmp_path: Path) -> None:
    handler = handler_of(tmp_path / "log", 10)
    handler.handle(record("x" * 50))
    handler.handle(record("y" * 50))
    handler.close()
    assert (tmp_path / "log.1").read_text() == "x" * 50 + "\n"
    assert (tmp_path / "log").read_text() == "y" * 50 + "\n"


def test_it_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    for number in range(3):
        handler = handler_of(tmp_path / "log", 100)
        handler.handle(record(f"run {number}"))
        handler.close()
    assert (tmp_path / "log").read_text() == "run 0\nrun 1\nrun 2\n"


def test_a_file_that_cannot_be_written_is_told_once_and_taken_up_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "later"
    handler = handler_of(folder / "log", 100)
    handler.handle(record("lost"))
    handler.handle(record("lost too"))
    said = capsys.readouterr().err
    assert said.count("cannot be written") == 1
    assert str(folder / "log") in said
    assert handler.lost == 2
    folder.mkdir()
    handler.handle(record("kept"))
    handler.close()
    assert (folder / "log").read_text() == "kept\n"


def test_the_daemons_lines_and_its_childrens_are_in_the_file(tmp_path: Path) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    path = tmp_path / "log"
    stop = configure(LoggingConfig(level="info", json=True, file=str(path)))
    try:
        logging.getLogger("x").info("of the daemon")
        from appliance.logformat import for_child

        options, inherited = for_child()
        program = (
            "import sys, logging; from appliance.logformat import to_stderr;"
            "to_stderr('info', int(sys.argv[2])); logging.getLogger('y').info('of a child')"
        )
        subprocess.run(
            [sys.executable, "-c", program, *options],
            pass_fds=inherited,
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )
        until(lambda: path.exists() and "of a child" in path.read_text())
    finally:
        stop()
        root.handlers[:] = before
        root.setLevel(level)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(line["logger"], line["message"]) for line in lines} == {
        ("x", "of the daemon"),
        ("y", "of a child"),
    }
