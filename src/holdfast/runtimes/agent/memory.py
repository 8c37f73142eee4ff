"""What an agent's thread remembers of its attempts: folded from its notes."""

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
"""How the name of the function that a thread runs begins, if an agent runs it."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed attempt, and what was decided about it."""

    attempt: int
    type: str
    error: str
    message: str
    progress: int
    """How many different things had been done."""
    action: dict[str, Any]
    target: int = 0
    """The checkpoint to go back to."""
    rollbacks: int = 0
    """How many rollbacks there were before."""
    due: int = 0
    at: int = 0

    @property
    def failure_type(self) -> FailureType:
        """Its type."""
        return FailureType(self.type)

    @property
    def decision(self) -> RecoveryAction:
        """What was decided."""
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
        """The same as an answer."""
        return Answer(choice=self.choice, value=self.value, by=self.by, comment=self.comment, at=self.at)


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What a part of the work used, as it is noted."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def spent(self) -> Spent:
        """The same, checked, to be added up."""
        usage = UsageSnapshot(input_tokens=self.input_tokens, output_tokens=self.output_tokens)
        return Spent(usage, round(amount(self.cost_usd, "cost_usd") * PICODOLLARS))


class Compensator(msgspec.Struct, frozen=True, kw_only=True):
    """How to undo a step."""

    name: str
    arguments: list[Any]
    step: int
    """The step's index in the trajectory."""
    rollbacks: int
    bare: bool = False
    """True for a function that only its own process knows."""

    def is_undone(self, rollbacks: list[Rollback]) -> bool:
        """True if a rollback since then went past the step."""
        return any(each.kept <= self.step for each in rollbacks[self.rollbacks :])

    def repeats(self, earlier: "Compensator", rollbacks: list[Rollback]) -> bool:
        """True if the same was recorded for the step before, and it is still that step."""
        said = (self.name, self.arguments, self.step, self.bare)
        is_same = said == (earlier.name, earlier.arguments, earlier.step, earlier.bare)
        return is_same and not earlier.is_undone(rollbacks[: self.rollbacks])


class Memory(msgspec.Struct, frozen=True):
    """The notes of a thread, sorted."""

    failures: list[Failure]
    compensators: list[Compensator]
    spent: Spent
    choices: dict[int, Choice]
    """What a person chose, by the attempt that it was about."""
    told: set[int]
    """The attempts whose failure ended a run, and after which there was another."""

    @classmethod
    def of(cls, record: Record) -> "Memory":
        """What a thread's record remembers."""
        record.check_together(record.notes(*_KINDS), "what the agent noted")
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
    """Those of every step, each once, in the order in which they were recorded first."""
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
    """What the attempts of a thread amount to, read without a claim on it."""
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
