"""Going back: to which checkpoint, which steps that undoes, how they are compensated, and the restored thread."""

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from holdfast.codec import decode
from holdfast.history.draft import draft_state
from holdfast.history.entries import RolledBack
from holdfast.history.journal import Journal
from holdfast.history.meta import decode_meta
from holdfast.history.restore import read_state
from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError, Escalated, NotFound, StepFailed, StepInDoubt
from holdfast.records.failure import FailureType
from holdfast.records.identity import CheckpointId
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.run import Run
from holdfast.runtimes.agent.classifier import doing
from holdfast.runtimes.agent.hands import Bare
from holdfast.runtimes.agent.memory import Compensator, Failure, Memory
from holdfast.stores.writer import Intent

BEGINNING = 0
PAGE = 64
TARGET = "rolled_back_to"
"""In the metadata of a checkpoint that a rollback made: which one it is like."""


class NoWayBack(Exception):
    """A rollback that cannot be made; its text says why."""


class Past:
    """The checkpoints of a run's thread that lead to where it is now, read as needed. Blocking."""

    def __init__(self, run: Run) -> None:
        self._reader = run.reader
        self._thread = run.ledger.claim.thread
        self._binding = run.ledger.claim.log.binding

    def lineage(self, start: int | None = None) -> Iterator[int]:
        """Checkpoints, the newest first, from `start` on back; what a rollback undid is left out, and it itself."""
        skip_to, before = start, None if start is None else start + 1
        while True:
            seen, headers = self._reader.survey(self._thread, before, PAGE)
            for header in headers:
                hidden = not header.is_checkpoint or not seen.head.marks.shows(header.seq)
                if hidden or (skip_to is not None and header.seq > skip_to):
                    continue
                target = self._target(decode_meta(self._binding, header).metadata)
                if target is None:
                    yield header.seq
                skip_to = header.seq - 1 if target is None else target
            if len(headers) < PAGE:
                return
            before = headers[-1].seq

    @staticmethod
    def _target(metadata: bytes) -> int | None:
        found: int | None = decode(metadata).get(TARGET) if metadata else None
        return found

    def at(self, seq: int, life: str = "") -> tuple[Any, Journal]:
        """State and journal at a checkpoint; of the beginning, empty ones."""
        if seq == BEGINNING and not life:
            return {}, Journal()
        log = self._reader.load_checkpoint(self._thread, seq, life).log
        return read_state(self._binding, log.document), Journal.of(log.document)

    def beginning(self) -> int:
        """Where to go back to if no checkpoint is left that would do; `NoWayBack` if there may have been one."""
        if self._reader.survey(self._thread, None, 1)[0].head.marks.floor > 1:
            raise NoWayBack("the checkpoints before the failing step were pruned, so that there is none to go back to")
        return BEGINNING

    def at_latest(self, seq: int) -> tuple[int, Any, Journal]:
        """A checkpoint with its state and journal; if it was pruned since it was chosen, the newest before it."""
        try:
            return seq, *self.at(seq)
        except NotFound:
            older = next(self.lineage(seq), None)
            older = self.beginning() if older is None else older
            return older, *self.at(older)


def good_step_count(steps: list[Step]) -> int:
    """How many steps there are before the failing one: a step recorded with an error is itself that."""
    return len(steps) - 1 if steps and steps[-1].error is not None else len(steps)


def progress_of(steps: list[Step]) -> int:
    """How many different things were done before the failing step: to do the same once more is no progress."""
    return len(set(map(doing, steps[: good_step_count(steps)])))


def choose_target(
    past: Past, steps: list[Step], failure: FailureType, earlier: list[Failure], rollbacks: list[RolledBack]
) -> int:
    """The newest checkpoint before the failing step; if the last rollback was of no use, the one before its target."""
    good = good_step_count(steps)
    if (last := _useless_rollback(earlier, failure, progress_of(steps), rollbacks)) is not None:
        older = next((seq for seq in past.lineage(last.target) if seq < last.target), None)
        return past.beginning() if older is None else older
    for seq in past.lineage():
        if past.at(seq)[1].step_count <= good:
            return seq
    return past.beginning()


