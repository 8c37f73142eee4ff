"""Restate: one virtual object for each thread, whose key is the thread's id. Each segment is one short invocation.

Nothing lives between segments but a delayed send for a timer, and its moment, so that there is never more than one.
"""

import asyncio
import json
from contextlib import suppress
from datetime import timedelta
from socket import gethostname
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from holdfast.engines.engine import POKE_SECONDS, ServingEngine, Work
from holdfast.engines.segment import AGAIN, WAKE_AT, Segments
from holdfast.ports import logger

OPTIONS = ("admin", "listen", "advertise", "service")
ANYWHERE = {"0.0.0.0", "::", ""}  # noqa: S104  recognized, not listened on
POKED = 0
REGISTER_SECONDS = 0.5
CLOSE_SECONDS = 0.5
TIMER = "timer"
PATIENCE = timedelta(days=365)
"""The timeouts of an invocation must be longer than any step. A dead worker is found by its broken connection."""
RETRY = restate.InvocationRetryPolicy(
    initial_interval=timedelta(seconds=0.2), max_interval=timedelta(seconds=2), max_attempts=None
)


def thread_object(name: str, segments: Segments) -> restate.VirtualObject:
    """Return the virtual object that runs threads."""
    threads = restate.VirtualObject(
        name, inactivity_timeout=PATIENCE, abort_timeout=PATIENCE, invocation_retry_policy=RETRY
    )

    @threads.handler()
    async def segment(context: restate.ObjectContext, timer: int) -> None:
        """Run a segment. Its verdict alone is recorded: a hung `run` of Restate can be suspended for ever."""
        armed = await context.get(TIMER, type_hint=int)
        if timer not in {POKED, armed}:
            return  # a newer timer took the place of this one
        verdict: list[Any] = list(await segments.run(context.key()))
        word, at, seconds = await context.run_typed("verdict", lambda: verdict)
        if word == AGAIN:
            context.object_send(segment, context.key(), POKED)
        if word == WAKE_AT and at == armed and timer == POKED:
            return  # its timer is armed already
        if word == WAKE_AT and at:
            context.set(TIMER, at)
            context.object_send(segment, context.key(), at, send_delay=timedelta(seconds=seconds))
        elif armed:
            context.clear(TIMER)

    return threads


class RestateEngine(ServingEngine):
    """A cluster of Restate. Its workers share one address, at which it calls them."""

    @property
    def _service(self) -> str:
        return self.place.option("service", "holdfast")

    def send(self, thread_id: str, priority: int) -> None:
        """Send to the object of a thread. A call would wait for its segment; priorities are unknown to Restate."""
        path = f"{self._service}/{quote(thread_id, safe='')}/segment/send"
        _post(f"http://{self.place.address(8080)}/{path}", POKED)

    async def serve(self, work: Work) -> None:
        """Listen for invocations, and tell Restate where."""
        application = restate.app([thread_object(self._service, work.segments)], "bidi")
        config = Config()
        config.bind = [self.place.option("listen", "0.0.0.0:9080")]
        config.graceful_timeout = CLOSE_SECONDS
        config.accesslog = config.errorlog = None
        await asyncio.to_thread(_without_signals, application)
        registering = asyncio.create_task(self._keep_registering(work.ready))
        try:
            await serve(application, config, shutdown_trigger=lambda: _until_idle(work))
        finally:
            registering.cancel()

    async def _keep_registering(self, ready: asyncio.Event) -> None:
        """Register the address of this worker with Restate, as soon as it can be reached."""
        while not ready.is_set():
            try:
                await asyncio.to_thread(self._register)
                ready.set()
            except OSError as error:
                logger().warning("cannot register with Restate: %s; trying again", error)
                await asyncio.sleep(REGISTER_SECONDS)

    def _register(self) -> None:
        admin = self.place.option("admin", f"{self.place.host}:9070")
        _post(f"http://{admin}/deployments", {"uri": f"http://{self._advertised()}", "force": True})

    def _advertised(self) -> str:
        """Return where Restate finds the workers: by default where this one listens."""
        host, _, port = self.place.option("listen", "0.0.0.0:9080").rpartition(":")
        return self.place.option("advertise", f"{gethostname() if host.strip('[]') in ANYWHERE else host}:{port}")

    def close(self) -> None:
        """Do nothing: there is no connection between pokes."""


async def _until_idle(work: Work) -> None:
    """Wait for the end of the work and of the segments under way, not for the connections: Restate keeps them."""
    await work.until_stopped()
    with suppress(TimeoutError):
        await asyncio.wait_for(work.segments.idle.wait(), work.grace)


def _without_signals(application: Any) -> None:
    """Let the application of Restate find that it runs on no main thread: else it replaces our handler of SIGTERM."""
    with suppress(Exception):
        asyncio.run(application({"type": "lifespan"}, None, None))


def _post(url: str, body: Any) -> None:
    headers = {"Content-Type": "application/json"}
    request = Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310  made here
    with urlopen(request, timeout=POKE_SECONDS) as response:  # noqa: S310
        response.read()


engine = RestateEngine
