"""Changes to a state that wait for the next row, of whatever kind."""

from collections.abc import Mapping
from typing import Any

from holdfast.codec import DEFAULT, Limits, decode
from holdfast.history.cells import Cell, Path
from holdfast.history.state_cells import STATE, TOP_KEYS, Draft, draft_state, join_state


class Changes:
    """Top-level keys to merge into a state, or a whole state to replace it.

    Values are encoded at once: changing an object later does not change what is stored.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self._replacement: Draft | None = None
        self._merged: dict[Any, Draft] = {}

    def merge(self, values: Mapping[Any, Any]) -> None:
        """Replace the values of these top-level keys. Raises `UnstorableValue` for what cannot be stored exactly."""
        self._merged |= {key: draft_state({key: value}, limits=self._limits)[0] for key, value in values.items()}

    def replace(self, state: dict[Any, Any]) -> None:
        """Replace the whole state."""
        self._replacement, self._merged = draft_state(state, limits=self._limits)[0], {}

    def applied(self, cells: Mapping[Path, bytes | Cell]) -> Draft:
        """Return the draft of the state in these cells with the changes made. Cells that did not change are reused.

        A state that is a single cell (a dict with keys other than str, an empty or a very large one) is rebuilt.
        """
        draft = self._replacement
        if draft is None:
            draft = {path: cell for path, cell in cells.items() if path[0] == STATE[0]}
        return self._merged_into(draft)

    def added_to(self, draft: Draft) -> Draft:
        """Return a whole state that was saved after these changes, with their keys merged into it.

        It overrides an earlier replacement. A state that is not a dict stays as it is.
        """
        is_dict = STATE not in draft or type(state_of(draft, self._limits)) is dict
        return self._merged_into(draft) if is_dict else draft

    def _merged_into(self, draft: Draft) -> Draft:
        if STATE in draft or any(STATE in each for each in self._merged.values()):
            return self._rebuilt(draft)
        keys: dict[str, Draft] = {}
        for path, cell in draft.items():
            keys.setdefault(path[1], {})[path] = cell
        keys |= self._merged
        if len(keys) > TOP_KEYS:
            return self._rebuilt(draft)
        return {path: cell for each in keys.values() for path, cell in each.items()}

    def _rebuilt(self, draft: Draft) -> Draft:
        state = state_of(draft, self._limits)
        for each in self._merged.values():
            state |= state_of(each, self._limits)
        return draft_state(state, limits=self._limits)[0]


def state_of(draft: Draft, limits: Limits = DEFAULT) -> Any:
    """Return the state in a draft."""
    encodings = ((path, cell.encoded() if isinstance(cell, Cell) else cell) for path, cell in draft.items())
    return join_state((path, decode(encoded, limits=limits)) for path, encoded in encodings)
