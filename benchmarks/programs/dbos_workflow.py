"""dbos on SQLite: a workflow, recovered when the process is launched again."""

import os
import sys
import threading

from dbos import DBOS, SetWorkflowID
from told import Clock, main, result_of

clock: Clock | None = None


@DBOS.step()
def work(index: int) -> dict[str, object]:
    """One step."""
    return result_of(index)


@DBOS.workflow()
def agent(count: int) -> None:
    """COUNT steps; then, if it is recovered, one more."""
    if clock is not None:
        clock.enter()
    for index in range(count):
        work(index)
    if clock is None:
        os._exit(0)
    clock.replay_ends()
    work(count)
    clock.tell()


def launch(directory: str) -> None:
    """Open the database; whatever is pending is recovered in the background."""
    url = f"sqlite:///{directory}/dbos.sqlite"
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})
    DBOS.launch()


def prepare(directory: str, count: int) -> None:
    """All steps; the process dies within the workflow, which stays pending."""
    launch(directory)
    with SetWorkflowID("t"):
        agent(count)


def resume(directory: str, _count: int) -> None:
    """Another process recovers it."""
    global clock  # noqa: PLW0603 - the function is called by the library
    clock = Clock()
    launch(directory)
    threading.Event().wait(60)
    sys.exit("the workflow was not recovered")


if __name__ == "__main__":
    main(prepare, resume)
