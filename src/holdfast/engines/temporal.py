"""Temporal: one workflow for each thread, whose id is the thread's. Its history has one short activity per segment."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from threading import Lock, Thread
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import Priority, RetryPolicy, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RetryConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast.engines.engine import POKE_SECONDS, ServingEngine, Work
from holdfast.engines.segment import AGAIN, END, Segments, Unfinished
from holdfast.engines.urls import Place
from holdfast.ports import logger
from holdfast.records.errors import ConfigurationError

OPTIONS = ("task_queue", "tls")
WORKFLOW, ACTIVITY, POKE = "holdfast-thread", "holdfast-segment", "poke"
HEARTBEAT_SECONDS = 10
MIDDLE_PRIORITY = 3
CONNECT_SECONDS = 0.5
RETRY = RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=5))
"""Without an end. The interval is capped: a worker that comes back is used within seconds."""
POKE_RETRY = RetryConfig(initial_interval_millis=100, max_retries=3, max_elapsed_time_millis=1000)
"""A caller of `submit` waits about a second for a server that is away."""
LONGEST_ATTEMPT = timedelta(days=365)
"""Temporal demands a limit. Heartbeats find a dead worker; a step may take as long as it takes."""


@workflow.defn(name=WORKFLOW, sandboxed=False)
class ThreadWorkflow:
    """Runs segments of one thread until it has ended. Between them it waits for a timer, or for a poke."""

    def __init__(self) -> None:
        self._is_poked = False

    @workflow.signal(name=POKE)
    def poke(self) -> None:
        """Look at the thread: it was submitted, answered or cancelled."""
        self._is_poked = True

    @workflow.run
    async def run(self, thread_id: str) -> None:
        """Run the thread."""
        while True:
            self._is_poked = False
            word, _, seconds = await workflow.execute_activity(
                ACTIVITY,
                thread_id,
                start_to_close_timeout=LONGEST_ATTEMPT,
                heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS),
                retry_policy=RETRY,
            )
            if word == END and not self._is_poked:
                return
            if word not in {AGAIN, END}:
                with suppress(TimeoutError):
                    await workflow.wait_condition(lambda: self._is_poked, timeout=seconds or None)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(thread_id)


class SegmentActivity:
    """The one activity: a segment, with heartbeats."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    @activity.defn(name=ACTIVITY)
    async def run(self, thread_id: str) -> list[Any]:
        """Run a segment of a thread, and return its verdict."""
        beating = asyncio.create_task(_beat())
        try:
            return list(await self._segments.run(thread_id))
        except Unfinished as error:
            raise ApplicationError("the segment could not run", type=str(error)) from None
        finally:
            beating.cancel()


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(HEARTBEAT_SECONDS / 3)


class TemporalEngine(ServingEngine):
    """A namespace of Temporal, and a task queue in it."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._loop = _LoopThread()
        self._client: Client | None = None

    async def _connected(self, *, lazy: bool) -> Client:
        return await Client.connect(
            self.place.address(7233),
            namespace=self.place.namespace or "default",
            tls=self.place.option("tls", "") == "true",
            api_key=os.environ.get("TEMPORAL_API_KEY"),
            lazy=lazy,
            retry_config=POKE_RETRY if lazy else None,
        )

    @property
    def _task_queue(self) -> str:
        return self.place.option("task_queue", "holdfast")

    def send(self, thread_id: str, priority: int) -> None:
        """Start the workflow of a thread, or send a signal to it, in one call."""
        self._loop.run(self._send(thread_id, priority))

    async def _send(self, thread_id: str, priority: int) -> None:
        if self._client is None:
            self._client = await self._connected(lazy=True)
        await self._client.start_workflow(
            WORKFLOW,
            thread_id,
            id=thread_id,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=POKE,
            priority=Priority(priority_key=MIDDLE_PRIORITY - priority),
            rpc_timeout=timedelta(seconds=POKE_SECONDS),
        )

    async def _reached(self) -> Client | None:
        """Return a connection; None if Temporal cannot be reached now."""
        try:
            return await self._connected(lazy=False)
        except RuntimeError as error:
            logger().warning("cannot connect to Temporal: %s; trying again", error)
            return None

    async def serve(self, work: Work) -> None:
        """Run a worker of Temporal."""
        while (client := await self._reached()) is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(work.stopped.wait(), CONNECT_SECONDS)
                return
        third = timedelta(seconds=HEARTBEAT_SECONDS / 3)
        worker = Worker(
            client,
            task_queue=self._task_queue,
            workflows=[ThreadWorkflow],
            activities=[SegmentActivity(work.segments).run],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=0,  # else a workflow waits 10 s for the queue of a dead worker that had it cached
            max_concurrent_activities=work.concurrency,
            max_heartbeat_throttle_interval=third,
            default_heartbeat_throttle_interval=third,
            graceful_shutdown_timeout=timedelta(seconds=work.grace),
        )
        running, stopping = asyncio.create_task(worker.run()), asyncio.create_task(work.until_stopped())
        work.ready.set()
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await worker.shutdown()
            await running
        except RuntimeError as error:
            raise ConfigurationError(f"Temporal refuses this worker: {error}") from error
        finally:
            stopping.cancel()

    def close(self) -> None:
        """End the thread that sends pokes."""
        self._loop.close()


class _LoopThread:
    """An event loop on a thread of its own, since the client of Temporal has no blocking calls."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: tuple[asyncio.AbstractEventLoop, Thread] | None = None

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it there, and wait for its end."""
        with self._lock:
            if self._running is None:
                loop = asyncio.new_event_loop()
                self._running = loop, Thread(target=loop.run_forever, name="holdfast-temporal", daemon=True)
                self._running[1].start()
            done = asyncio.run_coroutine_threadsafe(coroutine, self._running[0])
        done.result(POKE_SECONDS * 2)

    def close(self) -> None:
        """End the loop, if there is one."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            loop, thread = running
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


engine = TemporalEngine
