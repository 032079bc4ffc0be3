"""Brings the server to the most memory that its settings allow.

What it keeps behind that is all that it keeps for a reason: whatever grows later is a leak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .clients import BODY_BYTES, Client
from .faults import Faults

INFLIGHT_BYTES = 256 << 20
"""The default of --max-inflight-bytes."""
BODIES = INFLIGHT_BYTES // BODY_BYTES
"""Large bodies that fill what may be in flight."""
HELD_S = 0.8
"""So long the workers stand still while the queue fills up: less than --worker-stuck-ms."""


async def reach(clients: Sequence[Client], faults: Faults) -> None:
    """One peak of each kind, one after the other."""
    few = clients[:BODIES]
    await asyncio.gather(*(client.do(client.send_the_largest_body) for client in few))
    await asyncio.gather(*(client.do(client.ask_for_largest_texts) for client in few))
    await asyncio.gather(*(client.do(client.ask_for_largest_text) for client in clients))
    await asyncio.gather(*(client.do(client.read_slowly) for client in clients))
    await asyncio.gather(
        faults.hold_workers(HELD_S),
        *(client.do(client.ask_for_most_texts) for client in clients),
    )
