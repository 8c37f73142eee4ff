"""Catching up with rows that others wrote gives exactly what loading the thread anew would give."""

import random
from typing import Any

import pytest

import holdfast.sync as holdfast
from holdfast.stores.memory import MemoryBackend


def edited(chance: random.Random, state: dict[str, Any]) -> dict[str, Any]:
    """A state with one change of a random kind."""
    state = {key: list(value) if isinstance(value, list) else value for key, value in state.items()}
    items = state.setdefault("items", [])
    change = chance.randrange(6)
    if change == 0:
        items.append("x" * chance.choice((3, 300, 5000)))
    elif change == 1 and items:
        items[chance.randrange(len(items))] = chance.choice((1, True, 1.0, "y" * 700))
    elif change == 2:
        chance.shuffle(items)
    elif change == 3:
        state[chance.choice("abc")] = {"nested": chance.random(), "text": "z" * chance.choice((1, 2000))}
    elif change == 4 and len(state) > 1:
        state.pop(next(iter(state)))
    else:
        del items[: chance.randrange(3)]
    return state


@pytest.mark.parametrize("seed", range(12))
def test_a_handle_that_was_overtaken_continues_from_what_is_really_there(seed: int) -> None:
    chance = random.Random(seed)
    backend = MemoryBackend()
    handles = [holdfast.Store(backend), holdfast.Store(backend)]
    state: dict[str, Any] = {"items": []}
    for step in range(60):
        store = chance.choice(handles)
        if chance.random() < 0.4 and isinstance(state.get("items"), list):
            item = [step, "i" * chance.choice((1, 100, 6000))]
            store.append("t", "items", item)
            state = {**state, "items": [*state["items"], item]}
        else:
            state = edited(chance, state)
            store.save("t", state)
        fresh = holdfast.Store(backend).latest("t")
        assert fresh is not None
        assert fresh.state == state
        assert list(fresh.state) == list(state)
    report = handles[0].verify()
    assert report.ok, report.problems
