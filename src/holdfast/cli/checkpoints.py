"""Checkpoints of a thread: print steps and states, compare them, and fork from them."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import click

from holdfast.cli import lookup
from holdfast.cli.arguments import json_value, named_json
from holdfast.cli.command import command
from holdfast.cli.completion import checkpoint_argument
from holdfast.cli.output import (
    COLOURS,
    Answer,
    Screen,
    columns,
    counted,
    inline,
    laid_out,
    printable,
    span,
    width_of,
)
from holdfast.cli.session import Session
from holdfast.records.checkpoint import Change, Checkpoint, Step
from holdfast.records.errors import Conflict

STEPS = columns(
    "#", "STEP", "ARGUMENTS", "TOOK", "OUTCOME", shrinks=("STEP", "ARGUMENTS", "OUTCOME"), numbers=("#", "TOOK")
)
AGAIN = "effects after this checkpoint are executed again when the fork is resumed, with new idempotency keys"
STATE_ONLY = "--state changed only the stored state; its durable function is replayed from step results (--result)"
SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@command(only_reads=True)
@checkpoint_argument("checkpoint")
def steps(session: Session, checkpoint: str) -> Answer:
    """List the recorded steps of a thread, up to now or up to a checkpoint; then the steps in doubt."""
    store = session.store
    if lookup.names_checkpoint(store, checkpoint):
        found: Checkpoint | None = lookup.find_checkpoint(store, checkpoint)
        work = lookup.Work()
    else:
        thread_id = lookup.find_thread(store, checkpoint)
        found, work = store.latest(thread_id), lookup.read_work(store, thread_id)
    recorded = found.lazy_steps if found is not None else ()
    document = {
        "checkpoint": found.id if found is not None else None,
        "steps": recorded,
        "begun": work.begun,
        "begun_with": work.begun_with,
    }
    return Answer(document, _step_lines(session.screen, recorded, work))


def _step_lines(screen: Screen, recorded: Sequence[Step], work: lookup.Work) -> Iterator[str]:
    if not recorded and not work.begun:
        yield "no steps"
        return
    rows = [_step_row(step) for step in recorded]
    for key, at in work.begun.items():
        rows.append(("-", key, work.begun_with.get(key, ""), "", f"in doubt: begun {screen.time(at)}"))
    yield from screen.table(STEPS, rows)


def _step_row(step: Step) -> tuple[str, ...]:
    seconds = step.metadata.get("seconds")
    took = span(timedelta(seconds=seconds)) if isinstance(seconds, int | float) else ""
    output = step.tool_output if step.tool_output is not None else step.llm_output
    outcome = step.error if step.error is not None else "" if output is None else inline(output)
    return str(step.index + 1), step.action or step.tool_called or "-", arguments_of(step), took, outcome


def arguments_of(step: Step) -> str:
    """Return the recorded arguments of a step, if the store keeps them."""
    text = step.metadata.get("arguments")
    return printable(text) if isinstance(text, str) else ""


@command(only_reads=True)
@checkpoint_argument("checkpoint")
def state(session: Session, checkpoint: str) -> Answer:
    """Print the state of a checkpoint, or the newest state of a thread."""
    found = lookup.find_checkpoint(session.store, checkpoint)
    return Answer({"checkpoint": found.info, "state": found.state}, laid_out(found.state))


@command(only_reads=True)
@checkpoint_argument("old", metavar="ID@SEQ")
@checkpoint_argument("new", metavar="ID@SEQ")
def diff(session: Session, old: str, new: str) -> Answer:
    """Compare the states of two checkpoints, path by path."""
    before, after = (lookup.find_checkpoint(session.store, text) for text in (old, new))
    changes = session.store.diff(before.id, after.id)
    document = {"old": before.id, "new": after.id, "changes": [change._asdict() for change in changes]}
    steps_between = abs(len(after.lazy_steps) - len(before.lazy_steps))
    return Answer(document, _diff_lines(session.screen, changes, steps_between))


def _diff_lines(screen: Screen, changes: list[Change], steps_between: int) -> Iterator[str]:
    if not changes:
        between = f"; {counted(steps_between, 'step')} between them" if steps_between else ""
        yield f"no difference in the state{between}"
    for change in changes:
        yield screen.style(_change_text(screen, change), fg=COLOURS[change.kind])


def _change_text(screen: Screen, change: Change) -> str:
    start = screen.cut(f"{SIGNS[change.kind]} {_path_text(change.path)}: ", screen.width // 2)
    room = screen.width - width_of(start)
    if change.kind != "changed":
        return start + screen.cut(inline(change.new if change.kind == "added" else change.old), room)
    old, new = inline(change.old), inline(change.new)
    old = screen.cut(old, max((room - 3) // 2, room - 3 - width_of(new)))
    return f"{start}{old} → {screen.cut(new, room - 3 - width_of(old))}"


def _path_text(path: Iterable[Any]) -> str:
    """Write a path in a state as `plan[1].name`, with keys that are not plain words in quotes."""
    text = ""
    for part in path:
        if isinstance(part, str) and part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{inline(part)}]"
    return printable(text) or "state"


@command()
@checkpoint_argument("checkpoint")
@click.option("--to", metavar="NEW_ID", help="Give the new thread this id. Default: a generated one.")
@click.option(
    "--state",
    metavar="JSON",
    type=json_value,
    help="Start with this state instead of the checkpoint's. A durable function is replayed from step results.",
)
@click.option(
    "--result",
    multiple=True,
    metavar="KEY=JSON",
    type=named_json,
    help="Replace the result of a recorded step, by its key: a durable function then takes another path.",
)
def fork(session: Session, checkpoint: str, to: str | None, state: Any, result: tuple[tuple[str, Any], ...]) -> Answer:
    """Start a new thread from a checkpoint. Its finished steps are not executed again.

    Effects after this checkpoint are executed again when the fork is resumed, with new idempotency keys. --state
    changes only the stored state; a durable function is replayed from the results of its steps, which --result changes.
    """
    store = session.store
    origin = lookup.find_checkpoint(store, checkpoint)
    if to is not None and lookup.is_thread(store, to):
        raise Conflict(f"thread {to!r} already exists; give --to another id")
    thread_id = store.fork(origin.id, to, state, dict(result))
    made, screen = lookup.newest_checkpoint(store, thread_id), session.screen
    document = {"thread_id": thread_id, "checkpoint": made.id, "origin": origin.id}
    lines = [f"forked {printable(origin.id)} to {screen.heading(printable(thread_id))}", screen.faint(AGAIN)]
    if state is not None and lookup.read_work(store, thread_id).function:
        lines.append(screen.faint(STATE_ONLY))
    return Answer(document, lines)
