"""What the commands tell of the threads of loops and managers, which their own programs resume."""

from pathlib import Path
from typing import Any

import pytest

from cli.conftest import HOSTILE, Call
from holdfast import sync
from holdfast.codec import encode
from holdfast.ports import run_blocking
from holdfast.runs.driver import Driver

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
    said = " ".join(call("doctor", "--no-probe").stdout.split())
    assert "abandoned: looped → Loop.resume in its program resumes them" in said


def test_an_answer_to_a_task_of_a_manager_names_what_resumes_it(call: Call, place: Path) -> None:
    with sync.open(place / "holdfast.db") as store:
        manager = sync.CheckpointManager(sync.CheckpointConfig(enabled=True), store)
        state = sync.ExecutionState("t1", "s", "ana", "shop", agent_name="support")
        with manager.hold("shop", "ana", "s", "t1"):
            manager.hooks.tool_approval_required(state, sync.PendingToolCall(id="1", name="refund", arguments={}))
    advice = "manager.recover or manager.resume in its server"
    said = call("answer", "shop/ana/s/t1", "--value", '"approve"').stdout
    assert f"to resume the thread: {advice}" in said
    doctor = " ".join(call("doctor", "--no-probe").stdout.split())
    assert f"answered, and not run since: shop/ana/s/t1 → {advice} resumes them" in doctor


@pytest.mark.parametrize("function", ["manager:refund", "workflow:refund"])
def test_a_function_in_a_module_that_is_named_like_a_runtime_is_resumed_by_the_command(
    call: Call, place: Path, function: str
) -> None:
    with sync.open(place / "holdfast.db") as store, store.run("t") as run:
        run_blocking(Driver(run._run).start(function, encode([[], {}])))
        run.fail("the network is down")
    assert f"to resume it: holdfast resume t --app {function}" in call("show", "t").stdout
    assert f"runs {function}, not shop:other" in call("resume", "t", "--app", "shop:other", code=4).stderr
