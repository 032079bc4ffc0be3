"""What clients do: ask well, ask for too much, ask badly, ask slowly, read slowly, leave."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from load.connection import Answer, Broken, Connection, request

from .tally import Tally

START, END = b'{"input":"a","user":"', b'"}'
BAD = (
    b"",
    b"{",
    b"[1]",
    b'{"input":1}',
    b'{"input":["a",1]}',
    b'{"input":"\xff"}',
    b'{"input":"a","input":"b"}',
    b'{"input":' + b"[" * 5000,
    b'{"input":[4294967296]}',
)
ROUTES = ("/v1/embeddings", "/v1/sparse-embeddings", "/v1/embeddings:both")
PAGES = ("/health", "/health/live", "/metrics", "/openapi.json", "/v1/models")
ITEM_BYTES = 1 << 20
"""The default of --max-item-bytes."""
BODY_BYTES = 32 << 20
"""The default of --max-body-bytes."""
ITEMS_MAX = 2048
BUSY = (408, 429, 504)
"""Answers that a good request may get on a busy machine: 408 where its body came too late."""
Habit = Callable[[], Awaitable[int | str]]
"""Asks something; gives the status, or a word, of what became of it."""


@dataclass
class Client:
    """One who does this and that, one after the other."""

    url: str
    key: str
    tally: Tally
    chance: random.Random
    texts: list[str]
    vectors: dict[str, str] | None
    """The first vector of each text, when the engine gives the same each time."""

    def __post_init__(self) -> None:
        """What it does, and how often of a hundred times or so."""
        self._connection = Connection(self.url)
        self._known = frozenset(self.texts)
        self._habits = (
            (50, self.ask),
            (10, self.leave),
            (10, self.page),
            (6, self.ask_badly),
            (5, self.ask_for_much),
            (4, self.send_slowly),
            (3, self.stall),
            (3, self.read_slowly),
            (2, self.read_nothing),
            (3, self.check_deeply),
            (3, self.ask_without_key),
            (1, self.fill_the_body),
        )

    async def run(self, until: float) -> None:
        """Everything until then; a request that has begun is brought to its end."""
        clock = asyncio.get_running_loop().time
        weights, habits = zip(*self._habits, strict=True)
        while clock() < until:
            (habit,) = self.chance.choices(habits, weights)
            await self.do(habit)
        self._connection.close()

    async def do(self, habit: Habit) -> None:
        """Asks once and counts what became of it."""
        self.tally.sent += 1
        began = self.tally.clock()
        try:
            self.tally.ended[f"{habit.__name__}: {await habit()}"] += 1
        except (Broken, OSError, KeyError, TypeError) as error:
            self._connection.close()
            self.tally.problem(f"{habit.__name__}: {type(error).__name__}: {error}", began)

    async def ask(self) -> int:
        """A good request of a few texts."""
        items = self.chance.choices(self.texts, k=self.chance.choice((1, 1, 1, 2, 8, 40)))
        return await self._ask_for(items)

    async def ask_for_much(self) -> int:
        """A good request of the most items, or of the largest item, or a little more of either."""
        if self.chance.random() < 0.5:
            count = self.chance.choice((ITEMS_MAX, ITEMS_MAX + 1))
            return await self._ask_for(["a"] * count, (400,) if count > ITEMS_MAX else ())
        size = self.chance.choice((ITEM_BYTES, ITEM_BYTES + 1))
        return await self._ask_for([self._text_of(size)], (400,) if size > ITEM_BYTES else ())

    async def ask_for_most_texts(self) -> int:
        """A good request of the most items, all of them different."""
        return await self._ask_for([str(self.chance.random()) for _ in range(ITEMS_MAX)])

    async def ask_for_largest_text(self) -> int:
        return await self._ask_for([self._text_of(ITEM_BYTES)])

    async def ask_for_largest_texts(self) -> int:
        """A good request of the largest body, full of the largest items."""
        return await self._ask_for([self._text_of(ITEM_BYTES)] * (BODY_BYTES // ITEM_BYTES - 1))

    async def fill_the_body(self) -> int:
        """The largest body, or a little more; the refusal of more may be lost with a reset."""
        return await self._fill(self.chance.choice((BODY_BYTES, BODY_BYTES + 1)))

    async def send_the_largest_body(self) -> int:
        """The largest body, of which one field takes everything."""
        return await self._fill(BODY_BYTES)

    async def _fill(self, size: int) -> int:
        """A good body of so many bytes, of which one field takes everything."""
        body = START + b"b" * (size - len(START) - len(END)) + END
        try:
            answer = await self._connection.ask(self._post(ROUTES[0], body))
        except Broken:
            if size <= BODY_BYTES:
                raise
            return 0
        return self._expect(answer, *((413, 429) if size > BODY_BYTES else (200, *BUSY)))

    async def ask_badly(self) -> int:
        body = self.chance.choice(BAD)
        answer = await self._connection.ask(self._post(self.chance.choice(ROUTES), body))
        return self._expect(answer, 400, 429)

    async def ask_without_key(self) -> int:
        fields = self.chance.choice(({}, authorized("wrong")))
        data = request(self.url, "POST", ROUTES[0], b'{"input":"a"}', fields)
        answer = await self._connection.ask(data)
        return self._expect(answer, 401)

    async def page(self) -> int:
        """What operators read."""
        answer = await self._connection.ask(self._get(self.chance.choice(PAGES)))
        return self._expect(answer, 200)

    async def check_deeply(self) -> int:
        """The canary on every worker; it may not pass in time on a busy machine."""
        answer = await self._connection.ask(self._get("/health/deep"))
        return self._expect(answer, 200, 503)

    async def leave(self) -> str:
        """Closes the connection at any moment."""
        body = json.dumps({"input": self.chance.choices(self.texts, k=8)}).encode()
        data = self._post(self.chance.choice(ROUTES), body)
        if self.chance.random() < 0.3:
            data = data[: self.chance.randrange(1, len(data))]
        await self._connection.send(data)
        return await self._leave_in(self.chance.choice((0, 0, 0.001, 0.01, 0.05)))

    async def send_slowly(self) -> int:
        """Slowly, and fast enough."""
        body = json.dumps({"input": self.chance.choice(self.texts)}).encode()
        wire = await self._connection.drip(self._post(ROUTES[0], body), 10, 0.05)
        return self._expect(await self._connection.answer(wire), 200, *BUSY)

    async def stall(self) -> int:
        """Half a head or half a body, and then nothing."""
        body = json.dumps({"input": self.chance.choice(self.texts)}).encode()
        data = self._post(ROUTES[0], body)
        wire = await self._connection.send(data[: self.chance.randrange(1, len(data))])
        return self._expect(await self._connection.answer(wire), 408, 429)

    async def read_slowly(self) -> int:
        """Takes a large answer in drops."""
        items = self.chance.choices(self.texts, k=200)
        body = json.dumps({"input": items, "encoding_format": "float"}).encode()
        wire = await self._connection.send(self._post(ROUTES[2], body))
        for _ in range(10):
            if not wire.open:
                break
            wire.transport.pause_reading()
            await asyncio.sleep(0.03)
            if wire.open:
                wire.transport.resume_reading()
            await asyncio.sleep(0.005)
        return self._expect(await self._connection.answer(wire), 200, *BUSY)

    async def read_nothing(self) -> str:
        """Asks in ten kilobytes for ten megabytes, takes nothing of those, and leaves."""
        body = json.dumps({"input": ["a"] * ITEMS_MAX}).encode()
        wire = await self._connection.send(self._post(ROUTES[0], body))
        wire.transport.pause_reading()
        return await self._leave_in(self.chance.uniform(0, 5))

    async def _leave_in(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        self._connection.close()
        return "left"

    async def _ask_for(self, items: list[str], refusals: tuple[int, ...] = ()) -> int:
        route = self.chance.choice(ROUTES)
        body = {"input": items[0] if len(items) == 1 else items, "encoding_format": "base64"}
        more = self.chance.choice(({}, {}, {"x-priority": "bulk"}))
        data = self._post(route, json.dumps(body).encode(), more)
        answer = await self._connection.ask(data)
        status = self._expect(answer, *(refusals or (200,)), *BUSY)
        if status == 200:
            self._check(items, answer.json())
        return status

    def _check(self, items: list[str], answer: dict[str, Any]) -> None:
        self.tally.items_answered += len(items)
        if [one["index"] for one in answer["data"]] != list(range(len(items))):
            raise Broken(f"{len(items)} items were sent, the answer has others")
        if self.vectors is None:
            return
        for text, one in zip(items, answer["data"], strict=True):
            if (vector := one.get("embedding")) and text in self._known:
                first = self.vectors.setdefault(text, vector)
                if vector != first:
                    raise Broken("a text got another vector than before")

    def _expect(self, answer: Answer, *statuses: int) -> int:
        held_up = asyncio.get_running_loop().time() < self.tally.unavailable_until
        allowed = {*statuses, 408, 503} if held_up else set(statuses)
        if answer.status not in allowed:
            raise Broken(f"{answer.status} {answer.told}, expected {sorted(allowed)}")
        if answer.status >= 400 and answer.status != 503:
            _ = answer.code
        return answer.status

    def _text_of(self, size: int) -> str:
        return ("soak " * (size // 5 + 1))[:size]

    def _get(self, path: str) -> bytes:
        return request(self.url, "GET", path, fields=authorized(self.key))

    def _post(self, path: str, body: bytes, more: Mapping[str, str] | None = None) -> bytes:
        return request(self.url, "POST", path, body, authorized(self.key) | dict(more or {}))


def authorized(key: str) -> dict[str, str]:
    """The field with an API key."""
    return {"authorization": f"Bearer {key}"}
