"""Execute a turn: replay it if recorded; else check the limits, call, record, and then check the budget."""

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.codec import decode, encode
from holdfast.ports import logger
from holdfast.records.errors import ConfigurationError, KeyReused, LimitExceeded, RunCancelled, UnstorableValue
from holdfast.records.tracebacks import hide_our_frames
from holdfast.records.turn import TurnResult
from holdfast.records.usage import PICODOLLARS, ModelPricing, Spent, UsageSnapshot
from holdfast.runs.driver import Driver, Note, Receipt, failed_steps, note, text_of
from holdfast.runtimes.session.limits import TurnSlots
from holdfast.runtimes.session.options import SessionOptions
from holdfast.runtimes.session.record import RESERVE, TURN, TurnContent, Turns, content_of, packed_content, used
from holdfast.runtimes.session.streams import END, OpenStreams, opened

NOTHING_USED = UsageSnapshot()
turn_result: Callable[[tuple[Any, UsageSnapshot]], TurnResult[Any]] = partial(tuple.__new__, TurnResult)
"""Build the named tuple from a tuple, without its slower `__new__`."""


class TurnExecution(msgspec.Struct):
    """One turn, from the call to its record."""

    _driver: Driver
    _options: SessionOptions
    _turns: Turns
    _streams: OpenStreams
    _slots: TurnSlots
    _name: str
    _function: Callable[[], Any]
    _model: str | None
    _usage: UsageSnapshot | Callable[[Any], Any] | None
    _key: str
    """Empty for a turn without a key."""
    _shown: str
    """The name to show to users."""
    _fingerprint: bytes
    _timeout: float | None
    _on_unstorable: str
    _reserve: UsageSnapshot | None
    """The most it may use: recorded before the call, and counted if the turn never ends."""
    _streamed: bool = False
    _price: ModelPricing | None = None
    _started_at: int = 0
    _is_heard: bool = False
    """True if its events have a listener or are logged."""
    _has_slot: bool = False
    """True while it occupies a slot that must be released if the turn is not recorded."""

    async def result(self) -> TurnResult[Any]:
        """Return the result of the turn: replayed, or by calling the function."""
        if self._name in self._streams.names:
            self._streams.refuse(self._shown)
        try:
            return await self._driver.alone(self._name, self._replayed_or_executed)
        except Exception as error:
            hide_our_frames(error)
            raise
        finally:
            if self._has_slot:
                self._slots.release()

    async def _replayed_or_executed(self) -> TurnResult[Any]:
        driver = self._driver
        known = driver.noted(TURN, self._key)
        if known is not None:
            usage = await self._replay(known)
            return TurnResult(decode(known.value), usage)
        await self._begin()
        try:
            value = await driver.invoke(self._name, self._function, self._timeout)
        except BaseException as error:
            await self._record_failure(error)
            raise
        return turn_result((value, await self._end(value)))

    async def chunks(self) -> AsyncGenerator[Any, None]:
        """Yield the chunks of the turn's stream: replayed, or as they arrive. Recorded when the stream ends."""
        self._streamed = True
        driver = self._driver
        with self._streams.opened(self._name, self._shown):
            # Not for the whole stream: no step is running while the consumer handles a chunk.
            known = await driver.alone(self._name, self._known)
            if known is not None:
                await self._replay(known)
                for chunk in decode(known.value):
                    yield chunk
                return
            collected: list[Any] = []
            try:
                await self._begin()
                async with opened(driver.ports, driver.frame(self._name), self._timeout) as source:
                    try:
                        await source.begin(self._function)
                        while (chunk := await source.chunk()) is not END:
                            collected.append(chunk)
                            yield chunk
                        driver.check_waits_not(self._name)
                    except BaseException as error:
                        await self._record_failure(error)
                        raise
                await self._end(collected)
            finally:
                if self._has_slot:
                    self._slots.release()

    async def _known(self) -> Note | None:
        return self._driver.noted(TURN, self._key)

    # Before

    async def _replay(self, known: Note) -> UsageSnapshot:
        """Return the usage of the recorded turn, or raise if it is another turn. Replays count against no limit."""
        driver, content = self._driver, content_of(known)
        other = self._fingerprint and content.fingerprint and self._fingerprint != content.fingerprint
        if other or content.streamed != self._streamed:
            how = "another fingerprint" if other else "run_turn_stream" if content.streamed else "run_turn"
            raise KeyReused(
                f"turn {self._key!r} of thread {driver.thread_id!r} was recorded with {how};"
                " give this one another idempotency_key"
            )
        if driver.events.wants("step_replayed"):
            await driver.emit("step_replayed", step=self._name, name=self._shown, seconds_saved=known.took / 1e6)
        return UsageSnapshot(**content.usage)

    async def _begin(self) -> None:
        driver, options = self._driver, self._options
        driver.check_open(f"turn {self._shown!r}")
        price = self._price = options.price_of(self._model)
        reserve = None
        if self._reserve is not None:
            reserve = Spent(self._reserve, 0 if price is None else price.cost(self._reserve))
        self._has_slot = self._slots.take(options.limits, self._turns, self._key, reserve, driver.thread_id)
        if reserve is not None:
            content = [used(reserve.usage), reserve.cost]
            begun = note(RESERVE, content, driver.ports.now(), key=self._key)
            await driver.write(begun, journal=True, metadata={"turn_begun": self._shown})
        self._is_heard = driver.events.wants("step_started")
        if self._is_heard:
            await driver.emit("step_started", step=self._name, name=self._shown, attempt=1)
        self._started_at = driver.ports.now()

    # After

    async def _record_failure(self, error: BaseException) -> None:
        """Record a failed turn. A turn that was cancelled, suspended or abandoned is not recorded."""
        driver, kind = self._driver, type(error).__name__
        if isinstance(error, RunCancelled) or driver.is_lost or not isinstance(error, Exception):
            await driver.emit("step_stopped", step=self._name, name=self._shown, attempt=1, error=kind)
            return
        await self._fail(error, NOTHING_USED)

    async def _fail(self, error: Exception, usage: UsageSnapshot) -> None:
        kind = type(error).__name__
        failed = self._note(b"", usage, f"{kind}: {text_of(error)}", failed_steps(error))
        await self._write(failed, "error", {"turn": self._shown, "error": kind})
        await self._driver.emit("step_failed", step=self._name, name=self._shown, attempt=1, error=kind)

    async def _end(self, value: Any) -> UsageSnapshot:
        """Record the result, then raise what is wrong with it: it was paid for."""
        driver, usage, failure = self._driver, self._usage, None
        if usage is None:
            usage = NOTHING_USED
        elif type(usage) is not UsageSnapshot:
            usage, failure = await self._used(usage, value)
            if failure is not None:
                self._price = None  # the cost is unknown
        try:
            encoded = encode(value, path=f"result of turn {self._shown!r}")
        except (UnstorableValue, LimitExceeded) as error:
            await self._fail(error, usage)
            self._refuse(error, value)
        else:
            ended = self._note(encoded, usage)
            await self._write(ended, "event", {"turn": self._shown})
            if self._is_heard or driver.events.has_listeners:
                details = {"step": self._name, "name": self._shown, "attempt": 1, "seconds": ended.took / 1e6}
                await driver.emit("step_done", {"result": value}, **details)
        if failure is not None:
            raise failure
        self._options.limits.check_after(self._turns, driver.thread_id)
        return usage

    async def _used(
        self, given: UsageSnapshot | Callable[[Any], Any], value: Any
    ) -> tuple[UsageSnapshot, BaseException | None]:
        """Return the usage of the turn, and the error if it cannot be determined."""
        if isinstance(given, UsageSnapshot):
            return given, None
        try:
            usage = await self._driver.ports.call(given, value)
        except BaseException as error:  # noqa: BLE001  cancellation too: raised again once the result is stored
            return NOTHING_USED, error
        if isinstance(usage, UsageSnapshot):
            return usage, None
        return NOTHING_USED, ConfigurationError(f"usage= returned {type(usage).__name__}, not a UsageSnapshot")

    def _refuse(self, error: UnstorableValue | LimitExceeded, value: Any) -> None:
        if self._on_unstorable == "raise":
            path = getattr(error, "path", "")
            raise UnstorableValue(
                f"{error}; the result is this error's `value`; a rerun executes the turn again",
                path=path,
                value=value,
            ) from error
        logger().warning("turn %r of thread %r is not stored: %s", self._shown, self._driver.thread_id, error)

    def _note(self, value: bytes, usage: UsageSnapshot, error: str = "", failed: tuple[str, ...] = ()) -> Note:
        now, price = self._driver.ports.now(), self._price
        content = TurnContent(
            self._options.role,
            self._options.phase,
            self._model or "",
            used(usage) if usage is not NOTHING_USED else {},
            None if price is None else price.cost(usage) / PICODOLLARS,
            self._fingerprint,
            self._streamed,
        )
        took, packed = max(0, now - self._started_at), packed_content(content)
        return Note(TURN, packed, now, self._key, value, error, took, failed, self._shown, "llm_output")

    def _write(self, turn: Note, cause: str, metadata: dict[str, Any]) -> Receipt:
        metadata["ms"] = turn.took // 1000
        receipt = self._driver.write(turn, cause=cause, metadata=metadata)
        self._has_slot = False
        return receipt
