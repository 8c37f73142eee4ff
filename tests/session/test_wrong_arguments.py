"""An argument of a wrong type or value is refused with an error of ours that names it, and nothing is recorded."""

from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import ConfigurationError, HoldfastError, InvalidId, UnstorableValue, sync
from holdfast.sync import ModelPricing, Orchestrator, UsageSnapshot

NOT_A_NUMBER: tuple[Any, ...] = ("1", -1, True, float("nan"), float("inf"), 1e300, 10**16, [])
NOT_AN_INT: tuple[Any, ...] = ("1", -1, True, 1.5, [])
NOT_A_DURATION: tuple[Any, ...] = ("x", -1, True, timedelta(-1), float("nan"))
NOT_A_STR: tuple[Any, ...] = (5, "", b"x", [], "\ud800")


def cases(table: dict[str, tuple[Any, ...]]) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}={value!r}".partition(" object at")[0])
        for name, values in table.items()
        for value in values
    ]


ORCHESTRATOR = {
    "role": (*NOT_A_STR, None),
    "phase": (*NOT_A_STR, None),
    "budget_usd": NOT_A_NUMBER,
    "budget_tokens": NOT_AN_INT,
    "max_turns": NOT_AN_INT,
    "pricing": (5, "model-a", {"model-a": 3}, [ModelPricing(1, 1)]),
    "on_unstorable": ("ignore", None, 5),
    "store": ("talks.db", 5, holdfast.MemoryStore()),
    "lease": (*NOT_A_DURATION, 0, None),
    "wait": NOT_A_DURATION,
}
TURN = {
    "function": (5, "text", None),
    "model": NOT_A_STR,
    "usage": (5, "text", {"input_tokens": 5}),
    "idempotency_key": NOT_A_STR,
    "timeout": NOT_A_DURATION,
    "on_unstorable": ("ignore", 5),
}
NAMES = {"function": "a function to call"}


@pytest.mark.parametrize(("name", "value"), cases(ORCHESTRATOR))
def test_an_orchestrator_names_the_argument_that_is_wrong(name: str, value: Any) -> None:
    right: dict[str, Any] = {"role": "writer", "phase": "draft", "store": sync.MemoryStore()}
    with pytest.raises(ConfigurationError, match=name):
        Orchestrator(**{**right, name: value})


@pytest.mark.parametrize("method", ["run_turn", "run_turn_stream"])
@pytest.mark.parametrize(("name", "value"), cases(TURN))
def test_a_turn_names_the_argument_that_is_wrong(method: str, name: str, value: Any) -> None:
    called: list[None] = []
    with Orchestrator("writer", "draft", sync.MemoryStore()).session("t") as session:
        turn: Any = getattr(session, method)
        with pytest.raises(ConfigurationError, match=NAMES.get(name, name)):
            list(turn(**{"function": lambda: called.append(None), name: value}))
        with pytest.raises(UnstorableValue, match="fingerprint"):
            list(turn(lambda: called.append(None), fingerprint=object()))
        assert (session.turns, called) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"thread_id": ""}, InvalidId, "thread id"),
        ({"thread_id": 5}, InvalidId, "thread id"),
        ({"thread_id": "t", "labels": {"a": 1}}, UnstorableValue, "label"),
    ],
)
def test_a_session_names_the_argument_that_is_wrong(
    arguments: dict[str, Any], error: type[HoldfastError], named: str
) -> None:
    with pytest.raises(error, match=named):
        Orchestrator("writer", "draft", sync.MemoryStore()).session(**arguments)


@pytest.mark.parametrize("name", UsageSnapshot.__struct_fields__)
@pytest.mark.parametrize("value", [*NOT_AN_INT, 2**63])
def test_a_usage_is_made_of_counts(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        UsageSnapshot(**{name: value})


@pytest.mark.parametrize("name", ModelPricing.__struct_fields__)
@pytest.mark.parametrize("value", NOT_A_NUMBER)
def test_a_price_is_a_number(name: str, value: Any) -> None:
    prices: dict[str, Any] = {"input_per_million": 1, "output_per_million": 1, name: value}
    with pytest.raises(ConfigurationError, match=name):
        ModelPricing(**prices)


def test_usages_are_added_to_usages_alone() -> None:
    with pytest.raises(TypeError):
        UsageSnapshot() + 1


def test_an_awaitable_orchestrator_takes_an_awaitable_store() -> None:
    with pytest.raises(ConfigurationError, match=r"must be a store from holdfast\.open"):
        holdfast.Orchestrator("writer", "draft", sync.MemoryStore())  # type: ignore[arg-type]
