"""Resume every thread that can be resumed, and report why the others were skipped."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from holdfast.cli.agents import AnyAgent, agents_in, core_of, recover_agent, refusal_of
from holdfast.cli.answer import Answer
from holdfast.cli.app_stores import is_same, own_store
from holdfast.cli.apps import in_world_of, is_blocking, load
from holdfast.cli.command import command
from holdfast.cli.exits import EXIT_ERROR
from holdfast.cli.heads import key_advice, read_thread
from holdfast.cli.hints import program_advice
from holdfast.cli.runs import note_lines
from holdfast.cli.screen import COLOURS, Screen
from holdfast.cli.session import Session, refuse_missing
from holdfast.cli.work import function_of
from holdfast.records.errors import NotFound
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
    """Resume every thread that can be: abandoned by a dead process, answered, put back, or its timer is due.

    Without --store and HOLDFAST_STORE, the stores that your functions and agents were given are recovered, and the
    default one if any of them uses that. Exit code 1 if a thread failed, or is damaged.
    """
    agents = [agent for app in apps for agent in agents_in(load(app))]
    found = [_recovered(session, own, agents, max_attempts) for own in _stores(session, agents)]
    report = merged([each.report for each in found])
    remarks = {thread_id: remark for each in found for thread_id, remark in each.remarks.items()}
    document = {
        **{end: getattr(report, end) for end in ENDS},
        "reasons": {thread_id: remarks[thread_id] for thread_id in report.skipped},
        "errors": {thread_id: remarks[thread_id] for thread_id in (*report.failed, *report.damaged)},
        "note": (note := _note(session, agents)),
    }
    code = EXIT_ERROR if report.failed or report.damaged else 0
    return Answer(document, lambda screen: _lines(screen, report, remarks, note), code)


class _Recovered(NamedTuple):
    """What was done in one store: remarks say why a thread was skipped, or with what error it failed."""

    report: Recovery
    remarks: dict[str, str]


def _stores(session: Session, agents: list[AnyAgent]) -> "list[Store | None]":
    """The stores to recover; None for the one that was asked for, or the default one."""
    if session.named_store:
        return [None]
    return list(dict.fromkeys(map(own_store, (*registry.values(), *agents)))) or [None]


def _recovered(session: Session, own: "Store | None", agents: list[AnyAgent], max_attempts: int) -> _Recovered:
    """Recover one store with all functions, and with the agents that work on it."""
    session.use(own)
    if own is None:
        refuse_missing(session.url)
    mine = [agent for agent in agents if session.named_store or own_store(agent) is own]

    async def act(store: "Store") -> Recovery:
        return await store.recover(max_attempts=max_attempts)

    functions = in_world_of(session, act, blocking=all(map(is_blocking, registry.values())))
    report = merged([functions, *(recover_agent(session, agent, functions.skipped, max_attempts) for agent in mine)])
    remarks = {thread_id: _reason(session, thread_id, agents) for thread_id in report.skipped}
    remarks |= {thread_id: session.store.thread(thread_id).error or "" for thread_id in report.failed}
    remarks |= {thread_id: _why_unreadable(session, thread_id) for thread_id in report.damaged}
    return _Recovered(report, remarks)


def _why_unreadable(session: Session, thread_id: str) -> str:
    """Why a thread could not even be looked at."""
    with suppress(NotFound):
        sealed_by = read_thread(session.store, thread_id).sealed_by
        if sealed_by is not None:
            return f"encrypted with key {sealed_by!r}, which is missing; {key_advice(session.store)}"
    return "its head cannot be read; `holdfast verify` says why"


def _note(session: Session, agents: list[AnyAgent]) -> str:
    """Which store is used, if functions or agents were given another one."""
    if not session.named_store:
        return ""
    apps = {app.name: own_store(app) for app in (*registry.values(), *agents)}
    others = [name for name, own in apps.items() if own is not None and not is_same(own, session)]
    return f"using {session.named_store}, not the store that {', '.join(others)} was given" if others else ""


def merged(reports: list[Recovery]) -> Recovery:
    """Several recoveries as one: skipped is what none of them resumed."""
    ends = {end: tuple(thread_id for report in reports for thread_id in getattr(report, end)) for end in ENDS}
    resumed = {thread_id for end in ENDS if end != "skipped" for thread_id in ends[end]}
    ends["skipped"] = tuple(dict.fromkeys(thread_id for thread_id in ends["skipped"] if thread_id not in resumed))
    return Recovery(**ends)


def _reason(session: Session, thread_id: str, agents: list[AnyAgent]) -> str:
    """Why a thread was left alone."""
    function = function_of(session.store, thread_id)
    if not function:
        return "neither a durable function nor an agent: store.recover(handler) resumes it"
    known = {AGENT + core_of(agent).name: refusal_of(core_of(agent)) for agent in agents}
    if function not in {*registry, *known}:
        return program_advice(session.store, thread_id) or f"{function} is not in --app"
    return known.get(function) or "another process was faster"


def _lines(screen: Screen, report: Recovery, remarks: dict[str, str], note: str) -> Iterator[str]:
    yield from note_lines(screen, note)
    if report == Recovery():
        yield "nothing to recover"
    for end in ENDS:
        for thread_id in getattr(report, end):
            text = "  ".join(filter(None, (thread_id, remarks.get(thread_id, ""))))
            yield f"{screen.style(end.ljust(10), fg=COLOURS.get(end))} {screen.fit(text, screen.width - 11)}"
