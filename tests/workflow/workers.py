"""The document's complete example in a process of its own: it dies at an item, and is started again.

    python workers.py URL LOG FATAL [THREAD] [LIMIT]

Each item that is computed is written to LOG. At item FATAL the process kills itself, in the middle of the handler.
"""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.sync import Executor, WorkflowBuilder, WorkflowContext, handler
from holdfast.sync import open as open_store

NAME = "squares"


@dataclass
class Task:
    remaining: list[int]


class StartExecutor(Executor):
    @handler
    def start(self, limit: int, ctx: WorkflowContext[Task]) -> None:
        ctx.send_message(Task(remaining=list(range(1, limit + 1))))


class WorkerExecutor(Executor):
    def __init__(self, id: str, log: Path, fatal: int) -> None:  # noqa: A002  as in Executor
        super().__init__(id=id)
        self._log = log
        self._fatal = fatal
        self._results: dict[int, int] = {}

    @handler
    def compute(self, task: Task, ctx: WorkflowContext[Task, dict[int, int]]) -> None:
        number = task.remaining.pop(0)
        with self._log.open("a") as log:
            log.write(f"{os.getpid()} {number}\n")
        if number == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        self._results[number] = number * number
        if not task.remaining:
            ctx.yield_output(self._results)
        else:
            ctx.send_message(task)

    def on_checkpoint_save(self) -> dict[str, Any]:
        return {"results": self._results}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self._results = state.get("results", {})


def main(url: str, log: str, fatal: str, thread_id: str | None = None, limit: str = "10") -> None:
    with open_store(url, durability="process") as store:
        start, worker = StartExecutor(id="start"), WorkerExecutor("worker", Path(log), int(fatal))
        builder = WorkflowBuilder(start_executor=start, store=store, name=NAME, wait=30)
        workflow = builder.add_edge(start, worker).add_edge(worker, worker).build()
        latest = workflow.latest()
        if thread_id is not None:
            events = workflow.run(int(limit), thread_id=thread_id)
        elif latest is not None:
            print(f"Resuming from iteration {latest.iteration_count}")  # noqa: T201  for the test
            events = workflow.run(checkpoint_id=latest.checkpoint_id)
        else:
            print("Starting new workflow")  # noqa: T201  for the test
            events = workflow.run(message=int(limit))
        print(events.get_outputs())  # noqa: T201  for the test


if __name__ == "__main__":
    main(*sys.argv[1:])
