"""What there is to say of the thread of a loop: its state, and its plan with the cursor."""

from collections.abc import Iterator

from holdfast.cli.screen import counted
from holdfast.cli.values import inline
from holdfast.cli.work import Work
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import Corrupt
from holdfast.records.loop import LoopState, Snapshot
from holdfast.runtimes.loop.core import LOOP

AROUND = 5
"""How many steps before and after the cursor are shown."""
LONGEST = 60
"""How many characters of a step are shown."""


def read_loop(work: Work, newest: Checkpoint | None) -> Snapshot | None:
    """Return the loop of a thread; None if it is none, or none that can be read."""
    if work.function != LOOP or newest is None or not isinstance(newest.state, dict):
        return None
    try:
        return Snapshot.from_dict(newest.state)
    except Corrupt:
        return None


def loop_facts(loop: Snapshot) -> Iterator[tuple[str, str]]:
    """Say where a loop is: done steps are ticked, an arrow is at the cursor."""
    count, cursor = len(loop.plan), loop.cursor
    yield "loop", f"{loop.state}, {cursor} of {counted(count, 'step')} done"
    first, last = max(cursor - AROUND, 0), min(cursor + AROUND + 1, count)
    is_over = loop.state in {LoopState.COMPLETE, LoopState.FAILED}
    for number in range(first, last):
        mark = "✓" if number < cursor else "→" if number == cursor and not is_over else "·"
        hidden = f" (… {first} before)" if number == first and first else ""
        hidden += f" (… {count - last} after)" if number == last - 1 and last < count else ""
        step = loop.plan[number]
        shown = step if isinstance(step, str) and step.isprintable() else inline(step)
        cut = shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
        yield "plan" if number == first else "", f"{mark} {cut}{hidden}"
    if loop.outbox:
        yield "deferred", ", ".join(f"{each.tool}({', '.join(map(inline, each.arguments))})" for each in loop.outbox)
