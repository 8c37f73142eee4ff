"""At most one accepted writer per thread, among real processes: alive, stopped, dead, forked."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import copy_context
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from harness.broken_backends import NoFencing
from holdfast import processes, sync
from holdfast.ports import BlockingPorts
from holdfast.stores.backend import Backend
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.handles import blocking_store
from kinds import EVERY_KIND, SHARED, new_place, url_of
from patience import GIVE_UP_SECONDS
from rounds import TIMES, rounds
from runs.processes import Slow
from runs.worlds import EVERY_WORLD

pytestmark = pytest.mark.processes

RIVALRIES = 50
ZOMBIES = 8 if TIMES == 1 else 20


def play(scene: str, *arguments: object) -> Any:
    """What came of a scene, played in processes of its own."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "runs.processes", scene, *map(str, arguments)]
    tests = Path(__file__).parents[1]
    ran = subprocess.run(command, cwd=tests, capture_output=True, text=True, check=False, timeout=GIVE_UP_SECONDS)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.faults
def test_of_two_processes_that_run_a_thread_exactly_one_proceeds(disk_kind: str, tmp_path: Path) -> None:
    count = rounds(20, RIVALRIES)
    assert play("rivals", url_of(disk_kind, tmp_path), count, "slow") == [1] * count


@pytest.mark.faults
def test_without_fencing_both_processes_proceed(disk_kind: str, tmp_path: Path) -> None:
    """The test above can fail."""
    assert 2 in play("rivals", url_of(disk_kind, tmp_path), RIVALRIES, "broken")