def _useless_rollback(
    earlier: list[Failure], failure: FailureType, progress: int, rollbacks: list[RolledBack]
) -> RolledBack | None:
    """The last rollback, if the failures since then are all of this type, as was its own, and nothing new was done."""
    streak = list(takewhile(lambda each: each.type == failure.value, reversed(earlier)))
    if not streak or progress > max(each.progress for each in streak):
        return None
    since = rollbacks[streak[-1].rollbacks :]
    return since[-1] if since else None


async def named_target(run: Run, checkpoint_id: str) -> int:
    """The checkpoint that an action names, which must be one of the thread's."""
    named = CheckpointId.parse(checkpoint_id)
    if named.thread_id != run.thread_id:
        raise ConfigurationError(f"checkpoint {checkpoint_id} is not of thread {run.thread_id!r}")
    _, then = await run.ports.perform(Past(run).at, named.seq, named.life)
    since = run.ledger.journal.rollbacks[len(then.rollbacks) :]
    if any(each.target < named.seq for each in since):
        raise ConfigurationError(f"checkpoint {checkpoint_id} was undone by a rollback; name one that was not")
    return named.seq


async def roll_back(run: Run, failure: Failure, functions: Mapping[str, Callable[..., Any]], bare: Bare) -> None:
    """Undo the steps after the target, the newest first, and make the thread what it was there."""
    try:
        target, state, then = await run.ports.perform(Past(run).at_latest, failure.target)
    except NoWayBack as reason:
        raise Escalated(f"{run.thread_id!r} cannot be rolled back: {reason}") from None
    undone = _undone(run.ledger.journal, then.step_count)
    for number, each in enumerate(undone):
        await _compensate(run, failure, number, each, bare.function(each) or functions.get(each.name))
    draft, leaves = draft_state(state)
    metadata = packed_metadata({TARGET: target, "attempt": failure.attempt})
    entry = RolledBack(then.length, then.step_count, target, run.ports.now())
    waiting = tuple(str(number) for number in then.numbers() if number not in run.ledger.journal.answers)
    intent = Intent(draft=draft, leaves=leaves, cause="error", metadata=metadata, requests=waiting)
    await run.ledger.commit(run.ports, intent, entry)
    details = {"attempt": failure.attempt, "target": target, "compensated": len(undone)}
    await run.ledger.emit("rolled_back", **details)


def _undone(journal: Journal, kept: int) -> list[Compensator]:
    found = [each for each in Memory.of(journal).compensators if each.step >= kept]
    return [each for each in reversed(found) if not each.is_undone(journal.rollbacks)]


async def check_compensated(run: Run, target: int) -> None:
    """`NoWayBack` if a step that a rollback to the target would undo has no compensator, and needs one."""
    _, _, then = await run.ports.perform(Past(run).at_latest, target)
    covered = {each.step for each in _undone(run.ledger.journal, then.step_count)}
    for step in run.steps[then.step_count :]:
        if step.error is None and not step.idempotent and step.index not in covered:
            raise NoWayBack(f"step {step.action!r} (index {step.index}) of {run.thread_id!r} has no compensator")


async def _compensate(
    run: Run, failure: Failure, number: int, each: Compensator, function: Callable[..., Any] | None
) -> None:
    """Call a compensator as a step with an effect: once it is recorded it is never called again."""
    if function is None:
        raise Escalated(
            f"{_step_name(run, each)} is to be undone by {each.name!r}, which this process does not know;"
            f" give the agent compensators={{{each.name!r}: function}} and run it again"
        )
    try:
        key = f"compensate:{failure.attempt}:{number}:{each.name}"
        await run.step(key, function, *each.arguments, effect=True)
    except StepInDoubt as error:
        raise Escalated(
            f"nobody knows whether compensator {each.name!r} undid {_step_name(run, each)}: its end is not recorded;"
            " let it take idempotency_key=, so that it can be called again, and run the agent again"
        ) from error
    except StepFailed as error:
        raise Escalated(f"compensator {each.name!r} of {_step_name(run, each)} did not do it: {error}") from error


def _step_name(run: Run, undone: Compensator) -> str:
    return f"step {run.steps[undone.step].action!r} (index {undone.step}) of {run.thread_id!r}"
