"""What a session's thread remembers of its turns: folded from its notes, each question answered at one look."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import asdict

from holdfast.codec import decode, encode
from holdfast.records.times import from_microseconds
from holdfast.records.turn import SessionSummary, Turn
from holdfast.records.usage import PICODOLLARS, Spent, UsageSnapshot
from holdfast.runs.driver import Note, read_note

TURN, RESERVE, HAND_OVER, VISIT = "turn", "reserve", "hand_over", "visit"


class TurnContent(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"fingerprint": "_fingerprint", "streamed": "_streamed"}
):
    """What the note of a turn says of it. Its result is the note's value."""

    role: str
    phase: str
    model: str = ""
    usage: dict[str, int] = {}
    """What is not zero."""
    cost_usd: float | None = None
    """None if the model has no price."""
    fingerprint: bytes = b""
    """Of what the caller says the turn is about; empty if it says nothing."""
    streamed: bool = False

    @property
    def spent(self) -> Spent:
        """What the turn used, and its price; nothing if that is not known."""
        return Spent(UsageSnapshot(**self.usage), 0 if self.cost_usd is None else round(self.cost_usd * PICODOLLARS))


def used(usage: UsageSnapshot) -> dict[str, int]:
    """A usage as a note keeps it."""
    return {name: count for name, count in asdict(usage).items() if count and name in _FIELDS}


_FIELDS = frozenset(UsageSnapshot.__struct_fields__)
"""What a subclass adds to a usage is its own."""


class Turns:
    """What a thread's turns were, and what they amount to."""

    def __init__(self) -> None:
        self.count = 0
        """How many were taken: one that failed and came again under its key is one."""
        self.spent = Spent()
        self.taken: set[str] = set()
        """The keys under which turns were taken, whatever came of them."""
        self._reserved: dict[str, Spent] = {}
        """What turns that began and did not end may use, by their keys."""
        self._every: dict[int, tuple[Note, TurnContent]] = {}
        self._hands: tuple[str, str] = ("", "")
        """Role and phase of the last turn or hand-over."""

    def add(self, note: Note) -> None:
        """Count one more turn."""
        content, spent = read_note(note, _counted)
        self._hands = (content.role, content.phase)
        if note.value and (replaced := self._with_result(note.key)) is not None:
            self._every[replaced] = (note, content)  # a fork has another result in its place
            return
        self._every[len(self._every)] = (note, content)
        self.spent += spent
        self._reserved.pop(note.key, None)
        if not note.key or note.key not in self.taken:
            self.count += 1
        if note.key:
            self.taken.add(note.key)

    def _with_result(self, key: str) -> int | None:
        if not key or key not in self.taken:
            return None
        return next((at for at, (note, _) in self._every.items() if note.key == key and note.value), None)

    def reserve(self, note: Note) -> None:
        """A turn is about to begin that may use this much."""
        self.hold(note.key, read_note(note, _reservation))

    def hold(self, key: str, spent: Spent) -> None:
        """Count this much for a turn until it ends."""
        self._reserved[key] = spent

    def reserved(self, key: str) -> Spent:
        """What turns other than this one may still use: they began, and did not end."""
        if not self._reserved:
            return _NOTHING
        return sum([spent for name, spent in tuple(self._reserved.items()) if name != key], Spent())

    def hand_over(self, note: Note) -> None:
        """The session is in other hands."""
        self._hands = read_note(note, _hands)

    def listed(self) -> list[Turn]:
        """All of them as users see them, those that failed among them."""
        return [_turn(number, *each) for number, each in enumerate(self._every.values(), 1)]

    def summary(self, thread_id: str, role: str = "", phase: str = "") -> SessionSummary:
        """What they amount to; in these hands, or by default in those of the last turn or hand-over."""
        every = list(self._every.values())
        models = dict.fromkeys(content.model for _, content in every if content.model)
        return SessionSummary(
            thread_id=thread_id,
            role=role or self._hands[0],
            phase=phase or self._hands[1],
            turn_count=self.count,
            failed_count=sum(not note.value for note, _ in every),
            usage=self.spent.usage,
            cost_usd=self.spent.cost_usd,
            models={model: _total(each for _, each in every if each.model == model) for model in models},
            unpriced_count=sum(content.cost_usd is None and bool(note.value) for note, content in every),
        )


_NOTHING = Spent()


def content_of(note: Note) -> TurnContent:
    """What the note of a turn says."""
    return read_note(note, _counted)[0]


def _counted(plain: Any) -> tuple[TurnContent, Spent]:
    content = msgspec.convert(plain, TurnContent)
    return content, content.spent


def _reservation(plain: Any) -> Spent:
    usage, cost = msgspec.convert(plain, tuple[dict[str, int], int])
    return Spent(UsageSnapshot(**usage), cost)


def _hands(plain: Any) -> tuple[str, str]:
    content = msgspec.convert(plain, dict[str, str])
    return content["role"], content["phase"]


def packed_content(content: TurnContent) -> bytes:
    """The content of a turn's note."""
    plain: dict[str, Any] = msgspec.to_builtins(content, builtin_types=(bytes,))
    return encode(plain)


def _total(contents: Iterable[TurnContent]) -> UsageSnapshot:
    return sum((content.spent for content in contents), Spent()).usage


def _turn(number: int, note: Note, content: TurnContent) -> Turn:
    return Turn(
        number=number,
        idempotency_key=note.key or None,
        role=content.role,
        phase=content.phase,
        model=content.model or None,
        usage=content.spent.usage,
        cost_usd=content.cost_usd,
        value=decode(note.value) if note.value else None,
        error=note.error or None,
        ended_at=from_microseconds(note.at),
        seconds=note.took / 1e6,
    )
