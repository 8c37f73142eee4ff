"""The durable functions of the benchmarks of workers, and a process with workers that serve them.

`python -m benchmarks.workers.app URL COUNT LEASE [once | elsewhere]` says `ready`, and begins with the first line of
its input. With `once` it ends when nothing is due, and prints at what time. With `elsewhere` it cannot see that another
worker is dead, as if on another host.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

MODULE = "benchmarks.workers.app"
CONCURRENCY = 10


async def one_step(number: int) -> int:
    """One durable step, as small as can be: what is left is the price of a thread."""
    import holdfast

    return await holdfast.current().step("double", _double, number)


async def _double(number: int) -> int:
    return 2 * number


async def first_line() -> float:
    """When it began: the clock is that of the system, the same for all processes."""
    return time.monotonic()


async def taken_over(path: str) -> None:
    """Note when it began; the first time, wait to be killed."""
    import holdfast

    if _is_first(Path(path)):
        await holdfast.current().step("wait", asyncio.sleep, 3600)


def _is_first(file: Path) -> bool:
    found = file.exists()
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{time.monotonic()}\n")
    return not found


def functions(store: Any) -> list[Any]:
    import holdfast

    found = (one_step, first_line, taken_over)
    return [holdfast.durable(store=store, name=each.__name__)(each) for each in found]


async def main(url: str, count: str, lease: str, mode: str = "") -> None:
    import holdfast
    from holdfast import processes

    if mode == "elsewhere":
        processes._PROC = "/not/this/host"
    stores = [holdfast.open(url) for _ in range(int(count))]
    served = functions(stores[0])
    for store in stores:
        await store.threads(limit=1)
    workers = [
        holdfast.Worker(store, functions=served, concurrency=CONCURRENCY, lease=float(lease)) for store in stores
    ]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.gather(*(worker.run(once=mode == "once") for worker in workers))
    print(time.monotonic(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
