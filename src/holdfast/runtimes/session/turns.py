"""Executing a turn: from its record if it has one; else within the limits, recorded, and only then judged."""

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import astuple

from holdfast.codec import decode, encode
from holdfast.history.entries import Turned
from holdfast.ports import logger
from holdfast.records.errors import ConfigurationError, KeyReused, LimitExceeded, RunCancelled, UnstorableValue
from holdfast.records.turn import ModelPricing, TurnResult, UsageSnapshot
from holdfast.records.words import Status
from holdfast.runs.failures import failed_steps, text_of
from holdfast.runs.ledger import packed_words
from holdfast.runs.run import Run
from holdfast.runs.scope import Frame, current_frame, inner_frame
from holdfast.runs.steps import begin_alone, begin_at_once, end_alone, idempotency_key_of
from holdfast.runtimes.session.limits import Places
from holdfast.runtimes.session.options import SessionOptions
from holdfast.runtimes.session.streams import END, OpenStreams, opened
from holdfast.stores.claim import Pending

NOTHING_USED = UsageSnapshot()
USAGE_COUNT = len(astuple(NOTHING_USED))
"""What a subclass adds to a usage is its own."""
WORKING = Status.WORKING.value
turn_result: Callable[[tuple[Any, UsageSnapshot]], TurnResult[Any]] = partial(tuple.__new__, TurnResult)
"""A named tuple of a tuple, without the detour over its own `__new__`."""


