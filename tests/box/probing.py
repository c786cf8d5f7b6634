"""Asks a daemon all the while, to see that it answers all the while."""

import http.client
import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.box.running import RunningBox

PROBE_S = 0.02


class Prober:
    """Asks one route again and again over a connection of its own, in a thread."""

    def __init__(self, box: RunningBox, path: str) -> None:
        self._address = urlsplit(box.url)
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)
        self.answers: list[tuple[int, float, str]] = []
        """Status, seconds it took, body."""
        self.late: list[float] = []
        """Seconds by which this thread came too late to its next question: the machine's doing."""
        self.problem = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def statuses(self) -> list[int]:
        """Each status once for every time that it was new."""
        found = [status for status, _, _ in self.answers]
        return [now for before, now in zip([0, *found], found, strict=False) if now != before]

    def _probe(self) -> None:
        connection = http.client.HTTPConnection(
            self._address.hostname or "", self._address.port, timeout=30
        )
        try:
            due = time.monotonic() + PROBE_S
            while not self._stop.wait(PROBE_S):
                asked_at = time.monotonic()
                self.late.append(asked_at - due)
                connection.request("GET", self._path)
                response = connection.getresponse()
                body = response.read().decode()
                self.answers.append((response.status, time.monotonic() - asked_at, body))
                due = time.monotonic() + PROBE_S
        except (OSError, http.client.HTTPException) as error:
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            connection.close()


def counters(text: str) -> dict[str, float]:
    """The series of an exposition that must never fall."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            name = series.split("{")[0]
            if name.endswith(("_total", "_count", "_sum", "_bucket")):
                found[series] = float(value)
    return found


def check_never_back(expositions: list[str]) -> None:
    highest: dict[str, float] = defaultdict(float)
    for text in expositions:
        for series, value in counters(text).items():
            assert value >= highest[series], f"{series} fell from {highest[series]} to {value}"
            highest[series] = value
