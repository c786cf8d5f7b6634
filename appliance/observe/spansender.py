"""Sends spans to a collector, on a thread of its own: one that is slow, full or gone holds up no
request. What it does not take is dropped and counted; nothing is kept for later.
"""

import http.client
import logging
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from appliance.observe.spans import Span, Value, encode

log = logging.getLogger(__name__)

QUEUE = 2048
"""Spans; beyond it they are dropped."""
BATCH = 256
LINGER_S = 1.0
"""How long the first span of a batch waits for others."""
TIMEOUT_S = 10.0
CLOSE_S = 3.0
"""At the box's end, for what is still to be sent."""


class SpanSender:
    """Its thread begins with it; `put` may be called from any thread, and never waits."""

    def __init__(
        self, endpoint: str, resource: Mapping[str, Value], *, linger_s: float = LINGER_S
    ) -> None:
        """`endpoint`: an http or https URL; of https the machine's own certificates are proof."""
        self._endpoint = urlsplit(endpoint)
        self._resource = dict(resource)
        self._linger_s = linger_s
        self._spans: queue.Queue[Span | None] = queue.Queue(QUEUE)
        self._refused = 0
        """By a full queue: the threads that put."""
        self._sent = self._lost = 0
        """The sending thread's."""
        self._well = True
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    @property
    def sent(self) -> int:
        """Spans that the collector took."""
        return self._sent

    @property
    def dropped(self) -> int:
        """Spans that nobody will ever see."""
        return self._refused + self._lost

    def put(self, span: Span) -> None:
        """To be sent soon, or dropped."""
        try:
            self._spans.put_nowait(span)
        except queue.Full:
            self._refused += 1

    def stop(self) -> None:
        """What waits is sent, for `CLOSE_S` at most. Not to be called on the event loop."""
        try:
            self._spans.put(None, timeout=CLOSE_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def collect(self) -> Iterator[Metric]:
        """For the metrics."""
        yield CounterMetricFamily(
            "steelyard_spans_sent", "Spans that the collector of traces took.", self.sent
        )
        yield CounterMetricFamily(
            "steelyard_spans_dropped", "Spans that it did not take.", self.dropped
        )

    def _run(self) -> None:
        going_on = True
        while going_on:
            batch, going_on = self._batch()
            if batch:
                self._send(batch)

    def _batch(self) -> tuple[list[Span], bool]:
        """The next spans, and whether more may follow."""
        batch: list[Span] = []
        span = self._spans.get()
        until = time.monotonic() + self._linger_s
        while span is not None:
            batch.append(span)
            if len(batch) == BATCH:
                return batch, True
            try:
                span = self._spans.get(timeout=max(until - time.monotonic(), 0.0))
            except queue.Empty:
                return batch, True
        return batch, False

    def _send(self, batch: list[Span]) -> None:
        try:
            problem = self._post(encode(batch, self._resource))
        except OSError as error:
            problem = error.strerror or str(error) or type(error).__name__
        except (http.client.HTTPException, ValueError) as error:
            problem = f"it answered nonsense ({type(error).__name__})"
        if problem:
            self._lost += len(batch)
        else:
            self._sent += len(batch)
        if self._well and problem:
            log.warning(
                "traces.endpoint %s takes no spans: %s. Requests go on; spans are dropped",
                self._endpoint.geturl(), problem,
            )  # fmt: skip
        elif problem == "" and not self._well:
            log.info("traces.endpoint takes spans again; %d were dropped", self.dropped)
        self._well = problem == ""

    def _post(self, body: bytes) -> str:
        """Empty, or why the collector did not take it. A connection of its own each time: one that
        is kept breaks unseen. No proxy is asked: the collector is on the local network."""
        where = self._endpoint
        secure = where.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(where.hostname or "", where.port, timeout=TIMEOUT_S)
        try:
            headers = {"Content-Type": "application/json", "User-Agent": "steelyard"}
            connection.request("POST", where.path or "/", body, headers)
            status = connection.getresponse().status
        finally:
            connection.close()
        return "" if 200 <= status < 300 else f"it answered {status}"
