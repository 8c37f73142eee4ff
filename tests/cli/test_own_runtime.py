"""Threads of a runtime that Holdfast does not know: the command line shows them, whatever their arguments are."""

from typing import Any

import pytest

from cli.conftest import Call
from holdfast import sync
from holdfast.codec import encode
from holdfast.ports import run_blocking
from holdfast.runs.driver import Driver, Store, Terms, claim


async def start(store: Store, arguments: Any) -> None:
    async with claim(store, "mine", Terms()) as run:
        await Driver(run).start("checklist", encode(arguments))


@pytest.mark.parametrize("arguments", [["a", "b", "c"], ["a", "b"], 5, None, {"a": 1}, [["a"], ["b"]]])
def test_a_thread_of_a_runtime_of_your_own_is_shown(call: Call, arguments: Any) -> None:
    with sync.open("holdfast.db") as store:
        run_blocking(start(store._store, arguments))
    assert "checklist(" in call("show", "mine").stdout
    assert call("steps", "mine").exit_code == 0


def test_a_thread_that_nothing_importable_started_is_resumed_by_its_program(call: Call) -> None:
    assert "to resume it: run your program again" in call("show", "broken").stdout
