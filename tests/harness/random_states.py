"""Random states, and random edits of the kind that agents make, and of the kind that break delta encodings."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

WORDS = ("plan", "search", "answer", "ünïcode", "tool\0call", "", "x" * 40)
LONGEST = 9000


class States:
    """A source of states; the same seed gives the same ones."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._edits: tuple[Callable[[dict[str, Any]], None], ...] = (
            self._append,
            self._append,
            self._append,
            self._append_many,
            self._insert,
            self._remove,
            self._change_item,
            self._shuffle,
            self._move,
            self._replace,
            self._replace,
            self._splice_text,
            self._flip_type,
            self._add_key,
            self._drop_key,
            self._reorder_keys,
            self._nest,
            self._rewrite,
        )

    def leaf(self) -> Any:
        """A value without parts."""
        random = self.random
        choices: tuple[Callable[[], Any], ...] = (
            lambda: random.choice((None, True, False, 0, 1, -1, 1.0, 0.0, -0.0, 127, 128, 2**63, -(2**70))),
            lambda: random.choice((float("inf"), float("nan"), 1e-300, 0.1)),
            lambda: random.choice(WORDS),
            lambda: self.text(random.choice((5, 80, 500))),
            lambda: self.text(random.choice((50, 3000, LONGEST))),
            lambda: random.randbytes(random.choice((0, 3, 600))),
            lambda: random.choice((Decimal("1.10"), UUID(int=5), date(2026, 2, 28), timedelta(microseconds=-7))),
            lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=random.randrange(10**6)),
        )
        return random.choice(choices)()

    def text(self, length: int) -> str:
        """Text that repeats in parts, so that it can be compressed, and looks alike in many places."""
        word = self.random.choice(("step ", "käse", f"message {self.random.randrange(10**6)} "))
        return (word * (length // len(word) + 1))[:length]

    def item(self) -> Any:
        """What a list of an agent's state holds: mostly messages."""
        if self.random.random() < 0.7:
            return {
                "role": self.random.choice(("user", "assistant")),
                "content": self.text(self.random.choice((20, 300))),
                "n": self.leaf(),
            }
        return self.value(2)

    def value(self, depth: int = 0) -> Any:
        """Any value, nested a little."""
        random = self.random
        kind = random.randrange(10)
        if depth > 2 or kind < 5:
            return self.leaf()
        size = random.choice((0, 1, 2, 5))
        if kind == 5:
            return [self.value(depth + 1) for _ in range(size)]
        if kind == 6:
            return {f"k{number}": self.value(depth + 1) for number in range(size)}
        if kind == 7:
            return tuple(self.value(depth + 1) for _ in range(size))
        if kind == 8:
            return {number if number % 2 else (number, "t"): self.value(depth + 1) for number in range(size)}
        return random.choice((set, frozenset))(random.sample(range(100), size))

    def fresh(self) -> Any:
        """A whole state: nearly always a dict with a list of messages, sometimes anything at all."""
        if self.random.random() < 0.04:
            return self.value()
        state: dict[str, Any] = {"messages": [self.item() for _ in range(self.random.choice((0, 1, 4, 30)))]}
        for number in range(self.random.choice((0, 1, 3, 8))):
            state[f"field {number}"] = self.value()
        if self.random.random() < 0.2:
            state["wide"] = {f"key {number}": self.leaf() for number in range(self.random.choice((1, 63, 64, 65)))}
        return state

    def edit(self, state: Any) -> Any:
        """The state after one to three edits: the same object changed in place where it is a dict, else a new one."""
        if type(state) is not dict or not state or self.random.random() < 0.02:
            return self.fresh()
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self.random.choice(self._edits)(state)
        return state

    # Edits, in place

    def _list(self, state: dict[str, Any]) -> list[Any]:
        found = [value for value in state.values() if type(value) is list]
        if not found:
            return state.setdefault("list", []) if type(state.get("list", [])) is list else []
        return self.random.choice(found)

    def _append(self, state: dict[str, Any]) -> None:
        self._list(state).append(self.item())

    def _append_many(self, state: dict[str, Any]) -> None:
        self._list(state).extend(self.item() for _ in range(self.random.choice((2, 10, 40))))

    def _insert(self, state: dict[str, Any]) -> None:
        items = self._list(state)
        items.insert(self.random.randrange(len(items) + 1), self.item())

    def _remove(self, state: dict[str, Any]) -> None:
        items = self._list(state)
        start = self.random.randrange(len(items) + 1)
        del items[start : start + self.random.choice((1, 1, 5, 100))]

    def _change_item(self, state: dict[str, Any]) -> None:
        items = self._list(state)
        if items:
            items[self.random.randrange(len(items))] = self.item()

    def _shuffle(self, state: dict[str, Any]) -> None:
        self.random.shuffle(self._list(state))

    def _move(self, state: dict[str, Any]) -> None:
        items = self._list(state)
        if items:
            items.append(items.pop(0))

    def _key(self, state: dict[str, Any]) -> str:
        return self.random.choice(list(state))

    def _replace(self, state: dict[str, Any]) -> None:
        state[self._key(state)] = self.value()

    def _splice_text(self, state: dict[str, Any]) -> None:
        name = self._key(state)
        text = state[name] if type(state[name]) is str else self.text(LONGEST)
        at = self.random.randrange(len(text) + 1)
        state[name] = text[:at] + self.random.choice(WORDS) + text[at + self.random.choice((0, 1, 7)) :]

    def _flip_type(self, state: dict[str, Any]) -> None:
        name = self._key(state)
        flips: dict[type, Callable[[Any], Any]] = {bool: int, int: float, float: bool, list: tuple, tuple: list}
        flip = flips.get(type(state[name]))
        state[name] = 1 if flip is None else flip(state[name])

    def _add_key(self, state: dict[str, Any]) -> None:
        state[self.random.choice((*WORDS, f"new {self.random.randrange(20)}"))] = self.value()

    def _drop_key(self, state: dict[str, Any]) -> None:
        del state[self._key(state)]
        state.setdefault("never empty", 0)

    def _reorder_keys(self, state: dict[str, Any]) -> None:
        name = self._key(state)
        state[name] = state.pop(name)

    def _nest(self, state: dict[str, Any]) -> None:
        name = self._key(state)
        inner = state[name]
        state[name] = {"inner": inner} if type(inner) is not dict or not inner else next(iter(inner.values()))

    def _rewrite(self, state: dict[str, Any]) -> None:
        state[self._key(state)] = [self.item() for _ in range(self.random.choice((3, 60)))]
