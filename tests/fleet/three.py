"""Three real servers with an engine that takes a fixed time, each on a loopback address of its own,
with TLS, so that they can be restarted, killed and frozen while something in front uses them."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import programs
from server import TINY, Server, certificate

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
RUN_MS = 30


class Fleet:
    """The servers, and what they and a proxy in front need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ["DNS:duovec.internal", *(f"IP:{host}" for host in HOSTS)]
        self.certificate, self.key = certificate(folder, *names)
        (folder / "site.pem").write_text(self.certificate.read_text() + self.key.read_text())
        [self.port] = programs.free_ports(1)
        self.servers: list[Server] = []
        for place in range(len(HOSTS)):
            self.servers.append(self._start(place))

    def trusted(self, *protocols: str) -> ssl.SSLContext:
        """What verifies the servers' and the proxies' certificate."""
        context = ssl.create_default_context(cafile=self.certificate)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def socket(self, place: int) -> Path:
        """A server's Unix socket."""
        return self.folder / f"{place}.sock"

    def _start(self, place: int, run_ms: int = RUN_MS, engine: str = "fake") -> Server:
        return Server(
            ["--package", TINY, "--engine", engine, "--fake-run-ms", str(run_ms)]
            + ["--workers", "1", "--max-batch-tokens", "8", "--host", HOSTS[place]]
            + ["--tls-cert", str(self.certificate), "--tls-key", str(self.key)]
            + ["--unix-socket", str(self.socket(place))],
            self.port,
        )

    def restart(self, place: int, run_ms: int = RUN_MS, engine: str = "fake") -> None:
        """End a server as its supervisor does, and start the next one."""
        self.servers[place].stop()
        self.servers[place] = self._start(place, run_ms, engine)

    def kill(self, place: int) -> None:
        """End a server without a word."""
        self.servers[place].process.kill()
        self.servers[place].process.wait()

    @contextlib.contextmanager
    def frozen(self, place: int) -> Iterator[None]:
        """A server whose process does nothing, and whose connections stay open."""
        process = self.servers[place].process.pid
        os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process, signal.SIGCONT)

    def mend(self) -> None:
        """Every server runs, at the usual speed."""
        for place, server in enumerate(self.servers):
            if server.process.poll() is not None:
                self.servers[place] = self._start(place)

    def stop(self) -> None:
        for server in self.servers:
            server.process.kill()
            server.process.wait()
