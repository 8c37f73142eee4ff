"""The demo: real processes, really killed."""

from typing import Any, Final

import click

from holdfast.cli.answer import Answer
from holdfast.cli.command import command
from holdfast.cli.session import Session
from holdfast.records.errors import ConfigurationError

SCENES: Final = ("crash", "approve", "fork", "chaos")


@command("demo", runs_code=True, store_help="The store: a path or a URL. Without it, one in a new directory.")
@click.argument("scene", default="crash", type=click.Choice(SCENES))
@click.option("--without", is_flag=True, help="crash: the same agent without Holdfast.")
@click.option("--pace", default=1.0, type=click.FloatRange(0.01), help="How long the agent thinks; 1 is as in life.")
@click.option("--kills", default=50, show_default=True, type=click.IntRange(1), help="chaos: how often it is killed.")
@click.option("--seed", default=1, show_default=True, help="chaos: of the moments.")
@click.option("--sabotage", type=click.Choice(("keys", "disk")), help="chaos: break it, and see that this is noticed.")
def demo(session: Session, scene: str, without: bool, pace: float, **chaos: Any) -> Answer:
    """Watch an agent die and go on. Offline, in seconds.

    \b
    crash    killed after its payment went out and before that was saved
    approve  it asks, its process ends, another answers, a third goes on
    fork     what it would have done, had a step found something else
    chaos    killed at random moments, on many threads

    The agent and its payment service are processes of their own. Without --store the store is in a new directory, and
    is left there. The exit code is 1 if a promise was not kept.
    """  # noqa: D301  what click needs to keep lines as they are, and not two characters
    from holdfast.demo.play import play
    from holdfast.demo.stage import Stage

    if without and scene != "crash":
        raise ConfigurationError("--without is for `holdfast demo crash`")
    stage = Stage(colour=session.fresh_screen().colour, quiet=session.as_json)
    if scene == "chaos":
        summary = _chaos(stage, session.url, **chaos)
    else:
        summary = play("without" if without else scene, stage, session.url, pace)
    return Answer({"scene": scene, **summary}, lambda _screen: (), 0 if summary["ok"] else 1)


def _chaos(stage: Any, store: str | None, *, kills: int, seed: int, sabotage: str | None) -> dict[str, Any]:
    from holdfast.demo.chaos import Kills
    from holdfast.demo.play import play_chaos

    plan = Kills(count=kills, seed=seed, forgetful=sabotage == "disk")
    return play_chaos(stage, plan, store, keyless=sabotage == "keys")
