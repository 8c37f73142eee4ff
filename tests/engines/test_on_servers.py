"""Threads on the real servers of Temporal and Restate, whose workers and servers are killed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.sync
from engines.program import SECRET, Program, executed
from patience import GIVE_UP_SECONDS
from rounds import size
from servers.engines import SERVERS, EngineServer, RestateServer
from servers.postgres import new_schema, shared_server

pytestmark = pytest.mark.servers
KINDS = [pytest.param("temporal"), pytest.param("restate", marks=pytest.mark.again)]
_numbers = count()


class Scene:
    """A program on an engine: its directory, the server, and the workers that run."""

    def __init__(self, server: EngineServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.name = f"app{next(_numbers)}"
        self._workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self, **settings: float) -> "subprocess.Popen[bytes]":
        """Start a worker process."""
        place, script = self.directory, Path(__file__).with_name("program.py")
        environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        with (place / "log").open("ab") as log:
            command = [sys.executable, str(script), str(place), self.server.url(self.name)]
            worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._workers.append(worker)
        return worker

    async def until_executed(self, name: str) -> None:
        """Wait until a step was begun."""
        ends_at = time.monotonic() + GIVE_UP_SECONDS
        while name not in executed(self.directory):
            assert time.monotonic() < ends_at, (self.directory / "log").read_text()
            await asyncio.sleep(0.02)

    def open_gate(self) -> None:
        """Let the gated thread go on."""
        (self.directory / "go").touch()

    def times(self, name: str) -> list[int]:
        """How often the steps of a thread were executed, in order of their first execution."""
        return list(Counter(each for each in executed(self.directory) if each.startswith(f"{name}-")).values())

    def play(self, act: Callable[[Program], Coroutine[Any, Any, None]]) -> None:
        """Run an act with the program, in this process."""

        async def played() -> None:
            program = Program(self.directory, self.server.url(self.name))
            async with program.store:
                await act(program)

        asyncio.run(played())

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.kill()
            worker.wait()


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[EngineServer]:
    """A server that the tests share."""
    started = SERVERS[request.param]()
    started.start()
    yield started
    started.remove()


@pytest.fixture(params=KINDS)
def private_server(request: pytest.FixtureRequest) -> Iterator[EngineServer]:
    """A server to kill; it is not started yet."""
    made = SERVERS[request.param]()
    yield made
    made.remove()


@pytest.fixture
def scene(server: EngineServer, tmp_path: Path) -> Iterator[Scene]:
    """A program on the shared server, without a worker."""
    made = Scene(server, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(server: EngineServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A program with a worker, for tests that kill nothing."""
    made = Scene(server, tmp_path_factory.mktemp("served"))
    made.start_worker()
    yield made
    made.close()


