"""A workflow with a sub-workflow, shared state and a request."""

import operator
from dataclasses import dataclass
from typing import Any

import holdfast.sync as holdfast


@dataclass
class Draft:
    """What executors send each other."""

    words: list[str]


class Writer(holdfast.Executor):
    """Collects words until it has three."""

    def __init__(self, id: str) -> None:  # noqa: A002  as in Executor
        super().__init__(id=id)
        self.words: list[str] = []

    @holdfast.handler
    def write(self, word: str, ctx: holdfast.WorkflowContext[str | Draft]) -> None:
        """Take one word."""
        self.words.append(ctx.step("polish", str.upper, word))
        ctx.update_state("count", 1)
        if len(self.words) < 3:
            ctx.send_message(f"{word}!", target_id=self.id)
        else:
            ctx.send_message(Draft(self.words))

    def on_checkpoint_save(self) -> dict[str, Any]:
        return {"words": self.words}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.words = state["words"]


class Editor(holdfast.Executor):
    """Asks a person."""

    @holdfast.handler
    def check(self, draft: Draft, ctx: holdfast.WorkflowContext[None, str]) -> None:
        """Take a draft."""
        ctx.request_info(draft, bool)

    @holdfast.response_handler
    def checked(self, request: Draft, response: bool, ctx: holdfast.WorkflowContext[None, str]) -> None:
        """Take the answer."""
        ctx.yield_output(f"{' '.join(request.words)}: {response}, {ctx.get_state('count')}")


@holdfast.executor(id="start")
def start(text: str, ctx: holdfast.WorkflowContext[str]) -> None:
    """Take the input."""
    ctx.send_message(text)


def is_text(message: object) -> bool:
    """Tell words from drafts."""
    return isinstance(message, str)


def build(store: holdfast.Store) -> holdfast.Workflow:
    """Connect the executors."""
    writer, editor = Writer("writer"), Editor("editor")
    inner = holdfast.WorkflowBuilder(start, store, name="inner").add_edge(start, end).build()
    sub = holdfast.WorkflowExecutor(inner, id="sub")
    builder = holdfast.WorkflowBuilder(sub, store=store, name="essay", reducers={"count": operator.add})
    return builder.add_edge(sub, writer).add_edge(writer, writer, condition=is_text).add_edge(writer, editor).build()


@holdfast.executor
def end(text: str, ctx: holdfast.WorkflowContext[None, str]) -> None:
    """Yield what comes."""
    ctx.yield_output(text)


def main() -> None:
    with holdfast.MemoryStore() as store:
        workflow = build(store)
        waiting = workflow.run("kelp", thread_id="t")
        assert waiting.status is holdfast.Status.INPUT_REQUIRED
        answers = {request.id: True for request in waiting.requests}
        stream = workflow.run(thread_id="t", responses=answers, stream=True)
        seen = [event.type for event in stream]
        assert seen[-1] == "status"
        result: holdfast.WorkflowResult = stream.result()
        assert result.get_outputs() == ["KELP KELP! KELP!!: True, 3"]
        latest: holdfast.WorkflowCheckpoint | None = workflow.latest()
        assert latest is not None
        assert latest.iteration_count == 7
        assert len(holdfast.workflow_checkpoints(store, "essay")) == 8


main()
