"""What `holdfast show` tells of the thread of a workflow."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import HOSTILE, Call
from holdfast import sync
from holdfast.cli.output import printable
from holdfast.runs.durable import registry
from holdfast.sync import Executor, WorkflowContext, handler, response_handler


class Count(Executor):
    @handler
    def take(self, number: int, ctx: WorkflowContext[int]) -> None:
        if self.id == "b":
            raise ConnectionError("the network is down")
        ctx.send_message(max(number - 1, 0))


class Ask(Executor):
    @handler
    def take(self, numbers: list[int], ctx: WorkflowContext[Any, bool]) -> None: ...

    @handler
    def ask(self, number: int, ctx: WorkflowContext[Any, bool]) -> None:
        ctx.request_info(number, bool)

    @response_handler
    def answered(self, request: int, response: bool, ctx: WorkflowContext[Any, bool]) -> None:
        ctx.yield_output(response)


@pytest.fixture
def stopped(place: Path) -> None:
    """Leave a workflow that failed in its second superstep, and one that waits."""
    start, pair, end = Count("start"), [Count("a"), Count("b")], Ask(HOSTILE)
    with sync.open(place / "holdfast.db") as store:
        flow = sync.WorkflowBuilder(start, store, name="pairs").add_fan_out(start, pair).add_fan_in(pair, end).build()
        with pytest.raises(sync.ExecutorFailed):
            flow.run(5, thread_id="flowed")
        asking = sync.WorkflowBuilder(Ask("ask"), store, name="asking").build()
        asking.run(5, thread_id="asked")
    registry.clear()  # the command line is another program


@pytest.mark.usefixtures("stopped")
def test_a_workflow_is_shown_with_its_executors(call: Call) -> None:
    shown = call("show", "flowed").stdout.splitlines()
    assert "started   workflow pairs(5)" in shown
    assert "workflow  pairs, 1 superstep done, 0 outputs" in shown
    at = shown.index("graph     ✓ start")
    assert shown[at + 1 : at + 3] == ["          ✓ a", "          → b, failed 1 time"]
    assert shown[at + 3] == f"          · {printable(HOSTILE)}"
    waiting = call("show", "asked").stdout.splitlines()
    assert "graph     ? ask, waits for a response" in waiting


@pytest.mark.usefixtures("stopped")
def test_a_document_has_the_workflow_with_its_graph(document: Any) -> None:
    shown = document("show", "flowed")["workflow"]
    assert (shown["name"], shown["supersteps"], shown["next"]) == ("pairs", 1, ["b"])
    assert shown["failures"] == {"b": 1}
    assert [edge[0] for edge in shown["graph"]["edges"]] == ["fan_in", "fan_out"]
    assert document("show", "ticket-1")["workflow"] is None
    rows = document("show", "flowed", "--journal")["checkpoints"]
    assert {"superstep": 2, "executor": "a"} in [row["metadata"] for row in rows]


class Weigh(Executor):
    @handler
    def ask(self, number: int, ctx: WorkflowContext[Any, float]) -> None:
        ctx.request_info(number, float)

    @response_handler
    def answered(self, request: int, response: float, ctx: WorkflowContext[Any, float]) -> None:
        ctx.yield_output(response)


def test_an_answer_of_another_type_is_refused_at_the_command_line(call: Call, place: Path) -> None:
    with sync.open(place / "holdfast.db") as store:
        flow = sync.WorkflowBuilder(Weigh("weigh"), store, name="weighing").build()
        (request,) = flow.run(5, thread_id="weighed").requests
    refused = call("answer", request.id, "--value", '"heavy"', code=2)
    assert "takes a value of type float, not 'heavy'" in refused.stderr
    call("answer", request.id, "--value", "2.5")
    with sync.open(place / "holdfast.db") as store:
        flow = sync.WorkflowBuilder(Weigh("weigh"), store, name="weighing").build()
        assert flow.run(thread_id="weighed").outputs == [2.5]


VERDICTS = """
from dataclasses import dataclass
import holdfast.sync as holdfast

@dataclass
class Verdict:
    approved: bool
    limit: int = 5

class Judge(holdfast.Executor):
    @holdfast.handler
    def ask(self, number: int, ctx: holdfast.WorkflowContext[None, str]) -> None:
        ctx.request_info(number, Verdict)

    @holdfast.response_handler
    def answered(self, request: int, response: Verdict, ctx: holdfast.WorkflowContext[None, str]) -> None:
        ctx.yield_output(repr(response))

if __name__ == "__main__":
    with holdfast.open("holdfast.db") as store:
        flow = holdfast.WorkflowBuilder(Judge("judge"), store, name="judging").build()
        print(flow.run(5, thread_id="judged").outputs)
"""


def test_a_request_for_an_object_says_its_fields_and_is_answered_with_the_module_of_its_class(
    call: Call, document: Any, place: Path
) -> None:
    def program() -> str:
        return subprocess.run(
            [sys.executable, "verdicts.py"], cwd=place, capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()

    (place / "verdicts.py").write_text(VERDICTS)
    assert program() == "[]"
    (request,) = [each for each in document("requests") if each["thread_id"] == "judged"]
    assert request["takes"] == "Verdict(approved: bool, limit: int)"
    for shown in call("requests"), call("show", "judged"):
        assert "  takes    Verdict(approved: bool, limit: int)" in shown.stdout.splitlines()
    refused = call("answer", "judged", "yes", code=2).stderr
    assert "it takes Verdict(approved: bool, limit: int): holdfast answer" in refused
    assert "--value JSON" in refused
    unknown = call("answer", "judged", "--value", '{"approved": true}', code=2).stderr
    assert "(here: --app MODULE names the module)" in unknown
    call("answer", "judged", "--value", '{"approved": true}', "--app", "verdicts")
    assert program() == "['Verdict(approved=True, limit=5)']"


@pytest.mark.usefixtures("stopped")
def test_a_request_of_a_workflow_is_approved_at_the_command_line(call: Call, document: Any, place: Path) -> None:
    (request,) = [each for each in document("requests") if each["thread_id"] == "asked"]
    assert (
        "to resume the thread: workflow.run(thread_id='asked') in its program" in call("approve", request["id"]).stdout
    )
    reason = "a workflow: its program resumes it by workflow.run(thread_id='asked')"
    assert document("recover", "--app", "shop")["reasons"]["asked"] == reason
    with sync.open(place / "holdfast.db") as store:
        assert sync.WorkflowBuilder(Ask("ask"), store, name="asking").build().run(thread_id="asked").outputs == [True]


def test_a_workflow_that_the_module_builds_is_recovered(call: Call, document: Any, place: Path) -> None:
    (place / "flows.py").write_text(
        """
import holdfast.sync as holdfast

class Double(holdfast.Executor):
    @holdfast.handler
    def take(self, number: int, ctx: holdfast.WorkflowContext[int, int]) -> None:
        ctx.yield_output(2 * number)

flow = holdfast.WorkflowBuilder(Double("double"), name="doubling").build()
"""
    )
    with sync.open(place / "holdfast.db") as store:
        store.submit("workflow doubling", "t", (4,))
        store.submit("workflow unknown", "u", (4,))
    report = document("recover", "--app", "flows")
    assert (report["completed"], list(report["reasons"])) == (["t"], ["u"])
    assert call("result", "t").stdout.split() == ["[", "8", "]"]
