"""A small server with the shape of text-embeddings-inference: `POST /embed`, and its errors.

Behind it is no model: a text's vector is made from its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BATCH_MAX = 32
"""As many texts as the real one takes by default."""


def vector(text: str) -> list[float]:
    """32 numbers of a text's own."""
    return [byte / 255 - 0.5 for byte in hashlib.sha256(text.encode()).digest()]


def answer(path: str, body: Any) -> tuple[int, Any]:
    """Status and content."""
    if path != "/embed":
        return 404, {"error": f"no route {path}", "error_type": "Validation"}
    inputs = body.get("inputs") if isinstance(body, dict) else None
    texts = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return 422, {"error": "inputs is a text or a list of texts", "error_type": "Validation"}
    if len(texts) > BATCH_MAX:
        said = f"batch size {len(texts)} > maximum allowed batch size {BATCH_MAX}"
        return 413, {"error": said, "error_type": "Validation"}
    return 200, [vector(text) for text in texts]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and content leave in one packet.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, found = answer(self.path, body)
        content = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # As many clients may come at once.
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Say nothing: the load program leaves without its last answers."""


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Its address, on a free port."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
