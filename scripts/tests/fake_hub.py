"""A model hub on loopback: its answers are those that huggingface_hub reads.

Small files are served at once; `large` ones lie on a second server, to which the first redirects
with their digest and size, as hubs do. What goes wrong is chosen by the attributes of `FakeHub`.
"""

from __future__ import annotations

import hashlib
import json
import re
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "someone/tiny-m3"
LARGE_BYTES = 20_000
HEADER_RANGE = "bytes=0-100000"
"""How huggingface_hub asks for the header of a safetensors file."""


@dataclass
class FakeHub:
    """One model with its commits; `revisions` says what each branch and tag is."""

    commits: dict[str, dict[str, bytes]]
    revisions: dict[str, str]
    url: str = ""
    gated: bool = False
    """Whether files need the token `good`."""
    cuts: int = 0
    """So many answers with a large file end in the middle."""
    ranges: bool = True
    wrong_bytes: bool = False
    status: int = 0
    """Of every answer, if any."""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and Range of each."""
    leaked: bool = False
    """Whether the token came to where large files lie."""

    def sent(self, end: str) -> list[str | None]:
        """The ranges in which large files were asked for, but for their headers."""
        found = [
            r
            for m, path, r in self.requests
            if m == "GET" and path.endswith(end) and "/resolve/" not in path
        ]
        return [asked for asked in found if asked != HEADER_RANGE]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def commit_of(files: dict[str, bytes]) -> str:
    whole = json.dumps({name: digest(data) for name, data in sorted(files.items())})
    return hashlib.sha1(whole.encode()).hexdigest()


def files_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@contextmanager
def served(files: dict[str, bytes]) -> Iterator[FakeHub]:
    """The hub with these files as its branch `main`."""
    commit = commit_of(files)
    hub = FakeHub({commit: files}, {"main": commit})
    with (
        _server(lambda request: _answer_large(hub, request)) as storage,
        _server(lambda request: _answer(hub, request, storage)) as hub.url,
    ):
        yield hub


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left, or was left, is no fault."""


@contextmanager
def _server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server: socketserver.TCPServer = _Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _send(
    request: BaseHTTPRequestHandler,
    body: bytes,
    status: int = 200,
    headers: dict[str, str] | None = None,
    *,
    cut: bool = False,
) -> None:
    """With `cut` the connection ends in the middle of the body."""
    request.send_response(status)
    for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        request.send_header(key, value)
    request.end_headers()
    if request.command == "GET":
        request.wfile.write(body[: len(body) // 2] if cut else body)
        request.close_connection = cut


def _answer(hub: FakeHub, request: BaseHTTPRequestHandler, storage: str) -> None:
    path = unquote(urlsplit(request.path).path)
    hub.requests.append((request.command, path, request.headers.get("Range")))
    api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path)
    file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
    found = api or file
    if hub.status:
        _send(request, b"{}", hub.status)
        return
    if not found or found[1] != NAME:
        _send(request, b"{}", 401, {"X-Error-Code": "RepoNotFound"})
        return
    revision = (api[3] if api else file[2]) or "main"
    commit = hub.revisions.get(revision, revision)
    if commit not in hub.commits:
        _send(request, b"{}", 404, {"X-Error-Code": "RevisionNotFound"})
    elif api and api[2] == "tree":
        _send(request, json.dumps([_listed(*f) for f in hub.commits[commit].items()]).encode())
    elif api:
        _send(request, json.dumps({"id": NAME, "sha": commit}).encode())
    elif hub.gated and request.headers.get("Authorization") != "Bearer good":
        _send(request, b"{}", 401, {"X-Error-Code": "GatedRepo"})
    elif file[3] not in hub.commits[commit]:
        _send(request, b"{}", 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
    else:
        data = hub.commits[commit][file[3]]
        about = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'}
        if len(data) < LARGE_BYTES:
            _send(request, data, 200, about)
        else:
            about["X-Linked-Etag"], about["X-Linked-Size"] = f'"{digest(data)}"', str(len(data))
            about["Location"] = f"{storage}/{digest(data)}/{file[3]}"
            _send(request, b"", 302, about)


def _listed(path: str, data: bytes) -> dict[str, object]:
    oid = hashlib.sha1(data).hexdigest()
    found: dict[str, object] = {"type": "file", "path": path, "size": len(data), "oid": oid}
    if len(data) >= LARGE_BYTES:
        found["lfs"] = {"oid": digest(data), "size": len(data), "pointerSize": 134}
    return found


def _answer_large(hub: FakeHub, request: BaseHTTPRequestHandler) -> None:
    """The bytes of a digest, from where the client asks."""
    asked = request.headers.get("Range")
    hub.requests.append((request.command, request.path, asked))
    hub.leaked |= "Authorization" in request.headers
    wanted = request.path.split("/")[1]
    data = next(d for files in hub.commits.values() for d in files.values() if digest(d) == wanted)
    if hub.wrong_bytes:
        data = data[:-1] + bytes([data[-1] ^ 1])
    cut = hub.cuts > 0 and asked != HEADER_RANGE and request.path.endswith((".safetensors", ".bin"))
    hub.cuts -= cut
    parts = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
    if not parts or not hub.ranges:
        _send(request, data, cut=cut)
        return
    start, end = int(parts[1]), min(int(parts[2] or len(data)), len(data) - 1)
    place = {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
    _send(request, data[start : end + 1], 206, place, cut=cut)
