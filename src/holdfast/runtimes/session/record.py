"""What a session's thread records about its turns: counters kept while its notes are read."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from holdfast.codec import decode
from holdfast.records.arguments import LARGEST_COUNT
from holdfast.records.errors import Corrupt
from holdfast.records.times import from_microseconds
from holdfast.records.turn import SessionSummary, Turn
from holdfast.records.usage import PICODOLLARS, Spent, UsageSnapshot
from holdfast.runs.driver import Note, Record, read_note

TURN, RESERVE, HAND_OVER, VISIT = "turn", "reserve", "hand_over", "visit"


class TurnContent(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={"fingerprint": "_fingerprint", "streamed": "_streamed"},
):
    """The content of a turn's note. The result is the note's value."""

    role: str
    phase: str
    model: str = ""
    usage: dict[str, Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]] = {}
    """The counts that are not zero."""
    cost_usd: float | None = None
    """None if the model has no price."""
    fingerprint: bytes = b""
    """The digest of the caller's `fingerprint`; empty without one."""
    streamed: bool = False


packed_content: Callable[[TurnContent], bytes] = msgspec.msgpack.Encoder().encode
"""Encode the content of a turn's note: plain values only, so the bytes equal the codec's encoding of a dict."""
_read = msgspec.msgpack.Decoder(TurnContent).decode
_FIELDS = frozenset(UsageSnapshot.__struct_fields__)
"""The fields that are stored; fields that a subclass adds are not."""


def content_of(note: Note) -> TurnContent:
    """Decode the content of a turn's note, or raise `Corrupt`."""
    try:
        content = _read(note.content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"a note of kind {TURN!r} cannot be read: {error}", record="journal") from error
    has_cost = content.cost_usd is None or 0 <= content.cost_usd < inf  # also refuses what is not a number
    if not (has_cost and _FIELDS.issuperset(content.usage)):
        raise Corrupt(f"a note of kind {TURN!r} cannot be read: {content}", record="journal")
    return content


def used(usage: UsageSnapshot) -> dict[str, int]:
    """Return a usage in the form a note stores."""
    return {name: count for name, count in asdict(usage).items() if count and name in _FIELDS}


class Turns:
    """The turns of a thread, and their totals."""

    def __init__(self) -> None:
        self.count = 0
        """The count of turns; one that failed and was repeated under its key counts once."""
        self.cost = 0
        """In picodollars."""
        self.tokens = 0
        self._used: dict[str, int] = {}
        self.taken: set[str] = set()
        """The keys of all turns, failed ones included."""
        self.unfinished: dict[str, Spent] = {}
        """The reserves of turns that started and did not end, by key."""
        self._every: list[Note] = []
        self._speaker: tuple[str, str] = ("", "")
        """Role and phase of the last turn or hand-over."""

    @property
    def usage(self) -> UsageSnapshot:
        """The total usage."""
        return _usage(self._used)

    @property
    def cost_usd(self) -> float:
        """The total cost; turns without a price count as zero."""
        return self.cost / PICODOLLARS

    def add(self, note: Note) -> None:
        """Count one more turn."""
        content, key = content_of(note), note.key
        self._speaker = (content.role, content.phase)
        if note.value and key in self.taken and (replaced := self._with_result(key)) is not None:
            self._every[replaced] = note  # a fork replaced the result
            return
        self._every.append(note)
        for name, count in content.usage.items():
            self._used[name] = self._used.get(name, 0) + count
            if name != "tool_calls":
                self.tokens += count
        if content.cost_usd:
            self.cost += round(content.cost_usd * PICODOLLARS)
        self.unfinished.pop(key, None)
        if not key or key not in self.taken:
            self.count += 1
        if key:
            self.taken.add(key)

    def _with_result(self, key: str) -> int | None:
        return next((at for at, note in enumerate(self._every) if note.key == key and note.value), None)

    def reserve(self, note: Note) -> None:
        """Count the reserve that this note records."""
        self.hold(note.key, read_note(note, _reservation))

    def hold(self, key: str, spent: Spent) -> None:
        """Count a reserve until its turn ends."""
        self.unfinished[key] = spent

    def reserved(self, key: str) -> Spent | None:
        """Return the sum of the reserves of other turns; None if there are none."""
        others = [spent for name, spent in tuple(self.unfinished.items()) if name != key]
        return sum(others, Spent()) if others else None

    def hand_over(self, note: Note) -> None:
        """Count a hand-over."""
        self._speaker = read_note(note, _role_and_phase)

    def listed(self, record: Record) -> list[Turn]:
        """Return all turns as records, failed ones included."""
        record.check_together(self._every, f"the list of all {len(self._every)} turns of the thread")
        return [_turn(number, note, content_of(note)) for number, note in enumerate(self._every, 1)]

    def summary(self, thread_id: str, role: str = "", phase: str = "") -> SessionSummary:
        """Return the totals, with this role and phase, or those of the last turn or hand-over."""
        every = [(note, content_of(note)) for note in self._every]
        models = dict.fromkeys(content.model for _, content in every if content.model)
        return SessionSummary(
            thread_id=thread_id,
            role=role or self._speaker[0],
            phase=phase or self._speaker[1],
            turn_count=self.count,
            failed_count=sum(not note.value for note, _ in every),
            usage=self.usage,
            cost_usd=self.cost_usd,
            models={model: _total(each for _, each in every if each.model == model) for model in models},
            unpriced_count=sum(content.cost_usd is None and bool(note.value) for note, content in every),
        )


def _reservation(plain: Any) -> Spent:
    usage, cost = msgspec.convert(plain, tuple[dict[str, int], int])
    return Spent(UsageSnapshot(**usage), cost)


def _role_and_phase(plain: Any) -> tuple[str, str]:
    content = msgspec.convert(plain, dict[str, str])
    return content["role"], content["phase"]


def _total(contents: Iterable[TurnContent]) -> UsageSnapshot:
    return _usage(sum((Counter(content.usage) for content in contents), Counter[str]()))


def _usage(counts: Mapping[str, int]) -> UsageSnapshot:
    """Sum counts into a usage; a sum beyond the largest count becomes the largest."""
    return UsageSnapshot(**{name: min(count, LARGEST_COUNT) for name, count in counts.items()})


def _turn(number: int, note: Note, content: TurnContent) -> Turn:
    return Turn(
        number=number,
        idempotency_key=note.key or None,
        role=content.role,
        phase=content.phase,
        model=content.model or None,
        usage=UsageSnapshot(**content.usage),
        cost_usd=content.cost_usd,
        value=decode(note.value) if note.value else None,
        error=note.error or None,
        ended_at=from_microseconds(note.at),
        seconds=note.took / 1e6,
    )