def rivals_in_memory(backend: Backend) -> int:
    """How many of two threads of one process got to run a thread."""
    store, together, got = blocking_store(Slow(backend), closes=False), Barrier(2), list[str]()

    def act() -> None:
        together.wait()
        try:
            with store.run("t", wait=0):
                got.append("it")
                together.wait()
        except (sync.LeaseHeld, sync.Conflict, sync.Fenced):
            together.wait()

    threads = [Thread(target=act) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(got)


@pytest.mark.faults
def test_of_two_threads_that_run_a_thread_exactly_one_proceeds() -> None:
    assert [rivals_in_memory(MemoryBackend()) for _ in range(RIVALRIES * TIMES)] == [1] * RIVALRIES * TIMES


@pytest.mark.faults
def test_without_fencing_both_threads_proceed() -> None:
    """The test above can fail."""
    assert 2 in [rivals_in_memory(NoFencing(MemoryBackend())) for _ in range(RIVALRIES)]


@pytest.mark.faults
def test_a_process_that_was_stopped_past_its_lease_writes_nothing_more(disk_kind: str, tmp_path: Path) -> None:
    for number in range(TIMES):
        place = tmp_path / str(number)
        place.mkdir()
        found = play("zombies", url_of(disk_kind, place), ZOMBIES, "sound")
        assert found["outcomes"] == [["Fenced", "Fenced"]] * ZOMBIES
        assert found["steps"] == [["before", "taken over"]] * ZOMBIES


@pytest.mark.faults
def test_without_fencing_the_stopped_process_writes(disk_kind: str, tmp_path: Path) -> None:
    """The test above can fail."""
    found = play("zombies", url_of(disk_kind, tmp_path), 3, "broken")
    assert any("written" in outcome for outcome in found["outcomes"])


@pytest.mark.parametrize("shared_kind", SHARED)
def test_a_thread_is_its_owners_until_that_is_dead(shared_kind: str, tmp_path: Path) -> None:
    """A process killed with SIGKILL is replaced at once, long before its lease of 600 s expires, on every store."""
    found = play("owners", url_of(shared_kind, tmp_path))
    for state in ("live", "stopped"):
        refused, owner, remaining = found[state]
        assert refused == "LeaseHeld"
        assert f":{found['pid']}:" in owner
        assert 500 < remaining <= 600
    assert found["dead"] == ["got it", ["before"]]


@pytest.mark.parametrize("shared_kind", SHARED)
def test_processes_that_recover_at_once_are_given_each_thread_once(shared_kind: str, tmp_path: Path) -> None:
    given = play("recoveries", url_of(shared_kind, tmp_path), 12, 3)
    assert sorted(name for names in given for name in names) == sorted(f"t{number}" for number in range(12))


def test_a_forked_child_does_not_wait_for_a_thread_that_only_its_parent_has(tmp_path: Path) -> None:
    assert "forked from" in play("forks_while_writing", url_of("sqlite", tmp_path))["child"]


def test_a_forked_child_cannot_use_its_parents_run(disk_kind: str, tmp_path: Path) -> None:
    found = play("forks", url_of(disk_kind, tmp_path))
    assert "forked from" in found["child"]
    assert found["owner"] is True
    assert found["steps"] == ["before", "after"]
    assert found["its own"] == ["in the child"]


class Named(BlockingPorts):
    """Ports of a process with a name of the test's choosing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def owner(self, tag: str = "") -> str:
        return f"{self._name}:00000000"


NOBODY = 2**22 + 1
"""No process has this number: it is above the largest there can be."""


def someone(**changes: Any) -> str:
    return str(replace(processes.identity(), **changes))


def can_take(kind: str, directory: Path, owner: str) -> bool:
    """True if a thread that was left by this owner can be taken at once."""
    place = new_place(kind, directory)
    backend = place.open()
    backend.open()
    left = blocking_store(backend, ports=Named(owner), closes=False).run("t")
    copy_context().run(left.__enter__)
    try:
        with blocking_store(backend, closes=False).run("t", wait=0):
            return True
    except holdfast.LeaseHeld:
        return False


@pytest.mark.parametrize("any_kind", [*EVERY_KIND, "objects"])
def test_a_dead_process_of_this_host_is_replaced_at_once(any_kind: str, tmp_path: Path) -> None:
    assert can_take(any_kind, tmp_path, someone(pid=NOBODY))
    assert can_take(any_kind, tmp_path, someone(start="1"))  # another process has its number now


@pytest.mark.parametrize(
    "owner",
    [
        someone,
        lambda: someone(pid=NOBODY, host="elsewhere"),
        lambda: someone(pid=NOBODY, boot="ffffffff"),
        lambda: someone(pid=NOBODY, space="1"),
        lambda: "somebody",
        lambda: "a:b:c:d:e",
    ],
    ids=["alive", "another host", "another boot", "another container", "no identity", "no number"],
)
@pytest.mark.parametrize("any_kind", [*EVERY_KIND, "objects"])
def test_with_any_doubt_an_owner_is_not_taken_for_dead(any_kind: str, tmp_path: Path, owner: Callable[[], str]) -> None:
    assert not can_take(any_kind, tmp_path, owner())


def test_where_nothing_is_certain_nobody_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = someone(pid=NOBODY) + ":00000000"
    assert processes.is_certainly_dead(dead)
    monkeypatch.setattr(processes, "_PROC", "/nowhere")
    assert not processes.is_certainly_dead(dead)


@pytest.mark.faults
def test_the_heartbeat_keeps_leases_through_a_call_that_blocks(tmp_path: Path) -> None:
    """In both worlds, over every kind of store, at once; the event loop is blocked too."""
    backends = [new_place(kind, tmp_path).open() for kind in EVERY_KIND]
    for backend in backends:
        backend.open()
    stores, awaitable = [blocking_store(backend) for backend in backends], holdfast.MemoryStore()

    async def whole() -> None:
        async with awaitable.run("t", lease=2):
            with ExitStack() as blocks:
                for store in stores:
                    blocks.enter_context(store.run("t", lease=2))
                time.sleep(3)
                for store in stores:
                    with pytest.raises(holdfast.LeaseHeld), store.run("t", wait=0):
                        pass
            with pytest.raises(holdfast.LeaseHeld):
                async with awaitable.run("t", wait=0):
                    pass

    asyncio.run(whole())


def test_without_a_heartbeat_the_lease_is_lost(memory_store: sync.Store) -> None:
    """The test above can fail."""
    with pytest.raises(holdfast.Fenced), memory_store.run("t", lease=0.5):
        memory_store._store._tools.heartbeat.after_fork()
        with memory_store.run("t", wait=GIVE_UP_SECONDS) as other:
            other.step("taken over", list)


def test_a_claim_is_waited_for_as_long_as_asked(kind: str, tmp_path: Path) -> None:
    world = EVERY_WORLD["blocking"](new_place(kind, tmp_path))

    async def scenario() -> None:
        async with world.store.run("t", lease=1000):
            for wait in (None, 7, 0):
                began = world.clock.now
                with pytest.raises(holdfast.LeaseHeld):
                    async with world.open().run("t", lease=5, wait=wait):
                        pass
                expected = 5 if wait is None else wait
                assert (world.clock.now - began) / 1e6 == pytest.approx(expected, abs=0.2)

    world.play(scenario())


@pytest.mark.parametrize("host", ["", "elsewhere"])
def test_a_run_that_waits_for_a_lease_says_so_on_the_terminal_and_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    told: list[str] = []
    monkeypatch.setattr(BlockingPorts, "tell", staticmethod(told.append))
    caplog.set_level("INFO", "holdfast")
    backend, holder = new_place("sqlite", tmp_path).open(), someone(host=host) if host else someone()
    backend.open()
    left = blocking_store(backend, ports=Named(holder), closes=False).run("t", lease=24)
    copy_context().run(left.__enter__)
    name = f"pid {os.getpid()} on {host or processes.identity().host}"
    with (
        pytest.raises(sync.LeaseHeld, match=f"held by {name}"),
        blocking_store(backend, closes=False).run("t", wait=0.7),
    ):
        pytest.fail("it is held")
    [line] = told
    assert (
        line == f"waiting up to 1 s for the lease of {name} on thread 't', which expires in 24 s unless it is renewed"
    )
    assert [record.message for record in caplog.records if "waiting" in record.message] == [line]
    backend.close()
