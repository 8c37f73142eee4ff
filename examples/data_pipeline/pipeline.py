"""Read documents in parallel, judge what was found, ask a person about the doubtful part, and publish a report.

    python pipeline.py                       # runs until it needs a person; then: python pipeline.py --approve
    python pipeline.py --crash "read tides"  # is killed while it reads; run it again without --crash

Everything that the outside sees is a line in outside.log: the documents that are read, the judge, the publication.
"""

import argparse
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast.sync as holdfast

DOCUMENTS = {
    "growth": ("Giant kelp grows up to 60 cm a day.", 0.95),
    "habitat": ("Kelp forests need cold, clear water and rock to hold on to.", 0.9),
    "storms": ("In storms the holdfast decides whether the kelp survives.", 0.85),
    "tides": ("Kelp sings at spring tide.", 0.2),
}
CRASH_AT = ""


def outside(line: str) -> None:
    """Act on the world: write a line that survives this process, and die there if asked to."""
    with Path("outside.log").open("a") as log:
        log.write(line + "\n")
    if CRASH_AT and line.startswith(CRASH_AT):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Finding:
    document: str
    text: str
    confidence: float


@dataclass
class Doubtful:
    findings: list[Finding]


class Intake(holdfast.Executor):
    """Hands each document to its reader."""

    @holdfast.handler
    def start(self, documents: list[str], ctx: holdfast.WorkflowContext[str]) -> None:
        for document in documents:
            ctx.send_message(document, target_id=f"read {document}")


class Reader(holdfast.Executor):
    """Reads one document. A real one would ask a model."""

    @holdfast.handler
    def read(self, document: str, ctx: holdfast.WorkflowContext[Finding]) -> None:
        outside(f"read {document}")
        ctx.send_message(Finding(document, *DOCUMENTS[document]))


class Judge(holdfast.Executor):
    """Sends what is certain to the report, and the rest to a person."""

    @holdfast.handler
    def judge(self, findings: list[Finding], ctx: holdfast.WorkflowContext[list[Finding] | Doubtful]) -> None:
        outside(f"judge {len(findings)} findings")
        certain = [finding for finding in findings if finding.confidence > 0.5]
        ctx.send_message(certain, target_id="report")
        ctx.send_message(Doubtful([finding for finding in findings if finding not in certain]), target_id="approval")


class Approval(holdfast.Executor):
    """Asks a person whether doubtful findings may be published. The question waits in the store, for days if needed."""

    @holdfast.handler
    def ask(self, doubtful: Doubtful, ctx: holdfast.WorkflowContext[list[Finding]]) -> None:
        if doubtful.findings:
            ctx.request_info(doubtful, bool)
        else:
            ctx.send_message([])

    @holdfast.response_handler
    def decided(self, asked: Doubtful, approved: bool, ctx: holdfast.WorkflowContext[list[Finding]]) -> None:
        ctx.send_message(asked.findings if approved else [])


class Report(holdfast.Executor):
    """Gets the findings of the judge and of the person together. Publishing is a step: once done, it stays done."""

    @holdfast.handler
    def write(self, parts: list[list[Finding]], ctx: holdfast.WorkflowContext[Any, str]) -> None:
        text = " ".join(finding.text for part in parts for finding in part)
        ctx.step("publish", publish, text, effect=True)
        ctx.yield_output(text)


def publish(text: str, idempotency_key: str) -> None:
    """Publish the report, with a key by which the other side knows a repetition."""
    outside(f"publish with key {idempotency_key}: {len(text)} characters")


def pipeline(store: holdfast.Store) -> holdfast.Workflow:
    """Connect the executors."""
    intake, judge, approval, report = Intake("intake"), Judge("judge"), Approval("approval"), Report("report")
    readers = [Reader(f"read {document}") for document in DOCUMENTS]
    return (
        holdfast.WorkflowBuilder(start_executor=intake, store=store, name="data-pipeline")
        .add_fan_out(intake, readers)
        .add_fan_in(readers, judge)
        .add_edge(judge, approval)
        .add_fan_in([judge, approval], report)
        .build()
    )


def main() -> None:
    """Run the pipeline: a new one, or the one that an earlier process left."""
    global CRASH_AT  # noqa: PLW0603  a switch of this program
    parser = argparse.ArgumentParser(description="A workflow that survives kill -9 and waits for a person.")
    parser.add_argument("--crash", default="", metavar="TEXT", help="die at the first line that starts with TEXT")
    parser.add_argument("--store", default="pipeline.db", help="where the workflow is kept")
    parser.add_argument("--approve", action=argparse.BooleanOptionalAction, help="answer the question that waits")
    parser.add_argument("--draw", choices=["mermaid", "svg"], help="print the graph, and do nothing else")
    given = parser.parse_args()
    CRASH_AT = given.crash
    with holdfast.open(given.store) as store:
        workflow = pipeline(store)
        if given.draw:
            print(workflow.draw(given.draw), end="")
            return
        result = workflow.run([*DOCUMENTS], thread_id="kelp")
        if result.requests and given.approve is not None:
            answers = {request.id: given.approve for request in result.requests}
            result = workflow.run(thread_id="kelp", responses=answers)
    for request in result.requests:
        print(f"approve? {[finding.text for finding in request.payload.findings]}")
    for output in result.outputs:
        print(f"published: {output}")


if __name__ == "__main__":
    main()
