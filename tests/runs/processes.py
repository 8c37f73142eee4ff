"""Real processes that hold threads, are stopped, killed and forked: run as `python -m runs.processes SCENE ARGUMENTS`.

A scene forks its actors before it opens a store, tells them what to do through pipes, and prints what came of it as
JSON. A store may be broken on purpose: what holds with a broken one is not proven by the scene.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any, TypeVar

from harness.broken_backends import NoFencing
from holdfast import sync
from holdfast.records.rows import Swap
from holdfast.records.words import Durability
from holdfast.stores import locations
from holdfast.testing.faults import FaultyBackend
from holdfast.testing.handles import blocking_store

T = TypeVar("T")


class Slow(FaultyBackend):
    """Takes its time between what a caller has read and what it writes: whoever races meets others."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        time.sleep(0.005)
        return super().swap(swaps, wait=wait)


def open_store(url: str, how: str) -> sync.Store:
    """A store of this process: sound, or with a slow backend, or with one that never refuses a write."""
    if how == "sound":
        return sync.open(url, durability="process")
    backend = locations.resolve(url, Durability.PROCESS, inline=True).backend
    return blocking_store(Slow(NoFencing(backend) if how == "broken" else backend))


class Actor:
    """A forked process that does what it is told, one line at a time, and answers each with one."""

    def __init__(self, act: Callable[["Actor"], None]) -> None:
        down, up = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                self._in, self._out = os.fdopen(down[0]), os.fdopen(up[1], "w")
                os.close(down[1])
                os.close(up[0])
                act(self)
                status = 0
            finally:
                os._exit(status)
        self._in, self._out = os.fdopen(up[0]), os.fdopen(down[1], "w")
        os.close(down[0])
        os.close(up[1])

    def tell(self, line: object) -> None:
        """Send a line to the other side."""
        self._out.write(f"{line}\n")
        self._out.flush()

    def hear(self) -> str:
        """The next line from the other side; empty when it is gone."""
        return self._in.readline().rstrip("\n")

    def end(self, by: signal.Signals = signal.SIGKILL) -> None:
        """Kill it."""
        os.kill(self.pid, by)
        os.waitpid(self.pid, 0)


def rivals(url: str, rounds: int, how: str) -> list[int]:
    """Two processes run the same thread at the same time, again and again; how many got it, each time."""

    def act(actor: Actor) -> None:
        with open_store(url, how) as store:
            while thread_id := actor.hear():
                try:
                    with store.run(thread_id, wait=0) as run:
                        actor.tell("got it")
                        actor.hear()
                        run.step(f"won by {os.getpid()}", list)
                    actor.tell("left")
                except (sync.LeaseHeld, sync.Conflict, sync.Fenced) as error:
                    actor.tell(type(error).__name__)

    actors = [Actor(act), Actor(act)]
    winners: list[int] = []
    for number in range(rounds):
        for actor in actors:
            actor.tell(f"t{number}")
        holders = [actor for actor in actors if actor.hear() == "got it"]
        winners.append(len(holders))
        for actor in holders:
            actor.tell("leave")
            actor.hear()
    for actor in actors:
        actor.end()
    return winners


def zombies(url: str, count: int, how: str) -> dict[str, Any]:
    """Processes that are stopped for longer than their lease, and write when they wake up: what became of that."""

    def act(actor: Actor) -> None:
        thread_id = actor.hear()
        with open_store(url, how) as store:
            try:
                with store.run(thread_id, lease=0.5) as run:
                    run.step("before", list)
                    actor.tell("held")
                    actor.hear()
                    _report(actor, lambda: run.step("late", list))
            except sync.Fenced:
                actor.tell("Fenced")
            else:
                actor.tell("left")

    actors = [Actor(act) for _ in range(count)]
    for number, actor in enumerate(actors):
        actor.tell(f"t{number}")
    assert all(actor.hear() == "held" for actor in actors)
    signal_all(actors, signal.SIGSTOP)
    outcomes: list[list[str]] = []
    with outside_of_writes(actors, lambda: open_store(url, "sound").__enter__()) as store:
        for number in range(count):
            outside_of_writes(actors, lambda number=number: _take_over(store, f"t{number}"))  # type: ignore[misc]
        for actor in actors:
            os.kill(actor.pid, signal.SIGCONT)
            actor.tell("go on")
            outcomes.append([actor.hear(), actor.hear()])
            actor.end()
        steps = [[step.action for step in (_latest(store, f"t{number}")).steps] for number in range(count)]
    return {"outcomes": outcomes, "steps": steps}


def signal_all(actors: Sequence[Actor], what: signal.Signals) -> None:
    for actor in actors:
        os.kill(actor.pid, what)


def outside_of_writes(actors: Sequence[Actor], act: Callable[[], T]) -> T:
    """Act while these processes are stopped. One that was stopped in the midst of a write keeps its lock on the file:
    then all continue for a moment, and are stopped again."""
    while True:
        try:
            return act()
        except sync.StoreUnavailable:
            signal_all(actors, signal.SIGCONT)
            time.sleep(0.05)
            signal_all(actors, signal.SIGSTOP)


