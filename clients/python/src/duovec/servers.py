"""Which server is asked next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

Clock = Callable[[], float]


class Servers:
    """Servers in turn; one that failed is asked last for a while. Safe to use by many threads."""

    def __init__(self, urls: str | Sequence[str], clock: Clock = time.monotonic) -> None:
        """Take URLs such as http://127.0.0.1:8080; a trailing slash or /v1 is dropped."""
        listed = [urls] if isinstance(urls, str) else list(urls)
        self.urls = list(dict.fromkeys(_base(url) for url in listed))
        if not self.urls:
            raise ValueError("servers is empty; name at least one URL")
        self.clock = clock
        self._lock = threading.Lock()
        self._turn = 0
        self._aside_until: dict[str, float] = {}

    def in_order(self) -> list[str]:
        """All servers: those that are well in turn, then those put aside, the soonest first."""
        with self._lock:
            now, start = self.clock(), self._turn
            self._turn = (self._turn + 1) % len(self.urls)
            turned = self.urls[start:] + self.urls[:start]
            return sorted(turned, key=lambda url: max(self._aside_until.get(url, now), now))

    def put_aside(self, url: str, seconds: float) -> None:
        """Prefer others to `url` for so long."""
        with self._lock:
            until = self.clock() + seconds
            self._aside_until[url] = max(until, self._aside_until.get(url, until))

    def welcome(self, url: str) -> None:
        """`url` answers again."""
        with self._lock:
            self._aside_until.pop(url, None)


def _base(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"{url!r} is no URL of a server; one is http://127.0.0.1:8080")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")
