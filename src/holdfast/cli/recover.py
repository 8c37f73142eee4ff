"""Every thread that can is gone on with; of those that were left alone it is said why."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.agents import AnyAgent, agents_in, core_of, recover_agent, refusal_of
from holdfast.cli.answer import Answer
from holdfast.cli.apps import in_world_of, is_blocking, load
from holdfast.cli.command import command
from holdfast.cli.screen import COLOURS, Screen
from holdfast.cli.session import Session, refuse_missing
from holdfast.cli.text import printable
from holdfast.cli.work import function_of
from holdfast.records.outcome import Recovery
from holdfast.runs.durable import registry
from holdfast.runtimes.agent.memory import AGENT

if TYPE_CHECKING:
    from holdfast.runs.store import Store

ENDS = Recovery.__struct_fields__


@command("recover", runs_code=True)
@click.option(
    "--app", "apps", required=True, multiple=True, metavar="MODULE", help="Where the durable functions and agents are."
)
@click.option("--max-attempts", default=3, show_default=True, type=click.IntRange(1), help="Then a thread has failed.")
def recover(session: Session, apps: tuple[str, ...], max_attempts: int) -> Answer:
    """Go on with every thread that can: abandoned by a dead process, answered, or its time has come."""
    refuse_missing(session.url)
    agents = [agent for app in apps for agent in agents_in(load(app))]

    async def act(store: "Store") -> Recovery:
        return await store.recover(max_attempts=max_attempts)

    functions = in_world_of(session, act, blocking=all(map(is_blocking, registry.values())))
    report = merged([functions, *(recover_agent(session, agent, functions.skipped, max_attempts) for agent in agents)])
    reasons = {thread_id: _reason(session, thread_id, agents) for thread_id in report.skipped}
    document = {**{end: getattr(report, end) for end in ENDS}, "reasons": reasons}
    return Answer(document, lambda screen: _lines(screen, report, reasons))


def merged(reports: list[Recovery]) -> Recovery:
    """Several recoveries as one: skipped is what none of them went on with."""
    ends = {end: tuple(thread_id for report in reports for thread_id in getattr(report, end)) for end in ENDS}
    resumed = {thread_id for end in ENDS if end != "skipped" for thread_id in ends[end]}
    ends["skipped"] = tuple(dict.fromkeys(thread_id for thread_id in ends["skipped"] if thread_id not in resumed))
    return Recovery(**ends)


def _reason(session: Session, thread_id: str, agents: list[AnyAgent]) -> str:
    """Why a thread was left alone."""
    function = function_of(session.store, thread_id)
    if not function:
        return "neither a durable function nor an agent: store.recover(handler) goes on with it"
    known = {AGENT + core_of(agent).name: refusal_of(core_of(agent)) for agent in agents}
    if function not in {*registry, *known}:
        return f"{function} is not in --app"
    return known.get(function) or "another process was faster"


def _lines(screen: Screen, report: Recovery, reasons: dict[str, str]) -> Iterator[str]:
    if report == Recovery():
        yield "nothing to recover"
    for end in ENDS:
        for thread_id in getattr(report, end):
            reason = f"  {reasons[thread_id]}" if end == "skipped" else ""
            yield f"{screen.style(end.ljust(10), fg=COLOURS.get(end))} {printable(thread_id + reason)}"
