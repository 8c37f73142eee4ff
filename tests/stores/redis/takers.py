"""What worker processes do, for tests that start several of them."""

from time import monotonic, sleep
from typing import Any

import redis
from msgspec.structs import replace

from holdfast.records.words import Durability
from holdfast.stores.agenda import NO_LIMITS, QueueLimits
from holdfast.stores.redis import RedisBackend
from holdfast.testing.conformance.agendas import HOUR, PREFIX, ROUTE
from holdfast.testing.conformance.samples import Line, rows
from patience import GIVE_UP_SECONDS


def take_all(url: str) -> list[tuple[bytes, int]]:
    """Take until nothing is due; returns each thread, and when it was taken."""
    backend = RedisBackend(url, Durability.PROCESS)
    backend.open()
    found: list[tuple[bytes, int]] = []
    while some := backend.take(PREFIX, "q", [ROUTE], 5).entries:
        found += [(due.thread, backend.now()) for due in some]
    backend.close()
    return found


def work_off(url: str, limits: tuple[int, int] | None, total: int) -> tuple[int, int]:
    """Run all threads; returns the most that were at work at once in all processes, and of one lane."""
    backend, most, most_of_lane = RedisBackend(url, Durability.PROCESS), 0, 0
    backend.open()
    ends_at = monotonic() + GIVE_UP_SECONDS
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        names: list[str] = [f"test-counts:{backend.keys.prefix}:{name}" for name in ("done", "at work")]
        while int(client.get(names[0]) or 0) < total:
            assert monotonic() < ends_at, "not all threads were run"
            kept = NO_LIMITS if limits is None else QueueLimits(*limits)
            for due in backend.take(PREFIX, "q", [ROUTE], 2, limits=kept).entries:
                line = _claimed(backend, due)
                lane = f"{names[1]}:{due.entry.lane.decode()}"
                most, most_of_lane = max(most, client.incr(names[1])), max(most_of_lane, client.incr(lane))
                sleep(0.01)
                client.decr(names[1])
                client.decr(lane)
                line.put(replace(line.head, seq=2, status="complete", owner=""), rows(2))
                client.incr(names[0])
    backend.close()
    return most, most_of_lane


def _claimed(backend: RedisBackend, due: Any) -> Line:
    line = Line(backend, due.thread)
    line.stored = due.head
    mine = {"status": "working", "owner": "me", "token": 1, "expires_at": backend.now() + HOUR}
    line.put(replace(line.head, **mine))
    return line
