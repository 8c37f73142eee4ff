"""Executing a turn: from its record if it has one; else within the limits, recorded, and only then judged."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from holdfast.codec import decode, encode
from holdfast.history.entries import Turned
from holdfast.ports import logger
from holdfast.records.errors import ConfigurationError, KeyReused, LimitExceeded, RunCancelled, UnstorableValue
from holdfast.records.turn import ModelPricing, TurnResult, UsageSnapshot
from holdfast.runs.failures import failed_steps, text_of
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.run import Run
from holdfast.runs.scope import Frame, Scope, current_frame
from holdfast.runs.steps import begin_alone, end_alone, idempotency_key_of
from holdfast.runtimes.session.limits import UnderWay
from holdfast.runtimes.session.options import SessionOptions, TurnCall
from holdfast.runtimes.session.streams import END, OpenStreams, opened
from holdfast.stores.writer import Intent

NOTHING_USED = UsageSnapshot()


class TurnExecution:
    """One turn, from its call to its recorded end."""

    def __init__(
        self,
        run: Run,
        options: SessionOptions,
        call: TurnCall,
        name: str,
        streams: OpenStreams,
        under_way: UnderWay,
    ) -> None:
        self._run = run
        self._streams = streams
        self._under_way = under_way
        self._options = options
        self._call = call
        self._name = name
        self._streamed = False
        self._price: ModelPricing | None = None
        self._started_at = 0

    async def result(self) -> TurnResult[Any]:
        """What the turn returned, now or before."""
        self._streams.check(self._name, self._shown)
        ticket = await begin_alone(self._run, self._name)
        try:
            known = await self._known()
            if known is not None:
                return TurnResult(decode(known.value), UsageSnapshot(*known.usage))
            frame = await self._begin()
            value = await self._executed(frame)
            return TurnResult(value, await self._end(value))
        finally:
            self._under_way.end(self._name)
            end_alone(self._run, self._name, ticket)

    async def chunks(self) -> AsyncGenerator[Any, None]:
        """The chunks of the turn's stream, now or before. It is recorded when the stream has ended."""
        self._streamed = True
        with self._streams.opened(self._name, self._shown):
            # Not for as long as the stream lasts: one that rests is no step under way, and nobody is to wait for it.
            end_alone(self._run, self._name, await begin_alone(self._run, self._name))
            known = await self._known()
            if known is not None:
                for chunk in decode(known.value):
                    yield chunk
                return
            collected: list[Any] = []
            async with opened(self._run.ports, await self._begin(), self._call.timeout) as source:
                try:
                    await source.begin(self._call.function)
                    while (chunk := await source.chunk()) is not END:
                        collected.append(chunk)
                        yield chunk
                    self._run.ledger.check_waits_not(self._name)
                except BaseException as error:
                    self._under_way.end(self._name)
                    await self._left_by(error)
                    raise
            await self._end(collected)

    # Before

    async def _known(self) -> Turned | None:
        """The turn's record, if it has a result. A replay is free: no limit is asked."""
        call, ledger = self._call, self._run.ledger
        known = ledger.journal.turns.done.get(call.key)
        if known is None:
            return None
        other = call.fingerprint and known.fingerprint and call.fingerprint != known.fingerprint
        if other or known.streamed != self._streamed:
            how = "another fingerprint" if other else "run_turn_stream" if known.streamed else "run_turn"
            raise KeyReused(
                f"turn {call.key!r} of thread {self._run.thread_id!r} was recorded with {how};"
                " give this one another idempotency_key"
            )
        if ledger.events.wants("step_replayed"):
            await ledger.emit("step_replayed", step=self._name, name=self._shown, seconds_saved=known.took / 1e6)
        return known

    async def _begin(self) -> Frame:
        run = self._run
        run.ledger.check_new(f"turn {self._shown!r}")
        self._price = self._options.price_of(self._call.model)
        turns = run.ledger.journal.turns
        self._under_way.begin(self._name, self._options.limits, turns, self._call.key, run.thread_id)
        self._started_at = run.ports.now()
        if run.ledger.events.wants("step_started"):
            await run.ledger.emit("step_started", step=self._name, name=self._shown, attempt=1)
        outer = current_frame.get()
        within = (*(outer.within if outer is not None else ()), self._name)
        return Frame(run, Scope(f"{self._name}/"), idempotency_key_of(run, self._name), within=within)

    @property
    def _shown(self) -> str:
        return self._call.key or "turn"

    async def _executed(self, frame: Frame) -> Any:
        try:
            value = await self._invoked(frame)
            self._run.ledger.check_waits_not(self._name)
        except BaseException as error:
            await self._left_by(error)
            raise
        return value

    async def _invoked(self, frame: Frame) -> Any:
        token = current_frame.set(frame)
        try:
            return await self._run.ports.invoke(self._call.function, (), {}, self._call.timeout)
        finally:
            current_frame.reset(token)

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
        await self._commit(entry, "error", {"turn": self._shown, "error": kind})
        await self._run.ledger.emit("step_failed", step=self._name, name=self._shown, attempt=1, error=kind)

    async def _end(self, value: Any) -> UsageSnapshot:
        """Record what was paid for; only then complain."""
        usage, complaint = await self._used(value)
        try:
            encoded = encode(value, path=f"result of turn {self._shown!r}")
        except (UnstorableValue, LimitExceeded) as error:
            await self._fail(error, usage)
            self._refuse(error, value)
        else:
            entry = self._entry(encoded, usage)
            await self._commit(entry, "event", {"turn": self._shown})
            if self._run.ledger.events.wants("step_done"):
                details = {"step": self._name, "name": self._shown, "attempt": 1, "seconds": entry.took / 1e6}
                await self._run.ledger.emit("step_done", {"result": value}, **details)
        if complaint is not None:
            raise complaint
        self._options.limits.judge(self._run.ledger.journal.turns, self._run.thread_id)
        return usage

    async def _used(self, value: Any) -> tuple[UsageSnapshot, BaseException | None]:
        """What the turn used, and what kept us from knowing it."""
        given = self._call.usage
        try:
            usage = await self._run.ports.call(given, value) if callable(given) else given or NOTHING_USED
        except BaseException as error:  # noqa: BLE001  also if it was cancelled: raised again once the result is safe
            return NOTHING_USED, error
        if isinstance(usage, UsageSnapshot):
            return usage, None
        return NOTHING_USED, ConfigurationError(f"usage= returned {type(usage).__name__}, not a UsageSnapshot")

    def _refuse(self, error: UnstorableValue | LimitExceeded, value: Any) -> None:
        if self._call.on_unstorable == "raise":
            path = getattr(error, "path", "")
            raise UnstorableValue(
                f"{error}; the result is this error's value, and the turn would be executed again",
                path=path,
                value=value,
            ) from error
        logger().warning("turn %r of thread %r is not kept: %s", self._shown, self._run.thread_id, error)

    def _entry(self, value: bytes, usage: UsageSnapshot) -> Turned:
        now, options, call = self._run.ports.now(), self._options, self._call
        return Turned(
            call.key,
            call.fingerprint,
            value,
            options.role,
            options.phase,
            call.model or "",
            msgspec.structs.astuple(usage),
            None if self._price is None else self._price.cost(usage),
            now,
            max(now - self._started_at, 0),
            streamed=self._streamed,
        )

    async def _commit(self, entry: Turned, cause: str, metadata: dict[str, str]) -> None:
        intent = Intent(cause=cause, metadata=packed_metadata(metadata))
        self._under_way.end(self._name)
        await self._run.ledger.commit(self._run.ports, intent, entry)
