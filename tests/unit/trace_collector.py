"""A collector of traces: takes what is sent to it, as OTLP over HTTP."""

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Collector:
    """Takes exports, and answers with `status`."""

    def __init__(self) -> None:
        self.status = 200
        self.exports: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        ours = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.headers["Content-Type"] == "application/json"
                self.send_response(ours.status)
                self.end_headers()
                ours.exports.put((self.path, body))

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def spans(self) -> list[dict[str, Any]]:
        """Those of the next export."""
        _, body = self.exports.get(timeout=30)
        return list(body["resourceSpans"][0]["scopeSpans"][0]["spans"])
