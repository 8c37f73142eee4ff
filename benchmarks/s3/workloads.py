"""W1, W2, W3 and W5 on S3, what they cost in requests, and the figures to reach there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks import w1_saves, w2_history, w3_wide, w5_writers
from benchmarks.contender import Contender
from benchmarks.figure import Figure
from benchmarks.holdfast_save import AwaitableHoldfastSaver, HoldfastSaver
from benchmarks.result import Row, Table
from benchmarks.s3.savers import BucketAppend, BucketSaves, RawPut, RawPutSaver, S3Options
from benchmarks.s3.server import Server
from benchmarks.scale import Scale
from benchmarks.workloads import (
    WIDE_KEY_COUNT,
    agent_steps,
    encoded,
    growing,
    replaced_states,
    replacing,
    wide_values,
    widening,
)

W1, W2, W3, W5 = (f"{name} S3" for name in ("W1", "W2", "W3", "W5"))
REQUESTS = "requests on S3"
COUNT = "requests"
APPEND, SAVE, NEW = "append of 500 B", "save of 2 KB, all of it new", "first save of a thread"
RESTORE = "restore of the latest of 1,000 steps"
STEPS = 1000


def measure(scale: Scale, scratch: Path, *, peers: bool) -> dict[str, Table]:  # noqa: ARG001  no peer speaks S3
    """Every table, on one server."""
    with Server(scratch / "server").running() as server:
        return {
            W1: _saves(server, scale, scratch / "W1"),
            W2: _history(server, scale, scratch / "W2"),
            W3: _wide(server, scale, scratch / "W3"),
            W5: _writers(server, scale, scratch / "W5"),
            REQUESTS: _requests(server, scratch / "requests"),
        }


def _saves(server: Server, scale: Scale, scratch: Path) -> Table:
    states = replaced_states(500)
    ours = BucketSaves(server, HoldfastSaver(S3Options(server=server)), replacing(states))
    return w1_saves.table_of(W1, [ours, RawPut(server, [encoded(state) for state in states])], scale, scratch)


def _history(server: Server, scale: Scale, scratch: Path) -> Table:
    steps = agent_steps(scale.step_count, w2_history.STEP_BYTES)
    options = S3Options(server=server)
    contenders: list[Contender] = [
        BucketAppend(options, steps),
        BucketSaves(server, HoldfastSaver(options), growing(steps)),
        RawPut(server, [encoded(step) for step in steps]),
    ]
    return w2_history.table_of(W2, contenders, steps, scratch)


def _wide(server: Server, scale: Scale, scratch: Path) -> Table:
    values = wide_values(2 * WIDE_KEY_COUNT)
    ours = BucketSaves(server, HoldfastSaver(S3Options(server=server)), widening(values))
    raw = RawPut(server, [encoded(value) for value in values])
    return w3_wide.table_of(W3, [ours, raw], values, scale, scratch)


def _writers(server: Server, scale: Scale, scratch: Path) -> Table:
    options = S3Options(server=server)
    savers = [AwaitableHoldfastSaver(options), HoldfastSaver(options), RawPutSaver(server)]
    return w5_writers.table_of(W5, savers, scale, scratch)


def _requests(server: Server, scratch: Path) -> Table:
    """Counted one by one, in a store that is open."""
    options, steps, states = S3Options(server=server), agent_steps(STEPS, w2_history.STEP_BYTES), replaced_states(30)
    rows = []

    def counted(name: str, times: int, work: Callable[[], object]) -> None:
        before = server.requests.total()
        work()
        cells: dict[str, float | None] = {COUNT: (server.requests.total() - before) / times}
        rows.append(Row(f"Holdfast: {name}", "holdfast", "P", cells))

    with options.open_blocking(scratch) as store:
        store.save("t", {"steps": []})
        counted(APPEND, STEPS, lambda: [store.append("t", "steps", step) for step in steps])
        counted(NEW, 20, lambda: [store.save(f"new {number}", states[0]) for number in range(20)])
        counted(SAVE, 30, lambda: [store.save("new 0", state) for state in states])
    with options.open_blocking(scratch) as store:
        store.guarantee()
        counted(RESTORE, 1, lambda: store.latest("t"))
    return Table(REQUESTS, "what one call costs, keyframes included", [COUNT], rows)


def gates(tables: dict[str, Table], scale: Scale) -> list[Figure]:  # noqa: ARG001  the same at every size
    """What has to be reached, of what was run."""
    if REQUESTS not in tables:
        return []
    save, raw = (tables[W1].cell(name, w1_saves.MEDIAN) for name in ("Holdfast save, S3", "raw PUT"))
    return [
        Figure("S3 requests of an append", tables[REQUESTS].cell(f"Holdfast: {APPEND}", COUNT), 2, 1.1),
        Figure("W1 S3 save / raw PUT", save / raw if save and raw else None, 3, 1.5),
    ]
