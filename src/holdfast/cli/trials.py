"""Try Holdfast: a demo of real processes that are really killed, and a crash test of the user's own function."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.arguments import named_text
from holdfast.cli.command import EXIT_ERROR, EXIT_OK, command
from holdfast.cli.output import Answer, Screen, columns, printable, progress_bar
from holdfast.cli.session import Session
from holdfast.records.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.chaos.verdict import Row, Verdict

SCENES: Final = ("crash", "approve", "fork", "chaos")
POINTS: Final = columns("POINT", "KILLED", "RESULT", "EXECUTED AGAIN", "KEYS", shrinks=["KILLED"], numbers=["POINT"])
KEYLESS: Final = "Fine for steps that only read or think; a step that acts needs effect=True, and must take the key."


@command(runs_code=True, store_help="Use this store: a path or a URL. Default: one in a new directory.")
@click.argument("scene", default="crash", type=click.Choice(SCENES))
@click.option("--without", is_flag=True, help="crash: run the same agent without Holdfast.")
@click.option("--pace", default=1.0, type=click.FloatRange(0.01), help="Set how long the agent thinks; 1 is lifelike.")
@click.option("--kills", default=50, show_default=True, type=click.IntRange(1), help="chaos: kill it N times.")
@click.option("--seed", default=1, show_default=True, help="chaos: choose the moments with this seed.")
@click.option("--sabotage", type=click.Choice(("keys", "disk")), help="chaos: break it, and see that this is noticed.")
def demo(
    session: Session, scene: str, without: bool, pace: float, kills: int, seed: int, sabotage: str | None
) -> Answer:
    """Watch an agent crash and resume. Offline, in seconds.

    \b
    crash    kill it after its payment went out and before that was saved
    approve  let it ask, end its process, answer from another, resume in a third
    fork     see what it would have done with another result of a step
    chaos    kill it at random moments, on many threads

    The agent and its payment service are separate processes. Without --store the store is in a new directory, and is
    kept. Exit code 1 if a promise was broken.
    """  # noqa: D301  what click needs to keep lines as they are, and not two characters
    from holdfast.demo.chaos import Kills
    from holdfast.demo.play import play, play_chaos
    from holdfast.demo.stage import Stage

    if without and scene != "crash":
        raise ConfigurationError("--without is for `holdfast demo crash`")
    stage = Stage(colour=session.screen.colour, quiet=session.as_json)
    if scene == "chaos":
        plan = Kills(count=kills, seed=seed, forgetful=sabotage == "disk")
        summary = play_chaos(stage, plan, session.url, keyless=sabotage == "keys")
    else:
        summary = play("without" if without else scene, stage, session.url, pace)
    return Answer({"scene": scene, **summary}, (), EXIT_OK if summary["ok"] else EXIT_ERROR)


@command(runs_code=True, store_help="Use this store: a path or a URL. Default: a scratch store.")
@click.argument("target", metavar="MODULE:FUNCTION")
@click.argument("arguments", nargs=-1)
@click.option("--answer", "answers", multiple=True, metavar="NAME=CHOICE", help="Answer the request of this name.")
@click.option("--max-points", type=click.IntRange(1), help="Try up to N points at even distances, not all.")
@click.option("--timeout", default=60.0, show_default=True, help="Allow each run this many seconds.")
def chaos(
    session: Session,
    target: str,
    arguments: tuple[str, ...],
    answers: tuple[str, ...],
    max_points: int | None,
    timeout: float,
) -> Answer:
    """Kill your durable function before and after each of its effects, restart it, and compare the results.

    ARGUMENTS are JSON, or plain text. The function is imported from the working directory and really runs, with all its
    effects, many times. Each run is a process on a new thread, killed with SIGKILL. Without --store the threads are in
    a scratch store. Exit code 1 if a kill made a difference.
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
    return Answer(verdict, _verdict_lines(session.screen, verdict), EXIT_OK if verdict.ok else EXIT_ERROR)


def _verdict_lines(screen: Screen, verdict: "Verdict") -> Iterator[str]:
    if verdict.note:
        yield printable(verdict.note)
        yield ""
    if verdict.rows:
        yield from screen.table(POINTS, map(_cells, verdict.rows))
        yield ""
    if 0 < len(verdict.rows) < verdict.points:
        yield f"{len(verdict.rows)} of {verdict.points} points were tried, at even distances (--max-points)."
    problems: dict[str, list[str]] = {}
    for row in verdict.rows:
        for problem in row.problems:
            problems.setdefault(problem, []).append(str(row.point))
    for problem, points in problems.items():
        yield f"at {', '.join(points)}: {screen.style(printable(problem), fg='red')}"
    if keyless := dict.fromkeys(name for row in verdict.rows for name in row.without_key):
        yield f"Executed again without an idempotency key: {printable(', '.join(keyless))}. {KEYLESS}"
    yield screen.style(verdict.sentence, fg="green" if verdict.ok else "red", bold=True)


def _cells(row: "Row") -> tuple[str, ...]:
    again = ", ".join(f"{name} {count}x" for name, count in row.executed_again.items())
    keys = "CHANGED" if not row.keys_equal else "none" if row.without_key else "same" if again else "-"
    killed = row.what if row.reached else "(not reached: the order of effects varies)"
    return str(row.point), killed, "equal" if row.result_equal else "DIFFERENT", again or "-", keys
