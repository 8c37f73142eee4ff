"""What an agent's thread records about its attempts, read from its notes."""

from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from holdfast.records.arguments import amount
from holdfast.records.failure import AgentSummary, FailureType
from holdfast.records.request import Answer
from holdfast.records.times import from_microseconds
from holdfast.records.usage import PICODOLLARS, Spent, UsageSnapshot
from holdfast.runs.driver import Record, Rollback, Store, read, read_note
from holdfast.runtimes.agent.actions import RecoveryAction

FAILURE, USAGE, COMPENSATOR, ITEM, CHOICE, TOLD = "failure", "usage", "compensator", "item", "choice", "told"
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

    @property
    def spent(self) -> Spent:
        """The usage, checked, in a form that can be summed."""
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
        said = (self.name, self.arguments, self.step, self.bare)
        is_same = said == (earlier.name, earlier.arguments, earlier.step, earlier.bare)
        return is_same and not earlier.is_undone(rollbacks[: self.rollbacks])


class Memory(msgspec.Struct, frozen=True):
    """The notes of a thread, by kind."""

    failures: list[Failure]
    compensators: list[Compensator]
    spent: Spent
    choices: dict[int, Choice]
    """What a person chose, by attempt."""
    told: set[int]
    """The attempts whose failure was already raised to a caller."""

    @classmethod
    def of(cls, record: Record) -> "Memory":
        """Read the notes of a thread."""
        record.check_together(record.notes(*_KINDS), "the notes of the agent")
        choices = [read_note(each, _choice) for each in record.notes(CHOICE)]
        return cls(
            [read_note(each, _failure) for each in record.notes(FAILURE)],
            _compensators(record),
            sum((read_note(each, _spent) for each in record.notes(USAGE)), Spent()),
            {each.attempt: each for each in choices},
            {read_note(each, _attempt) for each in record.notes(TOLD)},
        )


_KINDS = (CHOICE, COMPENSATOR, FAILURE, TOLD, USAGE)
_attempt = partial(msgspec.convert, type=int)
_choice = partial(msgspec.convert, type=Choice)
_compensator = partial(msgspec.convert, type=Compensator)


def _failure(plain: Any) -> Failure:
    failure = msgspec.convert(plain, Failure)
    FailureType(failure.type)
    msgspec.convert(failure.action, RecoveryAction)
    return failure


def _spent(plain: Any) -> Spent:
    return msgspec.convert(plain, Used).spent


def _compensators(record: Record) -> list[Compensator]:
    """Return the compensators of all steps, each once, in the order of their first record."""
    found: list[Compensator] = []
    known: dict[tuple[str, int], list[Compensator]] = {}
    for each in record.notes(COMPENSATOR):
        said = read_note(each, _compensator)
        alike = known.setdefault((said.name, said.step), [])
        if not any(said.repeats(earlier, record.rollbacks) for earlier in alike):
            alike.append(said)
            found.append(said)
    return found


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
