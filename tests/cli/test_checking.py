"""`holdfast check`: new code against the open threads, before it is deployed."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Call
from holdfast import sync
from holdfast.runtimes.agent.memory import AGENT


def change(place: Path, old: str, new: str) -> None:
    """Edit the application, as a developer does."""
    text = (place / "shop.py").read_text()
    assert old in text
    (place / "shop.py").write_text(text.replace(old, new))


def test_code_that_was_not_changed_fits(call: Call) -> None:
    assert call("check", "shop").stdout == "1 open thread: 0 differs, 0 unserved, 1 fits\n"


def test_a_step_that_was_renamed_differs_and_the_sentence_says_what_to_do(call: Call, place: Path) -> None:
    change(place, '"find"', '"look"')
    said = call("check", "shop", code=1).stdout
    assert said.startswith("differs  ticket-1: the code comes to step 'look', which is new, and has not asked for ")
    assert "step 'find', which is recorded. Let it end with the code that began it" in said
    assert said.endswith("1 open thread: 1 differs, 0 unserved, 0 fits\n")


def test_a_function_that_is_gone_leaves_its_thread_unserved(document: Callable[..., Any], place: Path) -> None:
    change(place, "def refund", "def reimburse")
    found = document("check", "shop")
    assert (found["differs"], found["unserved"], found["fits"]) == (0, 1, 0)
    (thread,) = found["threads"]
    assert (thread["thread_id"], thread["verdict"], thread["function"]) == ("ticket-1", "unserved", "shop:refund")


def test_nothing_is_written(call: Call, place: Path) -> None:
    before = sha256((place / "holdfast.db").read_bytes()).hexdigest()
    call("check", "shop")
    assert sha256((place / "holdfast.db").read_bytes()).hexdigest() == before


def test_a_replay_that_hangs_is_bounded(call: Call, place: Path) -> None:
    change(place, "    run = holdfast.current()\n", "    import threading\n    threading.Event().wait()\n")
    assert "within 1 s" in call("check", "shop", "--timeout", "1s", code=1).stdout


def test_threads_of_agents_in_the_app_are_not_judged(call: Call, place: Path) -> None:
    agent = "holdfast.Agent(lambda task: task, name='helper')"
    change(place, "store = holdfast.open", f"agent = {agent}\nstore = holdfast.open")
    with sync.open("holdfast.db") as store:
        store.submit(AGENT + "helper", "a-1", (["task"],))
    assert call("check", "shop").stdout == "1 open thread: 0 differs, 0 unserved, 1 fits\n"


@pytest.mark.parametrize("wrong", [[], ["nowhere"], ["shop", "--timeout", "soon"]])
def test_wrong_usage(call: Call, wrong: list[str]) -> None:
    call("check", *wrong, code=2)
