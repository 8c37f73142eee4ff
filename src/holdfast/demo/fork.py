"""Back to an earlier step, with another result: the fork runs on from there, and both ends are compared."""

from typing import Any

import holdfast.sync as holdfast
from holdfast.demo.agent import TICKET
from holdfast.demo.children import World
from holdfast.demo.narration import follow
from holdfast.demo.payments import read_ledger
from holdfast.demo.stage import Stage

OTHER = {"order": "1042", "charged": 1, "cents": 40_00}
"""What the search finds in the fork: the customer was charged once."""


def fork(stage: Stage, world: World, thread_id: str) -> dict[str, Any]:
    """Run it, fork it, run the fork, and show what differs."""
    stage.say("What would the agent have done, had its search found something else?")
    first = follow(stage, world, "It works on a ticket,", TICKET, "run", thread_id, TICKET)
    stage.line("result", "", first.told("ended")[0]["result"], "plain")
    forked, origin = _forked(world.store, thread_id)
    stage.act("A fork of it, from the search on:", "what if the order was charged only once?")
    stage.line("forked", "", f"{origin} -> {forked}")
    other = follow(stage, world, "The fork goes on,", "only what comes after the search is done", "run", forked, TICKET)
    stage.line("result", "", other.told("ended")[0]["result"], "plain")
    stage.act("What differs:", f"holdfast diff {thread_id} {forked}")
    changes = _changes(world.store, thread_id, forked)
    for change in changes:
        path = ".".join(map(str, change.path))
        stage.line(change.kind, "", f"{path}: {change.old!r} -> {change.new!r}", "plain")
    booked = read_ledger(world.ledger)
    return {
        "fork": forked,
        "changes": [list(change.path) for change in changes],
        "refunds": len(booked),
        "ok": [change.path for change in changes] == [("found", "charged"), ("messages", 0)]
        and [line["name"] for line in other.told("step_done")] == ["reply"]
        and len(booked) == 1,
    }


def _forked(url: str, thread_id: str) -> tuple[str, str]:
    """Fork from where the search is recorded, with another result in its place: the new thread, and its origin."""
    with holdfast.open(url) as store:
        found = [info for info in store.history(thread_id) if str(info.metadata.get("step", "")).startswith("search:")]
        return store.fork(found[0].id, to=f"{thread_id}-charged-once", results={"search": OTHER}), found[0].id


def _changes(url: str, one: str, other: str) -> list[holdfast.Change]:
    with holdfast.open(url) as store:
        ends = [store.latest(thread_id) for thread_id in (one, other)]
        ids = [end.id for end in ends if end is not None]
        return store.diff(ids[0], ids[1])
