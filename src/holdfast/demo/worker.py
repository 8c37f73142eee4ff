"""The process that the agent lives in, until it is killed: `python -m holdfast.demo.worker TASK NAMESPACE ...`.

It says on standard output what happens in its store, a line of JSON for each event, before it does anything else.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Thread
from typing import Any

import holdfast.sync as holdfast
from holdfast.demo import agent
from holdfast.stores.locations import VARIABLE as STORE

AT_ONCE = 4
"""How many tickets one process works on at the same time."""
UNFINISHED = ("working", "idle", "failed")
MANY_ATTEMPTS = 10_000
"""The chaos kills at any moment, so that a thread can be unlucky very often; nothing is poisoned by that."""


def say(kind: str, **words: Any) -> None:
    """Write a line to the parent process, in one write, so that no line is ever half there."""
    line = {"kind": kind, "at": time.monotonic(), **words}
    os.write(1, json.dumps(line, default=str).encode() + b"\n")


def say_event(event: holdfast.StoreEvent) -> None:
    """What happened in the store."""
    say(event.kind, **event.details, thread=event.thread_id)


class Desk:
    """The agent and the store it works on."""

    def __init__(self, store: holdfast.Store) -> None:
        self.store = store
        self.support = holdfast.durable(store=store)(agent.support.__wrapped__)


def run(desk: Desk, thread_id: str, ticket: str) -> None:
    """Work on a ticket, from its beginning or from where it stands."""
    outcome = desk.support.start(thread_id, ticket)
    say("ended", status=outcome.status.value, result=outcome.result, requests=[each.id for each in outcome.requests])


def unprotected(_desk: Desk, ticket: str) -> None:
    """Work on a ticket with the agent that has no Holdfast."""
    for name in ("plan", "search", "refund", "reply"):
        setattr(agent, name, _told(name, getattr(agent, name)))
    say("ended", status="complete", result=agent.unprotected(ticket), requests=[])


def _told(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def told(*args: Any) -> Any:
        say("step_started", name=name)
        started_at = time.monotonic()
        result = function(*args)
        say("step_done", name=name, seconds=time.monotonic() - started_at)
        return result

    return told


def answer(desk: Desk, request_id: str, choice: str) -> None:
    """Answer a request; the agent's process need not be there."""
    desk.store.answer(request_id, choice, by="ana")


def resume(desk: Desk, thread_id: str) -> None:
    """Go on with a ticket; what it is about is in the store."""
    say("ended", status="complete", result=desk.support.resume(thread_id), requests=[])


def recover(desk: Desk) -> None:
    """Go on with whatever can."""
    desk.store.recover(max_attempts=MANY_ATTEMPTS)


def again(desk: Desk) -> None:
    """Run every unfinished ticket again, as a program does that just starts its work once more."""
    page: holdfast.Page[holdfast.ThreadInfo] | None = desk.store.threads(status=UNFINISHED)
    while page is not None:
        for info in page:
            desk.support.run(info.thread_id, ticket_of(info.thread_id))
        page = page.next_page()


def chaos(desk: Desk, first: str, life: str) -> None:
    """Go on with what the process before left, in one of two ways; then one new ticket after the other."""
    say("ready")
    (recover if first == "recover" else again)(desk)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(_work, desk, f"T{life}-{place}") for place in range(1, AT_ONCE + 1)]:
            done.result()


def _work(desk: Desk, name: str) -> None:
    for number in count(1):
        thread_id = f"{name}-{number}"
        desk.support.run(thread_id, ticket_of(thread_id))


def ticket_of(thread_id: str) -> str:
    """The ticket of a thread in the chaos: about an order of its own, so that the ledger tells them apart."""
    return f"I was charged twice for order {thread_id}."


def finish(desk: Desk) -> None:
    """Go on with everything that can, then with what was never begun; and end."""
    recover(desk)
    again(desk)


TASKS: dict[str, Callable[..., None]] = {
    "run": run,
    "unprotected": unprotected,
    "answer": answer,
    "resume": resume,
    "chaos": chaos,
    "finish": finish,
}


def end_with_parent() -> None:
    """End with the parent process: nothing else would stop the chaos."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Do one task on one store."""
    Thread(target=end_with_parent, daemon=True).start()
    task, namespace, *arguments = sys.argv[1:]
    with holdfast.open(os.environ[STORE], namespace=namespace) as store:
        store.on_event(say_event)
        TASKS[task](Desk(store), *arguments)


if __name__ == "__main__":
    main()
