"""A process of the agent, told as it happens."""

from typing import Any

from holdfast.demo.children import Child, ChildFailed, World
from holdfast.demo.stage import Stage, seconds


def follow(stage: Stage, world: World, title: str, note: str, *task: str) -> Child:
    """Start a process for a task, tell its steps as they come, and wait for its end."""
    with world.worker(*task) as worker:
        stage.act(title, f"process {worker.pid}: {note}")
        for line in worker.lines():
            tell(stage, world, line)
        if code := worker.join():
            raise ChildFailed(f"process {worker.pid} ended with exit code {code}: {worker.last_words()}")
        return worker


def tell(stage: Stage, world: World, line: dict[str, Any]) -> None:
    """A step that is done, or was before."""
    if line["kind"] == "step_replayed":
        stage.line(line["name"], "0 s", "from the checkpoint")
    elif line["kind"] == "step_done":
        said = _refunded(world) if line["name"] == "refund" else ""
        kept = "saved" if "step" in line else "done, and nowhere saved"
        stage.line(line["name"], seconds(line["seconds"]), said or kept)


def _refunded(world: World) -> str:
    """What the payment service said to the refund."""
    before = {line["order"] for line in world.payments.told("booked")}
    said = world.payments.wait_for("known", "booked")
    if said["kind"] == "known":
        return "sent again with the same key: the service knows it, and books nothing"
    return "BOOKED ONCE MORE" if said["order"] in before else "booked, saved"
