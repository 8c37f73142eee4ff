"""The steps of a thread as users see them. Each value has its own limits, so they are decoded one at a time."""

from collections.abc import Sequence
from typing import overload

from holdfast.codec import decode
from holdfast.codec.limits import Limits, refuse_together
from holdfast.history.entries import AnyEntry, Noted, Recorded, Shown, StepError, encodings_of
from holdfast.records.checkpoint import Step
from holdfast.records.errors import Corrupt


class LazySteps(Sequence[Step]):
    """Recorded steps. Each is decoded at every access and not kept, so a loop over them holds one at a time."""

    def __init__(self, entries: list[tuple[int, Shown]], effects: set[str], limits: Limits) -> None:
        self._entries = entries
        self._effects = effects
        self._limits = limits

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> "LazySteps": ...
    def __getitem__(self, index: int | slice) -> "Step | LazySteps":
        if isinstance(index, slice):
            return LazySteps(self._entries[index], self._effects, self._limits)
        return _read_step(*self._entries[index], self._effects)

    def all(self) -> list[Step]:
        """Return all steps as a list; `LimitExceeded` if they would take too much memory together."""
        encodings = [encoding for _, entry in self._entries for encoding in encodings_of(entry)]
        refuse_together(encodings, self._limits, f"the list of all {len(self)} steps of the thread")
        return list(self)


def check_entry(entry: AnyEntry) -> None:
    """Decode the values in an entry, one at a time; raise `Corrupt` if they do not make a step."""
    if isinstance(entry, Recorded) or (isinstance(entry, Noted) and entry.action):
        _read_step(0, entry, set())
        return
    for encoding in encodings_of(entry):
        decode(encoding)


def _read_step(index: int, entry: Shown, effects: set[str]) -> Step:
    try:
        return _step(index, entry, effects)
    except (AttributeError, TypeError) as error:
        raise Corrupt(f"step {index} of the journal cannot be read: {error}", record="journal") from error


def _step(index: int, entry: Shown, effects: set[str]) -> Step:
    """Return a step. `effects` are the keys of steps that must not be executed twice."""
    if isinstance(entry, Noted):
        return _noted_step(index, entry)
    if isinstance(entry, Recorded):
        return Step(**{**decode(entry.fields), "index": index})
    details = {"key": entry.key, "arguments": entry.arguments} if entry.arguments else {"key": entry.key}
    inputs = decode(entry.inputs) if entry.inputs else None
    if isinstance(entry, StepError):
        error = f"{entry.type}: {entry.message}"
        return Step(index=index, action=entry.name, tool_input=inputs, error=error, metadata=details)
    return Step(
        index=index,
        action=entry.name,
        tool_input=inputs,
        tool_output=decode(entry.value),
        metadata={**details, "seconds": entry.took / 1e6},
        idempotent=entry.key not in effects,
    )


def _noted_step(index: int, entry: Noted) -> Step:
    metadata = {name: value for name, value in decode(entry.content).items() if not name.startswith("_")}
    if entry.value or entry.error:
        metadata |= {"seconds": entry.took / 1e6} | ({"key": entry.key} if entry.key else {})
    value = {entry.field or "tool_output": decode(entry.value)} if entry.value else {}
    error, idempotent = entry.error or None, bool(entry.key)
    return Step(index=index, action=entry.action, error=error, metadata=metadata, idempotent=idempotent, **value)
