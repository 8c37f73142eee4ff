"""A process that pays in steps that share a transaction with their records, until it is killed: run as a script.

It is given a store's URL, a conninfo, a thread id and a world. Each step adds a line to a table of its own.
"""

import asyncio
import os
import sys

import psycopg

import holdfast
from holdfast import sync

STEPS = 400
INSERT = "INSERT INTO payments (thread, step, by) VALUES (%s, %s, %s)"


def pay(connection: "psycopg.Connection[tuple[object, ...]]", thread_id: str, number: int) -> int:
    """The effect: one line, and then one fewer to go."""
    connection.execute(INSERT, (thread_id, number, os.getpid()))
    return number


async def pay_async(thread_id: str, number: int, *, connection: "psycopg.AsyncConnection[tuple[object, ...]]") -> int:
    """The same, awaited."""
    await connection.execute(INSERT, (thread_id, number, os.getpid()))
    return number


def blocking(url: str, conninfo: str, thread_id: str) -> None:
    """Step after step, each told when it is acknowledged."""
    with (
        psycopg.connect(conninfo) as connection,
        sync.open(url) as store,
        store.run(thread_id, lease=0.5, wait=300) as run,
    ):
        for number in range(STEPS):
            run.step(f"pay {number}", lambda number=number: pay(connection, thread_id, number), connection=connection)
            os.write(1, f"{number}\n".encode())


def apart(url: str, conninfo: str, thread_id: str) -> None:
    """The broken one: the effect is committed by itself, and then the step is recorded."""
    with (
        psycopg.connect(conninfo, autocommit=True) as connection,
        sync.open(url) as store,
        store.run(thread_id, lease=0.5) as run,
    ):
        for number in range(STEPS):
            run.step(f"pay {number}", lambda number=number: pay(connection, thread_id, number))
            os.write(1, f"{number}\n".encode())


async def awaitable(url: str, conninfo: str, thread_id: str) -> None:
    """The same on an event loop."""
    async with (
        await psycopg.AsyncConnection.connect(conninfo) as connection,
        holdfast.open(url) as store,
        store.run(thread_id, lease=0.5, wait=300) as run,
    ):
        for number in range(STEPS):
            await run.step(f"pay {number}", pay_async, thread_id, number, connection=connection)
            os.write(1, f"{number}\n".encode())


if __name__ == "__main__":
    worlds = {"blocking": blocking, "apart": apart, "awaitable": lambda *given: asyncio.run(awaitable(*given))}
    worlds[sys.argv[4]](*sys.argv[1:4])