class TurnExecution(msgspec.Struct):
    """One turn, from its call to its recorded end."""

    _run: Run
    _options: SessionOptions
    _streams: OpenStreams
    _places: Places
    _name: str
    _function: Callable[[], Any]
    _model: str | None
    _usage: UsageSnapshot | Callable[[Any], Any] | None
    _key: str
    """Empty if it has none."""
    _shown: str
    """The name as users know it."""
    _fingerprint: bytes
    _timeout: float | None
    _on_unstorable: str
    _streamed: bool = False
    _price: ModelPricing | None = None
    _started_at: int = 0
    _is_told: bool = False
    """True if somebody listens, or reads it in the log."""
    _has_place: bool = False
    """True while it has a place among the turns that it must give back, since it is not recorded."""

    async def result(self) -> TurnResult[Any]:
        """What the turn returned, now or before."""
        run, name = self._run, self._name
        ledger = run.ledger
        if name in self._streams.names:
            self._streams.refuse(self._shown)
        place = begin_at_once(run, name) or await begin_alone(run, name)
        try:
            known = ledger.journal.turns.done.get(self._key)
            if known is not None:
                await self._tell_replayed(known)
                return TurnResult(decode(known.value), UsageSnapshot(*known.usage))
            frame = self._begin()
            if self._is_told:
                await self._tell_started()
            value = await self._executed(frame)
            return turn_result((value, await self._end(value)))
        finally:
            end_alone(ledger.running.pop(name), place)
            if self._has_place:
                self._places.give_back()

    async def chunks(self) -> AsyncGenerator[Any, None]:
        """The chunks of the turn's stream, now or before. It is recorded when the stream has ended."""
        self._streamed = True
        with self._streams.opened(self._name, self._shown):
            # Not for as long as the stream lasts: one that rests is no step under way, and nobody is to wait for it.
            place = await begin_alone(self._run, self._name)
            end_alone(self._run.ledger.running.pop(self._name), place)
            known = self._run.ledger.journal.turns.done.get(self._key)
            if known is not None:
                await self._tell_replayed(known)
                for chunk in decode(known.value):
                    yield chunk
                return
            collected: list[Any] = []
            frame = self._begin()
            if self._is_told:
                await self._tell_started()
            async with opened(self._run.ports, frame, self._timeout) as source:
                try:
                    await source.begin(self._function)
                    while (chunk := await source.chunk()) is not END:
                        collected.append(chunk)
                        yield chunk
                    self._run.ledger.check_waits_not(self._name)
                except BaseException as error:
                    await self._left_by(error)
                    if self._has_place:
                        self._places.give_back()
                    raise
            await self._end(collected)

    # Before

    async def _tell_replayed(self, known: Turned) -> None:
        """The turn has a result, if it is this turn. A replay is free: no limit is asked."""
        ledger = self._run.ledger
        other = self._fingerprint and known.fingerprint and self._fingerprint != known.fingerprint
        if other or known.streamed != self._streamed:
            how = "another fingerprint" if other else "run_turn_stream" if known.streamed else "run_turn"
            raise KeyReused(
                f"turn {self._key!r} of thread {self._run.thread_id!r} was recorded with {how};"
                " give this one another idempotency_key"
            )
        if ledger.events.wants("step_replayed"):
            await ledger.emit("step_replayed", step=self._name, name=self._shown, seconds_saved=known.took / 1e6)

    def _begin(self) -> Frame:
        run, name, options = self._run, self._name, self._options
        ledger = run.ledger
        if ledger.status != WORKING:
            ledger.check_new(f"turn {self._shown!r}")
        self._price = options.price_of(self._model)
        self._has_place = self._places.take(options.limits, ledger.journal.turns, self._key, ledger.claim.thread_id)
        self._is_told = ledger.events.wants("step_started")
        self._started_at = run.ports.now()
        return inner_frame(run, name, self._idempotency_key)

    def _idempotency_key(self) -> str:
        return idempotency_key_of(self._run, self._name)

    async def _tell_started(self) -> None:
        await self._run.ledger.emit("step_started", step=self._name, name=self._shown, attempt=1)

    async def _executed(self, frame: Frame) -> Any:
        run = self._run
        try:
            outer = current_frame.set(frame)
            try:
                value = await run.ports.invoke(self._function, (), {}, self._timeout)
            finally:
                current_frame.reset(outer)
            if run.ledger.suspension is not None:
                run.ledger.check_waits_not(self._name)
        except BaseException as error:
            await self._left_by(error)
            raise
        return value

    # After

    async def _left_by(self, error: BaseException) -> None:
        """Record a turn that failed by itself; one that was cancelled, suspended or abandoned leaves no trace."""
        ledger, kind = self._run.ledger, type(error).__name__
        ours = isinstance(error, RunCancelled) or ledger.claim.failure is not None
        if ours or not isinstance(error, Exception):
            await ledger.emit("step_stopped", step=self._name, name=self._shown, attempt=1, error=kind)
            return
        await self._fail(error, NOTHING_USED)

    async def _fail(self, error: Exception, usage: UsageSnapshot) -> None:
        kind = type(error).__name__
        entry = self._entry(b"", usage)
        entry = msgspec.structs.replace(entry, type=kind, message=text_of(error), failed=failed_steps(error))
        pending = self._write(entry, "error", {"turn": self._shown, "error": kind})
        await self._run.ledger.settle(self._run.ports, pending)
        await self._run.ledger.emit("step_failed", step=self._name, name=self._shown, attempt=1, error=kind)

    async def _end(self, value: Any) -> UsageSnapshot:
        """Record what was paid for; only then complain."""
        ledger, usage, complaint = self._run.ledger, self._usage, None
        if type(usage) is not UsageSnapshot:
            usage, complaint = await self._used(usage, value)
            if complaint is not None:
                self._price = None  # nobody knows what it cost
        try:
            encoded = encode(value, path=f"result of turn {self._shown!r}")
        except (UnstorableValue, LimitExceeded) as error:
            await self._fail(error, usage)
            self._refuse(error, value)
        else:
            entry = self._entry(encoded, usage)
            pending = self._write(entry, "event", {"turn": self._shown})
            if pending.outcome is not True:
                await ledger.settle(self._run.ports, pending)
            if self._is_told or ledger.events.has_listeners:
                details = {"step": self._name, "name": self._shown, "attempt": 1, "seconds": entry.took / 1e6}
                await ledger.emit("step_done", {"result": value}, **details)
        if complaint is not None:
            raise complaint
        self._options.limits.judge(ledger.journal.turns, ledger.claim.thread_id)
        return usage

    async def _used(
        self, given: UsageSnapshot | Callable[[Any], Any] | None, value: Any
    ) -> tuple[UsageSnapshot, BaseException | None]:
        """What the turn used, and what kept us from knowing it."""
        if given is None or isinstance(given, UsageSnapshot):
            return NOTHING_USED if given is None else given, None
        try:
            usage = await self._run.ports.call(given, value)
        except BaseException as error:  # noqa: BLE001  also if it was cancelled: raised again once the result is safe
            return NOTHING_USED, error
        if isinstance(usage, UsageSnapshot):
            return usage, None
        return NOTHING_USED, ConfigurationError(f"usage= returned {type(usage).__name__}, not a UsageSnapshot")

    def _refuse(self, error: UnstorableValue | LimitExceeded, value: Any) -> None:
        if self._on_unstorable == "raise":
            path = getattr(error, "path", "")
            raise UnstorableValue(
                f"{error}; the result is this error's value, and the turn would be executed again",
                path=path,
                value=value,
            ) from error
        logger().warning("turn %r of thread %r is not kept: %s", self._shown, self._run.thread_id, error)

    def _entry(self, value: bytes, usage: UsageSnapshot) -> Turned:
        now, options, price = self._run.ports.now(), self._options, self._price
        return Turned(
            self._key,
            self._fingerprint,
            value,
            options.role,
            options.phase,
            self._model or "",
            astuple(usage)[:USAGE_COUNT],
            None if price is None else price.cost(usage),
            now,
            max(0, now - self._started_at),
            streamed=self._streamed,
        )

    def _write(self, entry: Turned, cause: str, metadata: dict[str, str]) -> Pending:
        run = self._run
        pending = run.ledger.append(run.ports, entry, cause, packed_words(metadata))
        self._has_place = False
        return pending