@pytest.fixture(scope="module")
def hasty(server: EngineServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A program with a worker that looks often for overdue threads, and soon hands its threads over."""
    made = Scene(server, tmp_path_factory.mktemp("hasty"))
    made.start_worker(OVERDUE_SECONDS=0.5, LONGEST_SECONDS=0.3)
    yield made
    made.close()


def test_a_thread_with_steps_an_approval_and_a_timer_ends_and_the_engine_has_none_of_its_data(served: Scene) -> None:
    async def act(program: Program) -> None:
        handle = await program.story.submit("story", "s")
        asked = await handle.wait(GIVE_UP_SECONDS)
        assert served.times("s") == [1, 1, 1]
        await program.store.answer(asked.requests[0].id, "approve", comment=SECRET)
        assert await handle.result(GIVE_UP_SECONDS) == f"{SECRET} True"

    served.play(act)
    assert served.times("s") == [1, 1, 1, 1]
    history = served.server.history(served.name, "story")
    assert len(history) < 60
    assert SECRET not in str(history)
    assert SECRET.encode() not in b"".join(each for each in history if isinstance(each, bytes))


def test_an_error_ends_the_thread_and_its_text_stays_in_the_store(served: Scene) -> None:
    async def act(program: Program) -> None:
        handle = await program.failing.submit("failing", "f")
        with pytest.raises(holdfast.ThreadFailed) as caught:
            await handle.result(GIVE_UP_SECONDS)
        assert (caught.value.type, caught.value.message) == ("ValueError", SECRET)

    served.play(act)
    assert served.times("f") == [1]
    assert SECRET not in str(served.server.history(served.name, "failing"))


def test_a_worker_killed_in_a_step_is_replaced_and_finished_steps_are_not_repeated(scene: Scene) -> None:
    worker = scene.start_worker()

    async def act(program: Program) -> None:
        handle = await program.gated.submit("gated", "g")
        await scene.until_executed("g-gate")
        worker.kill()
        worker.wait()
        scene.start_worker()
        scene.open_gate()
        assert await handle.result(GIVE_UP_SECONDS) == "g"

    scene.play(act)
    assert scene.times("g") == [1, 2, 1]


def test_a_worker_that_is_drained_hands_its_thread_over(scene: Scene) -> None:
    worker = scene.start_worker()

    async def act(program: Program) -> None:
        handle = await program.many.submit("drained", "d", 40, 0.1)
        await scene.until_executed("d-3")
        worker.send_signal(signal.SIGTERM)
        scene.start_worker() if scene.server.kind == "temporal" else None
        assert await asyncio.to_thread(worker.wait, GIVE_UP_SECONDS) == 0
        scene.start_worker() if scene.server.kind == "restate" else None
        assert await handle.result(GIVE_UP_SECONDS) == 40

    scene.play(act)
    assert sum(scene.times("d")) <= 41, "only the step in flight at the end of the grace is repeated"


def test_pokes_that_come_twice_change_nothing(served: Scene) -> None:
    async def act(program: Program) -> None:
        handle = await program.story.submit("twice", "t")
        asked = await handle.wait(GIVE_UP_SECONDS)
        for _ in range(5):
            await program.store._poke("twice")
        await program.store.answer(asked.requests[0].id, "approve")
        for _ in range(5):
            await program.store._poke("twice")
        await handle.result(GIVE_UP_SECONDS)

    served.play(act)
    assert served.times("t") == [1, 1, 1, 1]
    if isinstance(served.server, RestateServer):
        mine = f"target_service_name = '{served.name}' and target_service_key = 'twice'"
        delayed = f"select id from sys_invocation where {mine} and scheduled_start_at is not null"
        assert len(served.server.query(delayed)) <= 2, "a timer is armed once"


def test_a_lost_poke_delays_a_thread_and_loses_none(hasty: Scene) -> None:
    async def act(program: Program) -> None:
        async with Program(hasty.directory, None).store as unaware:
            handle = await unaware.submit("many", "lost", ("l", 3, 0))
            assert await handle.result(GIVE_UP_SECONDS) == 3

    hasty.play(act)
    assert hasty.times("l") == [1, 1, 1]


def test_a_long_thread_is_handed_over_at_a_step_and_goes_on(hasty: Scene) -> None:
    async def act(program: Program) -> None:
        handle = await program.many.submit("long", "h", 30, 0.05)
        assert await handle.result(GIVE_UP_SECONDS) == 30

    hasty.play(act)
    assert hasty.times("h") == [1] * 30
    assert len(hasty.server.history(hasty.name, "long")) > 15, "several segments"


def test_what_the_engine_keeps_does_not_grow_with_the_steps(served: Scene) -> None:
    async def act(program: Program) -> None:
        for steps in (8, size(200, 1000)):
            handle = await program.many.submit(f"many-{steps}", f"m{steps}", steps, 0)
            assert await handle.result(GIVE_UP_SECONDS) == steps

    served.play(act)
    few, many = (served.server.history(served.name, f"many-{steps}") for steps in (8, size(200, 1000)))
    assert max(len(few), len(many)) <= 24, "one segment each, or two if the server was slow"
    assert sum(len(each if isinstance(each, bytes) else str(each)) for each in few) < 8000


def test_a_server_that_is_killed_and_comes_back_loses_no_thread(private_server: EngineServer, tmp_path: Path) -> None:
    private_server.start()
    scene = Scene(private_server, tmp_path)
    scene.start_worker(OVERDUE_SECONDS=0.5)  # the poke of the answer is lost

    async def act(program: Program) -> None:
        gated = await program.gated.submit("gated", "g")
        story = await program.story.submit("story", "s")
        asked = await story.wait(GIVE_UP_SECONDS)
        await scene.until_executed("g-gate")
        private_server.kill()
        await program.store.answer(asked.requests[0].id, "approve")
        scene.open_gate()
        await asyncio.to_thread(private_server.start)
        assert await gated.result(GIVE_UP_SECONDS) == "g"
        assert await story.result(GIVE_UP_SECONDS) == f"{SECRET} True"

    try:
        scene.play(act)
        assert scene.times("s") == [1, 1, 1, 1]
        before, gate, after = scene.times("g")
        assert (before, after) == (1, 1)
        assert gate <= 2
    finally:
        scene.close()


def test_an_engine_that_is_away_at_submit_runs_the_thread_later(private_server: EngineServer, tmp_path: Path) -> None:
    scene = Scene(private_server, tmp_path)

    async def act(program: Program) -> None:
        handle = await program.many.submit("early", "e", 3, 0)
        assert (await program.store.thread("early")).status == "queued"
        scene.start_worker(OVERDUE_SECONDS=0.5)
        await asyncio.to_thread(private_server.start)
        assert await handle.result(GIVE_UP_SECONDS) == 3

    try:
        scene.play(act)
        assert scene.times("e") == [1, 1, 1]
    finally:
        scene.close()


class OnePage:
    """The one-page program of the documents, in a directory, with a store in PostgreSQL."""

    def __init__(self, directory: Path) -> None:
        page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
        (directory / "app.py").write_text(page.partition("```python\n")[2].partition("```")[0])
        self._directory = directory
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.store = {"HOLDFAST_STORE": shared_server().url(new_schema())}

    def run(self, *words: str, **more: str) -> str:
        """What the program prints, started with these words."""
        command, environment = [sys.executable, "app.py", *words], {**self._environment, **more}
        done = subprocess.run(command, cwd=self._directory, env=environment, capture_output=True, check=True)
        return done.stdout.decode()

    def worker(self, **more: str) -> "subprocess.Popen[str]":
        """Start a worker."""
        command, environment = [sys.executable, "-m", "holdfast", "worker", "app.py"], {**self._environment, **more}
        return subprocess.Popen(command, cwd=self._directory, env=environment, stdout=subprocess.PIPE, text=True)


def ended(workers: "list[subprocess.Popen[str]]") -> list[str]:
    """End the workers; return what they said about ends of threads."""
    for worker in workers:
        worker.terminate()
    said = [worker.communicate(timeout=GIVE_UP_SECONDS)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers)
    return sorted(line for each in said for line in each.splitlines() if line.endswith("completed"))


def test_the_one_page_program_runs_by_itself_and_on_three_workers_with_postgresql(tmp_path: Path) -> None:
    program = OnePage(tmp_path)
    assert program.run("run", "order-1") == "order-1 shipped\n"
    workers = [program.worker(**program.store) for _ in range(3)]
    try:
        with holdfast.sync.open(program.store["HOLDFAST_STORE"]) as store:
            handles = [store.submit("fulfil", f"more-{number}", (f"more-{number}",)) for number in range(10, 30)]
            assert program.run("submit", "order-2", **program.store) == "order-2 shipped\n"
            assert [handle.result(GIVE_UP_SECONDS) for handle in handles] == [
                f"more-{n} shipped" for n in range(10, 30)
            ]
    finally:
        said = ended(workers)
    assert said == [*(f"more-{number} completed" for number in range(10, 30)), "order-2 completed"]


def test_the_one_page_program_runs_on_an_engine_with_postgresql(server: EngineServer, tmp_path: Path) -> None:
    program = OnePage(tmp_path)
    places = {**program.store, "HOLDFAST_ENGINE": server.url(f"app{next(_numbers)}")}
    worker = program.worker(**places)
    try:
        assert program.run("submit", "order-3", **places) == "order-3 shipped\n"
    finally:
        said = ended([worker])
    assert said == ["order-3 completed"]
