"""Both kinds of vectors from one pass, for frameworks that ask for one after the other."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import numpy as np

from duovec.client import Client
from duovec.question import InputType
from duovec.vectors import Dense, Paired, Sparse


class Embedder(Protocol):
    """What the adapters need: a `Client`, or a `Memo` around one."""

    def dense(self, texts: Sequence[str], *, input_type: InputType | None = None) -> Dense:
        """Dense vectors, shape (texts, dimensions)."""

    def sparse(self, texts: Sequence[str], *, input_type: InputType | None = None) -> list[Sparse]:
        """Lexical weights of each text."""

    def both(self, texts: Sequence[str], *, input_type: InputType | None = None) -> Paired:
        """Both kinds."""


class _One(NamedTuple):
    dense: Dense
    sparse: Sparse


class Memo:
    """Asks for both kinds at once and remembers them, so that each text runs once.

    Give the same memo to a framework's dense and sparse object. It remembers `texts` texts, those
    used last; with 384 dimensions a text takes about 3 KB. Texts are known by a digest and not
    kept. Threads that want the same text at the same time share one run. Safe to use by many
    threads.
    """

    def __init__(self, client: Client, texts: int = 8192) -> None:
        if texts < 1:
            raise ValueError(f"texts is {texts}; a memo remembers at least one")
        self._client = client
        self._texts = texts
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Future[_One]] = OrderedDict()

    def __len__(self) -> int:
        """The number of texts that it remembers."""
        return len(self._known)

    def dense(self, texts: Sequence[str], *, input_type: InputType | None = None) -> Dense:
        """Dense vectors, shape (texts, dimensions)."""
        return self.both(texts, input_type=input_type).dense

    def sparse(self, texts: Sequence[str], *, input_type: InputType | None = None) -> list[Sparse]:
        """Lexical weights of each text; they are shared, so their arrays cannot be written to."""
        return self.both(texts, input_type=input_type).sparse

    def both(self, texts: Sequence[str], *, input_type: InputType | None = None) -> Paired:
        """Both kinds, of texts that were not asked for before and of those that were."""
        self._client.check(texts)
        if not len(texts):
            return Paired(np.zeros((0, 0), np.float32), [])
        keys = [_key(text, input_type) for text in texts]
        by_key = dict(zip(keys, texts, strict=True))
        wanted, mine = self._claim(keys)
        if mine:
            self._run(by_key, mine, input_type)
        # Another thread's run may have failed for a reason that is not ours.
        again = [key for key, one in wanted.items() if one.exception() is not None]
        made = {key: one.result() for key, one in wanted.items() if key not in again}
        if again:
            paired = self._client.both([by_key[key] for key in again], input_type=input_type)
            made |= {key: _One(*one) for key, *one in zip(again, *paired, strict=True)}
        return Paired(
            np.stack([made[key].dense for key in keys]), [made[key].sparse for key in keys]
        )

    def _claim(
        self, keys: Sequence[bytes]
    ) -> tuple[dict[bytes, Future[_One]], dict[bytes, Future[_One]]]:
        """Where each text's vectors are or will be, and those that this thread must make."""
        wanted: dict[bytes, Future[_One]] = {}
        mine: dict[bytes, Future[_One]] = {}
        with self._lock:
            for key in keys:
                if key in wanted:
                    continue
                if key in self._known:
                    self._known.move_to_end(key)
                else:
                    self._known[key] = mine[key] = Future()
                wanted[key] = self._known[key]
            while len(self._known) > self._texts:
                self._known.popitem(last=False)
        return wanted, mine

    def _run(
        self, texts: dict[bytes, str], mine: dict[bytes, Future[_One]], input_type: InputType | None
    ) -> None:
        try:
            made = self._client.both([texts[key] for key in mine], input_type=input_type)
            for key, dense, sparse in zip(mine, made.dense, made.sparse, strict=True):
                sparse.indices.setflags(write=False)
                sparse.values.setflags(write=False)
                # A row of its own, so that it does not keep the others.
                mine[key].set_result(_One(dense.copy(), sparse))
        except BaseException as error:
            failed = {key: future for key, future in mine.items() if not future.done()}
            with self._lock:
                for key, future in failed.items():
                    if self._known.get(key) is future:
                        del self._known[key]
            for future in failed.values():
                future.set_exception(error)
            raise


def _key(text: str, input_type: InputType | None) -> bytes:
    """A digest; `surrogatepass` leaves it to the client to refuse half characters."""
    whole = f"{input_type}\n{text}".encode(errors="surrogatepass")
    return hashlib.blake2b(whole, digest_size=16).digest()
