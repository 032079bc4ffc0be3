"""A model hub without a network: its answers are those that huggingface_hub reads.

Small files are answered at once; `large` ones lie at another address, to which the hub redirects
with their digest and size, as hubs do. What goes wrong is chosen by the attributes of `FakeHub`.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import httpx2  # The library that huggingface_hub speaks HTTP with.
from huggingface_hub.utils._http import hf_request_event_hook

NAME = "someone/tiny-m3"
URL, STORAGE = "https://hub", "https://storage"
LARGE_BYTES = 20_000
HEADER_RANGE = "bytes=0-100000"
"""How huggingface_hub asks for the header of a safetensors file."""


@dataclass
class FakeHub:
    """One model with its commits; `revisions` says what each branch and tag is."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    unreachable: bool = False
    gated: bool = False
    """Whether files need the token `good`."""
    cuts: int = 0
    """So many answers with a large file end in the middle."""
    ranges: bool = True
    wrong_bytes: bool = False
    names: str = "0123456789abcdef"
    """The digits that names of large files are written in."""
    status: int = 0
    """Of every answer, if any."""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path and Range of each."""
    leaked: bool = False
    """Whether the token came to where large files lie."""

    def publish(self, files: dict[str, bytes]) -> str:
        """Makes these files the branch `main`, whose commit it returns."""
        whole = json.dumps({name: digest(data) for name, data in sorted(files.items())})
        commit = hashlib.sha1(whole.encode()).hexdigest()
        self.commits[commit], self.revisions["main"] = files, commit
        return commit

    def client(self) -> httpx2.Client:
        """For huggingface_hub's `set_client_factory`: as its own, but for the transport."""
        return httpx2.Client(
            transport=httpx2.MockTransport(self._answer),
            event_hooks={"request": [hf_request_event_hook]},
            follow_redirects=True,
        )

    def sent(self, end: str) -> list[str | None]:
        """The ranges in which large files were asked for, but for their headers."""
        return [
            asked
            for method, path, asked in self.requests
            if method == "GET" and path.endswith(end) and "/resolve/" not in path
            if asked != HEADER_RANGE
        ]

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.unreachable:
            raise httpx2.ConnectError("there is no network")
        path, asked = unquote(request.url.path), request.headers.get("Range")
        self.requests.append((request.method, path, asked))
        if str(request.url).startswith(STORAGE):
            self.leaked |= "Authorization" in request.headers
            return self._large(path, asked)
        if self.status:
            return httpx2.Response(self.status)
        return self._small(path, request.headers.get("Authorization"))

    def _small(self, path: str, token: str | None) -> httpx2.Response:
        """What the hub itself says: about revisions, of files, and where large ones are."""
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        found = api or file
        if not found or found[1] != NAME:
            return refused(401, "RepoNotFound")
        revision = (api[3] if api else file[2]) or "main"
        commit = self.revisions.get(revision, revision)
        if commit not in self.commits:
            return refused(404, "RevisionNotFound")
        files = self.commits[commit]
        if api and api[2] == "tree":
            return httpx2.Response(200, json=[listed(*one) for one in files.items()])
        if api:
            return httpx2.Response(200, json={"id": NAME, "sha": commit})
        if self.gated and token != "Bearer good":
            return refused(401, "GatedRepo")
        about = {"X-Repo-Commit": commit}
        if file[3] not in files:
            return refused(404, "EntryNotFound", about)
        data = files[file[3]]
        about["ETag"] = f'"{hashlib.sha1(data).hexdigest()}"'
        if len(data) < LARGE_BYTES:
            return httpx2.Response(200, content=data, headers=about)
        name = digest(data).translate(str.maketrans("0123456789abcdef", self.names))
        about |= {"X-Linked-Etag": f'"{name}"', "X-Linked-Size": str(len(data))}
        return httpx2.Response(
            302, headers=about | {"Location": f"{STORAGE}/{digest(data)}/{file[3]}"}
        )

    def _large(self, path: str, asked: str | None) -> httpx2.Response:
        """The bytes of a digest, from where the client asks."""
        wanted = path.split("/")[1]
        every = (data for files in self.commits.values() for data in files.values())
        data = next(data for data in every if digest(data) == wanted)
        if self.wrong_bytes:
            data = data[:-1] + bytes([data[-1] ^ 1])
        status, about = 200, {}
        parts = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
        if parts and self.ranges:
            start, end = int(parts[1]), min(int(parts[2] or len(data)), len(data) - 1)
            status, about = 206, {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
            data = data[start : end + 1]
        about["Content-Length"] = str(len(data))
        if self.cuts and asked != HEADER_RANGE and path.endswith((".safetensors", ".bin")):
            self.cuts -= 1
            return httpx2.Response(status, headers=about, content=cut_in_the_middle(data))
        return httpx2.Response(status, headers=about, content=data)


def refused(status: int, code: str, about: dict[str, str] | None = None) -> httpx2.Response:
    return httpx2.Response(status, headers={"X-Error-Code": code, **(about or {})})


def cut_in_the_middle(data: bytes) -> Iterator[bytes]:
    yield data[: len(data) // 2]
    raise httpx2.RemoteProtocolError("the connection ended")


def listed(path: str, data: bytes) -> dict[str, object]:
    oid = hashlib.sha1(data).hexdigest()
    found: dict[str, object] = {"type": "file", "path": path, "size": len(data), "oid": oid}
    if len(data) >= LARGE_BYTES:
        found["lfs"] = {"oid": digest(data), "size": len(data), "pointerSize": 134}
    return found


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
