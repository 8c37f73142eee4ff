"""The turns of a session, folded from its journal: results by key, and what they used, each at one look."""

from collections.abc import Iterable
from operator import add
from typing import TYPE_CHECKING

from holdfast.codec import decode
from holdfast.records.times import from_microseconds
from holdfast.records.turn import PICODOLLARS, SessionSummary, Turn, UsageSnapshot, total_usage

if TYPE_CHECKING:
    from holdfast.history.entries import HandedOver, Turned


class Turns:
    """What a thread's turns were, and what they amount to."""

    def __init__(self) -> None:
        self.done: dict[str, Turned] = {}
        """Those that have a key and a result, which is never made again."""
        self.count = 0
        """How many were taken: one that failed and came again under its key is one."""
        self.cost = 0
        """In picodollars."""
        self._used = (0, 0, 0, 0, 0)
        self.taken: set[str] = set()
        """The keys under which turns were taken, whatever came of them."""
        self._every: list[Turned] = []
        self._last: Turned | HandedOver | None = None
        """Says in whose hands it is."""

    def add(self, entry: "Turned") -> "Turned | None":
        """Take in one more. The one in whose place it is, if there was one: in a fork."""
        key, value, cost, taken = entry.key, entry.value, entry.cost, self.taken
        self._last = entry
        before = self.done.get(key) if value else None
        if before is None:
            self._every.append(entry)
            self._used = tuple(map(add, self._used, entry.usage))
            if cost:
                self.cost += cost
        else:
            self._every[self._every.index(before)] = entry
        if not key:
            self.count += 1
            return None
        if key not in taken:
            self.count += 1
            taken.add(key)
        if value:
            self.done[key] = entry
        return before

    def hand_over(self, entry: "HandedOver") -> None:
        """Take in that the session is in other hands."""
        self._last = entry

    @property
    def usage(self) -> UsageSnapshot:
        """What all of them used."""
        return total_usage(self._used)

    @property
    def tokens(self) -> int:
        """How many tokens all of them used."""
        return sum(self._used[:4])

    def listed(self) -> list[Turn]:
        """All of them as users see them, those that failed among them."""
        return [_turn(number, entry) for number, entry in enumerate(self._every, 1)]

    def summary(self, thread_id: str, role: str = "", phase: str = "") -> SessionSummary:
        """What they amount to; in these hands, or by default in those of the last turn or hand-over."""
        last_role, last_phase = (self._last.role, self._last.phase) if self._last is not None else ("", "")
        models = dict.fromkeys(entry.model for entry in self._every if entry.model)
        return SessionSummary(
            thread_id=thread_id,
            role=role or last_role,
            phase=phase or last_phase,
            turn_count=self.count,
            failed_count=sum(not entry.value for entry in self._every),
            usage=self.usage,
            cost_usd=self.cost / PICODOLLARS,
            models={model: _total(entry for entry in self._every if entry.model == model) for model in models},
            unpriced_count=sum(entry.cost is None and bool(entry.value) for entry in self._every),
        )


def _total(entries: "Iterable[Turned]") -> UsageSnapshot:
    return total_usage((0,) * 5, *(entry.usage for entry in entries))


def _turn(number: int, entry: "Turned") -> Turn:
    return Turn(
        number=number,
        idempotency_key=entry.key or None,
        role=entry.role,
        phase=entry.phase,
        model=entry.model or None,
        usage=UsageSnapshot(*entry.usage),
        cost_usd=None if entry.cost is None else entry.cost / PICODOLLARS,
        value=decode(entry.value) if entry.value else None,
        error=error_of(entry),
        ended_at=from_microseconds(entry.at),
        seconds=entry.took / 1e6,
    )


def error_of(entry: "Turned") -> str | None:
    """Why a turn failed; None if it did not."""
    return None if entry.value else f"{entry.type}: {entry.message}"
