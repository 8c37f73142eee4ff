"""What `holdfast show` tells of the thread of a loop."""

from pathlib import Path
from typing import Any

import pytest

from cli.conftest import HOSTILE, Call
from holdfast import sync

PLAN = [f"step {number}" for number in range(9)] + [["kelp", "maps"], HOSTILE, *(f"rest {n}" for n in range(5))]


@pytest.fixture
def stopped(place: Path) -> None:
    """Leave a loop that stopped at its ninth step."""

    def execute(loop: sync.Loop, step: Any) -> Any:
        if step == "step 8":
            raise ConnectionError("the network is down")
        return loop.call("send", step)

    with sync.open(place / "holdfast.db") as store:
        tools = [sync.tool(lambda what: what, name="send", defer=True)]
        loop = sync.Loop("essay", plan=lambda _: PLAN, execute=execute, tools=tools, store=store, thread_id="looped")
        with pytest.raises(ConnectionError):
            loop.drive()


@pytest.mark.usefixtures("stopped")
def test_a_loop_is_shown_with_its_plan_and_cursor(call: Call) -> None:
    shown = call("show", "looped").stdout.splitlines()
    assert 'started   loop("essay")' in shown
    assert "loop      EXECUTING, 8 of 16 steps done" in shown
    assert "plan      ✓ step 3 (… 3 before)" in shown
    at = shown.index("          → step 8")
    assert shown[at - 1] == "          ✓ step 7"
    assert shown[at + 1] == '          · ["kelp", "maps"]'
    assert "\x1b" not in shown[at + 2]
    assert any(line.startswith('deferred  send("step 0"), send("step 1")') for line in shown)
    assert any("REFLECTING → EXECUTING" in line for line in shown)


@pytest.mark.usefixtures("stopped")
def test_a_document_has_the_loop_and_the_transition_of_each_row(document: Any) -> None:
    shown = document("show", "looped")
    assert (shown["loop"]["state"], shown["loop"]["cursor"], len(shown["loop"]["plan"])) == ("EXECUTING", 8, 16)
    newest = shown["checkpoints"][0]["metadata"]
    assert newest == {"transition": {"from": "REFLECTING", "to": "EXECUTING"}, "cursor": 8, "steps": 16}
    assert document("show", "ticket-1")["loop"] is None


@pytest.mark.usefixtures("stopped")
def test_a_loop_is_resumed_by_its_program_and_the_commands_say_so(call: Call, document: Any, place: Path) -> None:
    assert (
        "'looped' is a loop: its program resumes it by Loop.resume"
        in call("resume", "looped", "--app", "shop:refund", code=2).stderr
    )
    with sync.open(place / "holdfast.db") as store:
        store.retry("looped")
    assert document("recover", "--app", "shop")["reasons"]["looped"].startswith("a loop: its program resumes it")
