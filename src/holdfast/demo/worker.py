"""The process of the agent, until it is killed: `python -m holdfast.demo.worker TASK NAMESPACE ...`.

It prints every event of its store as a line of JSON.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Thread
from typing import Any

import holdfast.sync as holdfast
from holdfast.demo import agent
from holdfast.demo.payments import say
from holdfast.stores.locations import VARIABLE as STORE

AT_ONCE = 4
"""How many tickets one process works on at the same time."""
UNFINISHED = ("working", "idle", "failed")
MANY_ATTEMPTS = 10_000
"""A random kill can hit the same thread many times; that does not make it a poisoned one."""


def every_thread(store: holdfast.Store, **filters: Any) -> Iterator[holdfast.ThreadInfo]:
    """Yield all threads, page after page."""
    page: holdfast.Page[holdfast.ThreadInfo] | None = store.threads(limit=500, **filters)
    while page is not None:
        yield from page
        page = page.next_page()


class Worker:
    """The agent, and the store it works on. Each public method is a task."""

    def __init__(self, store: holdfast.Store) -> None:
        self._store = store
        self._support = holdfast.durable(store=store)(agent.support.__wrapped__)

    def run(self, thread_id: str, ticket: str) -> None:
        """Work on a ticket, from its beginning or from where it was stopped."""
        done = self._support.start(thread_id, ticket)
        say("ended", status=done.status.value, result=done.result, requests=[each.id for each in done.requests])

    def unprotected(self, ticket: str) -> None:
        """Work on a ticket with the agent that has no Holdfast."""
        for name in ("plan", "search", "refund", "reply"):
            setattr(agent, name, _reported(name, getattr(agent, name)))
        agent.unprotected(ticket)

    def answer(self, request_id: str, choice: str) -> None:
        """Answer a request; the agent's process need not run."""
        self._store.answer(request_id, choice, by="ana")

    def resume(self, thread_id: str) -> None:
        """Resume a ticket; what it is about is in the store."""
        self._support.resume(thread_id)

    def chaos(self, way: str, life: str) -> None:
        """Resume what the process before left, in one of two ways; then work on new tickets without end."""
        say("ready")
        self._recover() if way == "recover" else self._run_again()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(self._work, f"T{life}-{place}") for place in range(1, AT_ONCE + 1)]:
                done.result()

    def finish(self) -> None:
        """Resume every resumable ticket, then run those that never began."""
        self._recover()
        self._run_again()

    def _work(self, name: str) -> None:
        for number in count(1):
            self._run_ticket(f"{name}-{number}")

    def _run_ticket(self, thread_id: str) -> None:
        # Each thread has its own order, so that the ledger can tell which is which.
        self._support.run(thread_id, f"I was charged twice for order {thread_id}.")

    def _recover(self) -> None:
        self._store.recover(max_attempts=MANY_ATTEMPTS)

    def _run_again(self) -> None:
        """Run every unfinished ticket again, as a program does that just starts its work once more."""
        for info in every_thread(self._store, status=UNFINISHED):
            self._run_ticket(info.thread_id)


def _reported(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def reported(*args: Any) -> Any:
        say("step_started", name=name)
        started_at = time.monotonic()
        result = function(*args)
        say("step_done", name=name, seconds=time.monotonic() - started_at)
        return result

    return reported


def end_with_parent() -> None:
    """End this process with its parent: nothing else would stop the chaos."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Do one task on one store."""
    Thread(target=end_with_parent, daemon=True).start()
    task, namespace, *arguments = sys.argv[1:]
    with holdfast.open(os.environ[STORE], namespace=namespace) as store:
        store.on_event(lambda event: say(event.kind, **event.details, thread=event.thread_id, at=time.monotonic()))
        getattr(Worker(store), task)(*arguments)


if __name__ == "__main__":
    main()
