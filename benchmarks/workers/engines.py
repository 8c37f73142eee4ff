"""What an engine keeps of a thread: Temporal's history and Restate's journal, on the servers that the tests use."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.result import Row, Table
from benchmarks.workers import engine_app
from benchmarks.workers.delays import _until
from benchmarks.workers.processes import ROOT, Child, started

NAME = "Workers: engines"
STORY, MANY = "8 steps of 200 KB, kill, approval, timer", "1,000 steps"
KINDS = {"temporal": "Temporal", "restate": "Restate"}
ITEMS, BYTES = "events or entries", "bytes"
PATIENCE = 120


def measure(scratch: Path) -> Table:
    rows = [row for kind in KINDS for row in _rows(kind, scratch / kind)]
    return Table(NAME, "what an engine keeps of one thread", [ITEMS, BYTES], rows)


def row_name(kind: str, thread: str) -> str:
    return f"{KINDS[kind]}, {thread}"


def _rows(kind: str, directory: Path) -> list[Row]:
    names = [row_name(kind, thread) for thread in (STORY, MANY)]
    try:
        histories = _histories(kind, directory)
    except (ImportError, FileNotFoundError) as error:
        return [Row(name, "", "", failure=str(error)) for name in names]
    return [
        Row(name, "", "", {ITEMS: len(items), BYTES: sum(map(_size, items))})
        for name, items in zip(names, histories, strict=True)
    ]


def _size(item: Any) -> int:
    return len(item) if isinstance(item, bytes) else len(json.dumps(item))


def _histories(kind: str, directory: Path) -> list[list[Any]]:
    if str(ROOT / "tests") not in sys.path:
        sys.path.append(str(ROOT / "tests"))
    from servers.engines import SERVERS

    directory.mkdir(parents=True)
    server = SERVERS[kind]()
    try:
        server.start()
        asyncio.run(_play(directory, server.url("app")))
        return [server.history("app", thread_id) for thread_id in ("story", "many")]
    finally:
        server.remove()


async def _play(directory: Path, engine: str) -> None:
    program = engine_app.Program(directory, engine)
    worker = started(engine_app.MODULE, directory, engine)
    try:
        async with program.store:
            handle = await program.story.submit("story")
            await _until((directory / "killed here").exists)
            worker.kill()
            worker = Child(engine_app.MODULE, directory, engine)
            worker.begin()
            asked = await handle.wait(PATIENCE)
            await program.store.answer(asked.requests[0].id, "approve")
            await handle.result(PATIENCE)
            await (await program.many.submit("many", 1000)).result(PATIENCE)
    finally:
        worker.kill()
