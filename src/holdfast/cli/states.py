"""What is in checkpoints: shows and compares steps and states, and forks from them."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from holdfast.cli.answer import Answer
from holdfast.cli.arguments import json_value, named_json
from holdfast.cli.command import command
from holdfast.cli.find import find_checkpoint, find_thread, is_thread, names_checkpoint, newest_checkpoint
from holdfast.cli.offers import checkpoint_argument
from holdfast.cli.screen import COLOURS, Column, Screen, counted
from holdfast.cli.session import Session
from holdfast.cli.text import printable, width_of
from holdfast.cli.values import arguments_of, inline, laid_out, outcome_of, path_of, took
from holdfast.cli.work import Work, read_work
from holdfast.records.checkpoint import Change, Checkpoint, Step
from holdfast.records.errors import Conflict

STEPS = (
    Column("#", number=True),
    Column("STEP", gives_way=True),
    Column("ARGUMENTS", gives_way=True),
    Column("TOOK", number=True),
    Column("OUTCOME", gives_way=True),
)
AGAIN = "effects after this checkpoint are executed again when the fork is resumed, with keys of their own"
STALE = "--state changed the stored state only; its durable function is replayed from step results (--result)"
SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@command("steps")
@checkpoint_argument()
def steps(session: Session, checkpoint: str) -> Answer:
    """List the steps a thread has recorded, up to a checkpoint or up to now; then those that were begun only."""
    store = session.store
    if names_checkpoint(store, checkpoint):
        return _steps_of(find_checkpoint(store, checkpoint), Work())
    thread_id = find_thread(store, checkpoint)
    return _steps_of(store.latest(thread_id), read_work(store, thread_id))


def _steps_of(found: Checkpoint | None, work: Work) -> Answer:
    recorded = found.lazy_steps if found is not None else ()
    document = {
        "checkpoint": found.id if found is not None else None,
        "steps": recorded,
        "begun": work.begun,
        "begun_with": work.begun_with,
    }
    return Answer(document, lambda screen: _step_lines(screen, recorded, work))


def _step_lines(screen: Screen, recorded: Sequence[Step], work: Work) -> Iterator[str]:
    if not recorded and not work.begun:
        yield "no steps"
        return
    rows = [(str(step.index + 1), _name(step), arguments_of(step), took(step), outcome_of(step)) for step in recorded]
    for key, at in work.begun.items():
        rows.append(("-", key, work.begun_with.get(key, ""), "", f"begun {screen.time(at)}; its end is not recorded"))
    yield from screen.table(STEPS, rows)


def _name(step: Step) -> str:
    return step.action or step.tool_called or "-"


@command("state")
@checkpoint_argument()
def state(session: Session, checkpoint: str) -> Answer:
    """Print the state of a checkpoint, or of a thread as it is now."""
    found = find_checkpoint(session.store, checkpoint)
    document = {"checkpoint": found.info, "state": found.state}
    return Answer(document, lambda _screen: laid_out(found.state))


@command("diff")
@checkpoint_argument("old", "ID@SEQ")
@checkpoint_argument("new", "ID@SEQ")
def diff(session: Session, old: str, new: str) -> Answer:
    """Say what changed from one checkpoint's state to another's, by path."""
    before, after = (find_checkpoint(session.store, text) for text in (old, new))
    changes = session.store.diff(before.id, after.id)
    document = {"old": before.id, "new": after.id, "changes": [change._asdict() for change in changes]}
    steps_between = abs(len(after.lazy_steps) - len(before.lazy_steps))
    return Answer(document, lambda screen: _diff_lines(screen, changes, steps_between))


def _diff_lines(screen: Screen, changes: list[Change], steps_between: int) -> Iterator[str]:
    if not changes:
        steps = f"; {counted(steps_between, 'step')} between them" if steps_between else ""
        yield f"no difference in the state{steps}"
    for change in changes:
        yield screen.style(_change_text(screen, change), fg=COLOURS[change.kind])


def _change_text(screen: Screen, change: Change) -> str:
    start = screen.cut(f"{SIGNS[change.kind]} {path_of(change.path)}: ", screen.width // 2)
    room = screen.width - width_of(start)
    if change.kind != "changed":
        return start + screen.cut(inline(change.new if change.kind == "added" else change.old), room)
    old, new = inline(change.old), inline(change.new)
    half = max((room - 3) // 2, room - 3 - width_of(new))
    old = screen.cut(old, half)
    return f"{start}{old} → {screen.cut(new, room - 3 - width_of(old))}"


@command("fork")
@checkpoint_argument()
@click.option("--to", metavar="NEW_ID", help="The id of the new thread; one is made up otherwise.")
@click.option(
    "--state",
    metavar="JSON",
    type=json_value,
    help="The state to begin with, in place of the checkpoint's. A durable function is replayed from step results.",
)
@click.option(
    "--result",
    multiple=True,
    metavar="KEY=JSON",
    type=named_json,
    help="Another result for a recorded step, by its key: what a durable function then does differently.",
)
def fork(session: Session, checkpoint: str, to: str | None, state: Any, result: tuple[tuple[str, Any], ...]) -> Answer:
    """Begin a new thread from a checkpoint. Its finished steps are not executed again.

    Effects after this checkpoint are executed again when the fork is resumed, with keys of their own. --state changes
    the stored state only; a durable function is replayed from the results of its steps, which --result changes.
    """
    store = session.store
    origin = find_checkpoint(store, checkpoint)
    if to is not None and is_thread(store, to):
        raise Conflict(f"thread {to!r} exists already; give --to another id")
    thread_id = store.fork(origin.id, to, state, dict(result))
    made = newest_checkpoint(store, thread_id)
    document = {"thread_id": thread_id, "checkpoint": made.id, "origin": origin.id}
    stale = state is not None and bool(read_work(store, thread_id).function)
    return Answer(document, lambda screen: _fork_lines(screen, origin, thread_id, stale=stale))


def _fork_lines(screen: Screen, origin: Checkpoint, thread_id: str, *, stale: bool) -> Iterator[str]:
    yield f"forked {printable(origin.id)} to {screen.heading(printable(thread_id))}"
    yield screen.faint(AGAIN)
    if stale:
        yield screen.faint(STALE)