def _take_over(store: sync.Store, thread_id: str) -> None:
    with store.run(thread_id, wait=300) as run:
        run.step("taken over", list)


def _report(actor: Actor, write: Callable[[], object]) -> None:
    try:
        write()
    except sync.Fenced:
        actor.tell("Fenced")
    else:
        actor.tell("written")


def _latest(store: sync.Store, thread_id: str) -> sync.Checkpoint:
    latest = store.latest(thread_id)
    assert latest is not None
    return latest


def _holder(url: str) -> Actor:
    """A process that holds a thread for a long lease."""

    def act(actor: Actor) -> None:
        with sync.open(url, durability="process") as store, store.run("t", lease=600) as run:
            run.step("before", list)
            actor.tell("held")
            actor.hear()

    actor = Actor(act)
    assert actor.hear() == "held"
    return actor


def owners(url: str) -> dict[str, Any]:
    """A live owner, a stopped one, a dead one: who can take its thread."""
    holder = _holder(url)
    outcome: dict[str, Any] = {"pid": holder.pid}
    with sync.open(url, durability="process") as store:
        outcome["live"] = _attempt(store)
        os.kill(holder.pid, signal.SIGSTOP)
        outcome["stopped"] = _attempt(store)
        holder.end()
        outcome["dead"] = _attempt(store)
    return outcome


def _attempt(store: sync.Store) -> list[Any]:
    try:
        with store.run("t", wait=0) as run:
            return ["got it", [step.action for step in run.steps]]
    except sync.LeaseHeld as held:
        return ["LeaseHeld", held.owner, held.remaining]


def recoveries(url: str, threads: int, processes: int) -> list[list[str]]:
    """Many processes recover the threads of a dead one at the same time; which each was given."""

    def die(actor: Actor) -> None:
        store = sync.open(url, durability="process")
        for number in range(threads):
            run = store.run(f"t{number}", lease=600).__enter__()
            run.step("before", list)
        actor.tell("held")
        actor.hear()

    def act(actor: Actor) -> None:
        given: list[str] = []

        def handler(run: sync.Run) -> None:
            given.append(run.thread_id)
            run.complete(os.getpid())

        with sync.open(url, durability="process") as store:
            store.stats()
            actor.tell("ready")
            actor.hear()
            store.recover(handler)
        actor.tell(json.dumps(given))

    dead, actors = Actor(die), [Actor(act) for _ in range(processes)]
    for actor in (dead, *actors):
        actor.hear()
    dead.end()
    for actor in actors:
        actor.tell("go")
    return [json.loads(actor.hear()) for actor in actors]


def forks(url: str) -> dict[str, Any]:
    """A child that is forked within a run: it can use neither the run nor give its lease back."""
    parent, (read, write) = os.getpid(), os.pipe()
    outcome: dict[str, Any] = {}
    store = sync.open(url, durability="process")
    try:
        with store.run("t") as run:
            run.step("before", list)
            child = os.fork()
            if not child:
                os.write(write, _use_in_child(store, run).encode())
                raise SystemExit  # so that it leaves the block
            os.waitpid(child, 0)
            outcome["child"] = os.read(read, 1000).decode()
            outcome["owner"] = store.thread("t").owner is not None
            run.step("after", list)
    finally:
        if os.getpid() != parent:
            os._exit(0)
    outcome["steps"] = [step.action for step in _latest(store, "t").steps]
    outcome["its own"] = [step.action for step in _latest(store, "u").steps]
    return outcome


def forks_while_writing(url: str) -> dict[str, Any]:
    """A child that is forked within a step, while another thread of the run is making a write."""
    parent, (read, write) = os.getpid(), os.pipe()
    store = sync.open(url, durability="process")
    with store.run("t") as run:
        lock, held, done = run._run._ledger.claim.lock, Event(), Event()

        def write_for_long() -> None:
            with lock:
                held.set()
                done.wait()

        def tool() -> str:
            Thread(target=write_for_long, daemon=True).start()
            held.wait()
            if not os.fork():
                signal.alarm(20)  # rather than wait for ever
                raise ValueError("the step fails in the child")
            os.wait()
            done.set()
            return os.read(read, 1000).decode()

        try:
            return {"child": run.step("tool", tool)}
        except BaseException as error:
            if os.getpid() != parent:
                os.write(write, repr(error).encode())
                os._exit(0)
            raise


def _use_in_child(store: sync.Store, run: sync.Run) -> str:
    with store.run("u") as another:
        another.step("in the child", list)
    try:
        run.step("in the child", list)
    except sync.Fenced as error:
        return str(error)
    return "the child wrote"


SCENES: dict[str, Callable[..., Any]] = {
    "rivals": rivals,
    "zombies": zombies,
    "owners": owners,
    "recoveries": recoveries,
    "forks": forks,
    "forks_while_writing": forks_while_writing,
}


def main() -> None:
    """Play a scene."""
    name, *arguments = sys.argv[1:]
    print(json.dumps(SCENES[name](*(int(each) if each.isdigit() else each for each in arguments))))  # noqa: T201


if __name__ == "__main__":
    main()
