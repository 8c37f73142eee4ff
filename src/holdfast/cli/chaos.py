"""The user's own function, killed at every effect."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.answer import Answer
from holdfast.cli.arguments import named_text
from holdfast.cli.command import command
from holdfast.cli.progress import progress_bar
from holdfast.cli.screen import Column, Screen
from holdfast.cli.session import Session
from holdfast.cli.text import printable

if TYPE_CHECKING:
    from holdfast.chaos.verdict import Row, Verdict

COLUMNS: Final = (
    Column("POINT", number=True),
    Column("KILLED", gives_way=True),
    Column("RESULT"),
    Column("EXECUTED AGAIN"),
    Column("KEYS"),
)
KEYLESS: Final = "Right for what reads or thinks; what acts needs effect=True, and to take the key."


@command("chaos", runs_code=True, store_help="The store: a path or a URL. Without it, a scratch store.")
@click.argument("target", metavar="MODULE:FUNCTION")
@click.argument("arguments", nargs=-1)
@click.option("--answer", "answers", multiple=True, metavar="NAME=CHOICE", help="The answer to a request of that name.")
@click.option("--max-points", type=click.IntRange(1), help="Try so many points at even distances, not all.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds that one run may take.")
def chaos(
    session: Session,
    target: str,
    arguments: tuple[str, ...],
    answers: tuple[str, ...],
    max_points: int | None,
    timeout: float,
) -> Answer:
    """Kill your durable function before and after each of its effects, start it again, and compare.

    ARGUMENTS are JSON, or plain text. The function is found in the working directory, and really runs: with all its
    effects, many times. Each run is a process of its own on a new thread; it is killed with SIGKILL. Without --store
    the threads are kept in a scratch store. The exit code is 1 if being killed made a difference.
    """
    from holdfast.chaos.order import Plan, as_value
    from holdfast.chaos.verdict import kill_everywhere

    plan = Plan(
        target=target,
        arguments=tuple(map(as_value, arguments)),
        answers=dict(map(named_text, answers)),
        store=session.url,
        timeout=timeout,
        max_points=max_points,
    )
    with progress_bar("killing", quiet=session.as_json) as progress:
        verdict = kill_everywhere(plan, progress)
    return Answer(verdict, lambda screen: _lines(screen, verdict), 0 if verdict.ok else 1)


def _lines(screen: Screen, verdict: "Verdict") -> Iterator[str]:
    if verdict.note:
        yield printable(verdict.note)
        yield ""
    if verdict.rows:
        yield from screen.table(COLUMNS, map(_cells, verdict.rows))
        yield ""
    if len(verdict.rows) < verdict.points and verdict.rows:
        yield f"{len(verdict.rows)} of {verdict.points} points were tried, at even distances (--max-points)."
    for problem, points in _problems(verdict.rows):
        yield f"at {points}: {screen.style(printable(problem), fg='red')}"
    if keyless := dict.fromkeys(name for row in verdict.rows for name in row.without_key):
        yield f"Executed again without an idempotency key: {printable(', '.join(keyless))}. {KEYLESS}"
    yield screen.style(verdict.sentence, fg="green" if verdict.ok else "red", bold=True)


def _cells(row: "Row") -> tuple[str, ...]:
    again = ", ".join(f"{name} {count}x" for name, count in row.executed_again.items())
    keys = "CHANGED" if not row.keys_equal else "none" if row.without_key else "same" if again else "-"
    what = row.what if row.reached else "(not reached: the order of effects varies)"
    return str(row.point), what, "equal" if row.result_equal else "DIFFERENT", again or "-", keys


def _problems(rows: "list[Row]") -> Iterator[tuple[str, str]]:
    """Each problem once, with the points it came up at."""
    found: dict[str, list[int]] = {}
    for row in rows:
        for problem in row.problems:
            found.setdefault(problem, []).append(row.point)
    for problem, points in found.items():
        yield problem, ", ".join(map(str, points))
