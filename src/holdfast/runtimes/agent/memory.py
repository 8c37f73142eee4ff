"""What an agent's thread records about its attempts, read from its notes."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from holdfast.records.arguments import amount
from holdfast.records.failure import AgentSummary, FailureType
from holdfast.records.request import Answer
from holdfast.records.times import from_microseconds
from holdfast.records.usage import PICODOLLARS, Budget, Spent, UsageSnapshot
from holdfast.runs.driver import Note, Record, Rollback, Store, read, read_note
from holdfast.runtimes.agent.actions import RecoveryAction

FAILURE, USAGE, COMPENSATOR, ITEM, CHOICE = "failure", "usage", "compensator", "item", "choice"
RAISED = "told"
"""The kind of note for a failure that was raised to a caller."""
AGENT = "agent "
"""The prefix of the recorded function name of threads that an agent runs."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attempt, and the decision about it."""

    attempt: int
    type: str
    error: str
    message: str
    progress: int
    """The count of distinct actions done so far."""
    action: dict[str, Any]
    target: int = 0
    """The checkpoint that a rollback restores."""
    rollbacks: int = 0
    """The count of earlier rollbacks."""
    due: int = 0
    at: int = 0

    @property
    def failure_type(self) -> FailureType:
        """The type of the failure."""
        return FailureType(self.type)

    @property
    def decision(self) -> RecoveryAction:
        """The action that was decided."""
        return msgspec.convert(self.action, RecoveryAction)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person chose about a failure."""

    attempt: int
    choice: str
    value: Any = None
    by: str = ""
    comment: str = ""
    at: datetime = from_microseconds(0)

    @property
    def answer(self) -> Answer:
        """The choice as an `Answer`."""
        return Answer(choice=self.choice, value=self.value, by=self.by, comment=self.comment, at=self.at)


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """Usage as it is recorded in a note."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def spent(self) -> Spent:
        """Return the usage in a form that can be summed; `ConfigurationError` if a value is invalid."""
        usage = UsageSnapshot(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        return Spent(usage, round(amount(self.cost_usd, "cost_usd") * PICODOLLARS))


class Compensator(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded way to undo a step."""

    name: str
    arguments: list[Any]
    step: int
    """The step's index in the trajectory."""
    rollbacks: int
    bare: bool = False
    """True for a function that only one process has."""

    def is_undone(self, rollbacks: list[Rollback]) -> bool:
        """True if a later rollback removed the step."""
        return any(each.kept <= self.step for each in rollbacks[self.rollbacks :])

    def repeats(self, earlier: "Compensator", rollbacks: list[Rollback]) -> bool:
        """True if the same compensator was already recorded for this step, and no rollback removed it since."""
        content = (self.name, self.arguments, self.step, self.bare)
        is_same = content == (earlier.name, earlier.arguments, earlier.step, earlier.bare)
        return is_same and not earlier.is_undone(rollbacks[: self.rollbacks])


class Memory:
    """What an agent's thread records about its attempts, kept while its notes are read."""

    def __init__(self, record: Record) -> None:
        record.check_together(record.notes(CHOICE, COMPENSATOR, FAILURE, RAISED, USAGE), "the notes of the agent")
        self._record = record
        self.failures: list[Failure] = []
        self.choices: dict[int, Choice] = {}
        """What a person chose, by attempt."""
        self.raised: set[int] = set()
        """The attempts whose failure was already raised to a caller."""
        self.spent = Spent()
        self.item_count = 0
        """The count of items that were delivered to the consumer of a stream."""
        self.followers: dict[str, Callable[[Note], None]] = {
            FAILURE: self._add_failure,
            CHOICE: self._add_choice,
            RAISED: self._add_raised,
            USAGE: self._add_usage,
            ITEM: self._count_item,
        }
        """What to call with each note, by kind: see `Driver.follow`."""
        self.compensators()  # raises `Corrupt` now, not in the middle of a rollback

    @classmethod
    def of(cls, record: Record) -> "Memory":
        """Read the notes of a thread that is not claimed."""
        memory = cls(record)
        for note in record.notes(*memory.followers):
            memory.followers[note.kind](note)
        return memory

    def exceeded(self, budget: Budget) -> str:
        """Return which limit the usage exceeds; empty if none."""
        return budget.exceeded(self.spent.cost, self.spent.usage.tokens)

    def compensators(self) -> list[Compensator]:
        """Return the compensators of all steps, each once, in the order of their first record.

        Every call decodes them again: a compensator may change its arguments.
        """
        found: list[Compensator] = []
        known: dict[tuple[str, int], list[Compensator]] = {}
        for note in self._record.notes(COMPENSATOR):
            each = read_note(note, partial(msgspec.convert, type=Compensator))
            alike = known.setdefault((each.name, each.step), [])
            if not any(each.repeats(earlier, self._record.rollbacks) for earlier in alike):
                alike.append(each)
                found.append(each)
        return found

    def _add_failure(self, note: Note) -> None:
        self.failures.append(read_note(note, _failure))

    def _add_choice(self, note: Note) -> None:
        choice = read_note(note, partial(msgspec.convert, type=Choice))
        self.choices[choice.attempt] = choice

    def _add_raised(self, note: Note) -> None:
        self.raised.add(read_note(note, partial(msgspec.convert, type=int)))

    def _add_usage(self, note: Note) -> None:
        self.spent += read_note(note, lambda plain: msgspec.convert(plain, Used).spent())

    def _count_item(self, _note: Note) -> None:
        self.item_count += 1


def _failure(plain: Any) -> Failure:
    failure = msgspec.convert(plain, Failure)
    FailureType(failure.type)
    msgspec.convert(failure.action, RecoveryAction)
    return failure


async def read_summary(store: Store, thread_id: str) -> AgentSummary:
    """Summarise the attempts of a thread without claiming it."""
    record = await read(store, thread_id)
    memory, started = Memory.of(record), record.started.function if record.started is not None else ""
    return AgentSummary(
        thread_id=thread_id,
        agent=started.removeprefix(AGENT) if started.startswith(AGENT) else "",
        failures=tuple(each.failure_type for each in memory.failures),
        actions=tuple(each.decision.kind for each in memory.failures),
        rollbacks=tuple(each.target for each in record.rollbacks),
        usage=memory.spent.usage,
        cost_usd=memory.spent.cost_usd,
    )
