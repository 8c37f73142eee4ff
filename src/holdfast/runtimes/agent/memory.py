"""What an agent's thread remembers of its attempts: folded from the notes in its journal."""

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.codec import decode, encode
from holdfast.history.entries import Noted, RolledBack
from holdfast.history.journal import Journal
from holdfast.records.failure import AgentSummary, FailureType, Usage
from holdfast.runs.store import Store, tools_of
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


class Compensator(msgspec.Struct, frozen=True, kw_only=True):
    """How to undo a step."""

    name: str
    arguments: list[Any]
    step: int
    """The step's index in the trajectory."""
    rollbacks: int
    bare: bool = False
    """True for a function that only its own process knows."""

    def is_undone(self, rollbacks: list[RolledBack]) -> bool:
        """True if a rollback since then went past the step."""
        return any(each.kept <= self.step for each in rollbacks[self.rollbacks :])

    def repeats(self, earlier: "Compensator", rollbacks: list[RolledBack]) -> bool:
        """True if the same was said of the step before, and it is still that step."""
        said = (self.name, self.arguments, self.step, self.bare)
        is_same = said == (earlier.name, earlier.arguments, earlier.step, earlier.bare)
        return is_same and not earlier.is_undone(rollbacks[: self.rollbacks])


class Memory(msgspec.Struct, frozen=True):
    """The notes of a thread, sorted."""

    failures: list[Failure]
    compensators: list[Compensator]
    usage: Usage
    choices: dict[int, str]
    """What a person chose, by the attempt that it was about."""
    told: set[int]
    """The attempts whose failure ended a run, and after which there was another."""

    @classmethod
    def of(cls, journal: Journal) -> "Memory":
        """What a journal remembers."""
        failures = [msgspec.convert(each, Failure) for each in contents(journal, FAILURE)]
        compensators: list[Compensator] = []
        known: dict[tuple[str, int], list[Compensator]] = {}
        for each in contents(journal, COMPENSATOR):
            said = msgspec.convert(each, Compensator)
            alike = known.setdefault((said.name, said.step), [])
            if not any(said.repeats(earlier, journal.rollbacks) for earlier in alike):
                alike.append(said)
                compensators.append(said)
        choices = {each["attempt"]: each["choice"] for each in contents(journal, CHOICE)}
        return cls(failures, compensators, usage_of(journal), choices, set(contents(journal, TOLD)))


def contents(journal: Journal, kind: str) -> Iterable[Any]:
    """What was noted of one kind, the oldest first."""
    return [decode(note.content) for note in journal.notes if note.kind == kind]


def usage_of(journal: Journal) -> Usage:
    """What was used so far, by all processes."""
    return sum((Usage(**each) for each in contents(journal, USAGE)), Usage())


def note(kind: str, content: Any, now: int) -> Noted:
    """A note to be written."""
    plain = msgspec.structs.asdict(content) if isinstance(content, msgspec.Struct) else content
    return Noted(kind, encode(plain, path=kind), now)


async def read_summary(store: Store, thread_id: str) -> AgentSummary:
    """What the attempts of a thread amount to, read without a claim on it."""
    tools = tools_of(store)
    await tools.open()
    loaded = await tools.ports.perform(tools.reader.load_head, tools.reader.sealing.key(thread_id))
    journal = Journal.of(loaded.log.document)
    memory, started = Memory.of(journal), journal.started.function if journal.started is not None else ""
    return AgentSummary(
        thread_id=thread_id,
        agent=started.removeprefix(AGENT) if started.startswith(AGENT) else "",
        failures=tuple(each.failure_type for each in memory.failures),
        actions=tuple(each.decision.kind for each in memory.failures),
        rollbacks=tuple(each.target for each in journal.rollbacks),
        usage=memory.usage,
    )
