"""The same with absurd, a task system on PostgreSQL alone: its tasks of one step, and a process that runs them.

`python -m benchmarks.workers.absurd_app CONNINFO` says `ready`, begins with the first line of its input, ends when
there is nothing to claim, and prints at what time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from benchmarks.workers.app import CONCURRENCY

MODULE = "benchmarks.workers.absurd_app"
CONNECTIONS = 32


def create(conninfo: str) -> None:
    """Its schema, from the file that its command-line tool carries, and a queue."""
    import absurdctl
    import psycopg
    from absurd_sdk import Absurd

    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        Absurd(connection).create_queue("default")


async def spawn(conninfo: str, numbers: range, at_once: int) -> float:
    """Spawn a task for each number, and return the seconds. A client has one connection: several share the work."""
    from absurd_sdk import AsyncAbsurd

    clients = [AsyncAbsurd(conninfo) for _ in range(CONNECTIONS)]
    await asyncio.gather(*(client.list_queues() for client in clients))
    left = iter(numbers)

    async def spawn_some(client: Any) -> None:
        for number in left:
            await client.spawn("one_step", {"number": number}, queue="default", idempotency_key=f"t{number}")

    began = time.monotonic()
    await asyncio.gather(*(spawn_some(clients[index % CONNECTIONS]) for index in range(at_once)))
    seconds = time.monotonic() - began
    for client in clients:
        await client.close()
    return seconds


def _worker(conninfo: str) -> Any:
    from absurd_sdk import AsyncAbsurd

    class Worker(AsyncAbsurd):
        """Ends when it finds nothing."""

        async def claim_tasks(self, *args: Any, **keywords: Any) -> list[Any]:
            found = await super().claim_tasks(*args, **keywords)
            if not found:
                self.stop_worker()
            return found

    return Worker(conninfo)


async def main(conninfo: str) -> None:
    worker = _worker(conninfo)

    @worker.register_task("one_step")
    async def one_step(params: dict[str, int], context: Any) -> int:
        async def double() -> int:
            return 2 * params["number"]

        return await context.step("double", double)

    await worker.list_queues()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await worker.start_worker(concurrency=CONCURRENCY, poll_interval=0)
    print(time.monotonic(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
