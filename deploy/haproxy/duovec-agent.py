#!/usr/bin/env python3
"""Tells HAProxy how much work a duovec server should get: an agent for `agent-check`.

    duovec serve --unix-socket /run/duovec/duovec.sock …
    duovec-agent.py --socket /run/duovec/duovec.sock --port 8079

Runs beside the server, with nothing but Python. Each connection gets one line, made from the
server's /health: `up ready` with a weight in percent, which falls as the predicted wait grows;
`drain` while the server takes no requests; `down` when it does not answer.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import socketserver

ANSWER_TIMEOUT_S = 0.4
"""Below agent-inter of haproxy.cfg."""
HALF_WEIGHT_MS = 100.0
"""The predicted wait at which a server gets half of its share."""


class Local(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        """Nothing is connected yet."""
        super().__init__("localhost", timeout=ANSWER_TIMEOUT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def weight(predicted_wait_ms: float) -> int:
    """Percent of a server's share: 100 without a wait, never 0, which would be a drain."""
    return max(1, round(100 * HALF_WEIGHT_MS / (HALF_WEIGHT_MS + predicted_wait_ms)))


def describe(path: str) -> str:
    """What HAProxy is told of the server now."""
    server = Local(path)
    try:
        server.request("GET", "/health")
        answer = server.getresponse()
        if answer.status != http.client.OK:
            return "up drain"
        return f"up ready {weight(json.load(answer)['predicted_wait_ms'])}%"
    except (OSError, http.client.HTTPException):
        return "down #the server does not answer"
    finally:
        server.close()


def main() -> None:
    """Answer until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", required=True, help="what --unix-socket of the server says")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")
    parser.add_argument("--port", type=int, default=8079, help="port to listen on")
    arguments = parser.parse_args()

    class Answer(socketserver.StreamRequestHandler):
        """One connection of HAProxy."""

        def handle(self) -> None:
            self.wfile.write(f"{describe(arguments.socket)}\n".encode())

    class Agent(socketserver.ThreadingTCPServer):
        """Checks that overlap do not wait for each other."""

        allow_reuse_address = daemon_threads = True

    with Agent((arguments.host, arguments.port), Answer) as agent:
        agent.serve_forever()


if __name__ == "__main__":
    main()
