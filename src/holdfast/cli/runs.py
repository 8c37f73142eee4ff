"""Runs: resume threads, let failed ones be resumed, settle steps in doubt, and cancel."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from holdfast.cli import apps, lookup
from holdfast.cli.arguments import json_value, named_text
from holdfast.cli.command import EXIT_CONFLICT, EXIT_ERROR, EXIT_OK, EXIT_WAITS, command, yes_option
from holdfast.cli.completion import step_argument, thread_argument
from holdfast.cli.output import COLOURS, DRY_RUN, Answer, Screen, counted, printable
from holdfast.cli.requests import by_option, request_lines
from holdfast.cli.session import Session, require_store
from holdfast.ports import run_blocking
from holdfast.records import errors
from holdfast.records.outcome import Recovery
from holdfast.records.request import Request
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import Status
from holdfast.runs.block import Terms
from holdfast.runs.durable import Durable, registry
from holdfast.runs.recovery import Recoverer
from holdfast.runtimes.agent.agent import AgentCore
from holdfast.runtimes.agent.memory import AGENT

if TYPE_CHECKING:
    from holdfast.runs.run import Run
    from holdfast.runs.store import Store

FINISHED = {Status.COMPLETE, Status.CANCELLED}
ENDS = Recovery.__struct_fields__


@command(runs_code=True)
@thread_argument("thread")
@click.option("--app", required=True, metavar="MODULE:NAME", help="Import the durable function or agent.")
def resume(session: Session, thread: str, app: str) -> Answer:
    """Resume a thread: run its durable function or agent again. Finished steps are not executed again.

    Without --store and HOLDFAST_STORE, the store that your function or agent was given is used. Exit code 5 if the
    thread waits for an answer.
    """
    found = apps.load_application(app)
    if not session.requested_store:
        session.use(apps.store_of(found))
    note = apps.store_note(session, {app: found})
    thread_id = _find_noted(session, thread, note)
    if advice := apps.program_advice(session.store, thread_id):
        raise errors.ConfigurationError(f"thread {thread_id!r} is {advice}; this resumes functions and agents")
    result, status = None, Status.COMPLETE
    requests: Sequence[Request] = ()
    try:
        result = _resume(session, found, thread_id)
    except errors.Suspended as suspended:
        requests = suspended.requests
        status = Status.INPUT_REQUIRED if requests else Status.WORKING
    document = {"thread_id": thread_id, "status": status, "result": result, "requests": requests, "note": note}
    code = EXIT_OK if status is Status.COMPLETE else EXIT_WAITS
    return Answer(document, _resumed_lines(session.screen, document), code)


def _find_noted(session: Session, thread: str, note: str) -> str:
    """Find a thread; an error has the note about the store, which may be why it is not found."""
    try:
        return lookup.find_thread(session.store, thread)
    except errors.NotFound as error:
        raise errors.NotFound(f"{error} ({note})" if note else str(error)) from error


def _resume(session: Session, app: apps.App, thread_id: str) -> Any:
    try:
        if not isinstance(app, Durable):
            return _resume_agent(session, app, thread_id)
        resume = app._resume  # noqa: SLF001  not for users
        return apps.call_with_store(session, lambda store: resume(thread_id, store), blocking=apps.is_blocking(app))
    except errors.HoldfastError:
        raise
    except Exception as error:
        raise errors.RunError(f"thread {thread_id!r} failed: {type(error).__name__}: {error}") from error


def _resume_agent(session: Session, agent: apps.AnyAgent, thread_id: str) -> Any:
    core = apps.core_of(agent)
    if refusal := _refusal_of(core):
        raise errors.ConfigurationError(refusal)
    if not lookup.function_of(session.store, thread_id):
        raise errors.NotFound(f"thread {thread_id!r} was not started by an agent")

    async def act(store: "Store") -> Any:
        async with store.run(thread_id) as run:
            return await core.resume(run, {})

    return apps.call_with_store(session, act, blocking=apps.is_blocking(agent))


def _refusal_of(core: AgentCore) -> str:
    """Say why the command line cannot resume an agent; empty if it can."""
    if core.is_stream:
        return f"agent {core.name} yields: stream the thread again from your program"
    if core.required:
        return f"agent {core.name} needs {', '.join(core.required)}: run it again from your program"
    return ""


def _resumed_lines(screen: Screen, document: dict[str, Any]) -> Iterator[str]:
    thread_id, status, result, requests, note = document.values()
    if note:
        yield screen.faint(printable(note))
    if status is Status.COMPLETE:
        yield f"{printable(thread_id)} is {screen.word('complete')}"
        if result is not None:
            yield screen.value("  result  ", result)
        return
    yield f"{printable(thread_id)} {'waits for an answer' if requests else 'sleeps; resume it when its timer is due'}"
    for request in requests:
        yield from request_lines(screen, request)


@command(runs_code=True)
@click.option(
    "--app", "modules", required=True, multiple=True, metavar="MODULE", help="Import the durable functions and agents."
)
@click.option(
    "--max-attempts", default=3, show_default=True, type=click.IntRange(1), help="Fail a thread after N attempts."
)
def recover(session: Session, modules: tuple[str, ...], max_attempts: int) -> Answer:
    """Resume every thread that was abandoned by a dead process, answered, or put back, or whose timer is due.

    Reports why the others were skipped. Without --store and HOLDFAST_STORE, the stores that your functions and agents
    were given are recovered, and the default one if any of them uses that. Exit code 1 if a thread failed, or is
    damaged.
    """
    agents = [agent for module in modules for agent in apps.agents_in(apps.load(module))]
    applications = [*registry.values(), *agents]
    stores = [None] if session.requested_store else list(dict.fromkeys(map(apps.store_of, applications))) or [None]
    found = [_recover_store(session, store, agents, max_attempts) for store in stores]
    report = _merged([report for report, _ in found])
    remarks = {thread_id: remark for _, remarks in found for thread_id, remark in remarks.items()}
    note = apps.store_note(session, {app.name: app for app in applications})
    document = {
        **{end: getattr(report, end) for end in ENDS},
        "reasons": {thread_id: remarks[thread_id] for thread_id in report.skipped},
        "errors": {thread_id: remarks[thread_id] for thread_id in (*report.failed, *report.damaged)},
        "note": note,
    }
    code = EXIT_ERROR if report.failed or report.damaged else EXIT_OK
    return Answer(document, _recovered_lines(session.screen, report, remarks, note), code)


def _recover_store(
    session: Session, app_store: "Store | None", agents: list[apps.AnyAgent], max_attempts: int
) -> tuple[Recovery, dict[str, str]]:
    """Recover one store with all functions and its agents. The remarks say why a thread was skipped, or failed."""
    session.use(app_store)
    if app_store is None:
        require_store(session.url)
    mine = [agent for agent in agents if session.requested_store or apps.store_of(agent) is app_store]

    async def act(store: "Store") -> Recovery:
        return await store.recover(max_attempts=max_attempts)

    functions = apps.call_with_store(session, act, blocking=all(map(apps.is_blocking, registry.values())))
    report = _merged([functions, *(_recover_agent(session, agent, functions.skipped, max_attempts) for agent in mine)])
    remarks = {thread_id: _reason(session, thread_id, agents) for thread_id in report.skipped}
    remarks |= {thread_id: session.store.thread(thread_id).error or "" for thread_id in report.failed}
    remarks |= {thread_id: _why_unreadable(session, thread_id) for thread_id in report.damaged}
    return report, remarks


def _recover_agent(session: Session, agent: apps.AnyAgent, skipped: Iterable[str], max_attempts: int) -> Recovery:
    """Resume those of the threads that the agent started."""
    core, blocking = apps.core_of(agent), apps.is_blocking(agent)
    found = [thread_id for thread_id in skipped if lookup.function_of(session.store, thread_id) == AGENT + core.name]
    if _refusal_of(core) or not found:
        return Recovery()

    def resume_blocking(run: "Run") -> Any:
        return run_blocking(core.resume(run, {}))

    async def resume(run: "Run") -> Any:
        return await core.resume(run, {})

    async def act(store: "Store") -> Recovery:
        handler = resume_blocking if blocking else resume
        return await Recoverer(store, handler, Terms(wait=0), max_attempts).resume_all(found)

    return apps.call_with_store(session, act, blocking=blocking)


def _merged(reports: list[Recovery]) -> Recovery:
    """Merge recoveries into one; a thread is skipped if none of them resumed it."""
    ends = {end: tuple(thread_id for report in reports for thread_id in getattr(report, end)) for end in ENDS}
    resumed = {thread_id for end in ENDS if end != "skipped" for thread_id in ends[end]}
    ends["skipped"] = tuple(dict.fromkeys(thread_id for thread_id in ends["skipped"] if thread_id not in resumed))
    return Recovery(**ends)


def _reason(session: Session, thread_id: str, agents: list[apps.AnyAgent]) -> str:
    """Say why a thread was skipped."""
    function = lookup.function_of(session.store, thread_id)
    if not function:
        return "neither a durable function nor an agent: store.recover(handler) resumes it"
    known = {AGENT + apps.core_of(agent).name: _refusal_of(apps.core_of(agent)) for agent in agents}
    if function not in {*registry, *known}:
        return apps.program_advice(session.store, thread_id) or f"{function} is not in --app"
    return known.get(function) or "another process resumed it first"


def _why_unreadable(session: Session, thread_id: str) -> str:
    with suppress(errors.NotFound):
        sealed_by = lookup.read_thread(session.store, thread_id).sealed_by
        if sealed_by is not None:
            return f"encrypted with key {sealed_by!r}, which is missing; {lookup.key_advice(session.store)}"
    return "its head cannot be read; see `holdfast verify`"


def _recovered_lines(screen: Screen, report: Recovery, remarks: dict[str, str], note: str) -> Iterator[str]:
    if note:
        yield screen.faint(printable(note))
    if report == Recovery():
        yield "nothing to recover"
    for end in ENDS:
        for thread_id in getattr(report, end):
            text = "  ".join(filter(None, (thread_id, remarks.get(thread_id, ""))))
            yield f"{screen.style(end.ljust(10), fg=COLOURS.get(end))} {screen.fit(text, screen.width - 11)}"


@command()
@thread_argument("threads", metavar="[ID]...", nargs=-1)
@click.option("--status", type=click.Choice([Status.FAILED.value]), help="Retry all threads in this status.")
@click.option("--queue", metavar="NAME", help="Retry all failed threads of this queue.")
@click.option("--label", multiple=True, metavar="NAME=VALUE", type=named_text, help="Retry only those with this label.")
@yes_option
def retry(
    session: Session,
    threads: tuple[str, ...],
    status: str | None,
    queue: str | None,
    label: tuple[tuple[str, str], ...],
    yes: bool,
) -> Answer:
    """Put failed threads back, so that a worker or `holdfast recover` resumes them. Finished steps are kept.

    Give the ids of threads, or --status failed for all that failed, or --queue for those of one queue: a dry run unless
    --yes. Exit code 4 if a thread could not be put back.
    """
    is_all = bool(status or queue)
    if bool(threads) == is_all or (label and not is_all):
        raise errors.ConfigurationError(
            "give the ids of failed threads, or --status failed or --queue NAME, with --label to narrow it"
        )
    store = session.store
    if threads:
        found: Iterable[ThreadInfo] = [lookup.read_thread(store, lookup.find_thread(store, text)) for text in threads]
    else:
        failed = lookup.every(store.threads(status=Status.FAILED, labels=dict(label), limit=lookup.PAGE))
        found = (info for info in failed if queue is None or info.queue == queue)
    dry_run = not threads and not yes
    refusals = {info.thread_id: _put_back(session, info, dry_run=dry_run) for info in found}
    back = [thread_id for thread_id, refusal in refusals.items() if not refusal]
    refused = {thread_id: refusal for thread_id, refusal in refusals.items() if refusal}
    hint = DRY_RUN if dry_run else f"resume with: {apps.recover_command(store, back)}" if back else ""
    document = {"threads": back, "refused": refused, "dry_run": dry_run}
    lines = _retry_lines(session.screen, back, refused, hint, dry_run=dry_run)
    return Answer(document, lines, EXIT_CONFLICT if refused else EXIT_OK)


def _put_back(session: Session, info: ThreadInfo, *, dry_run: bool) -> str:
    """Put one thread back; return why that is refused, or an empty text."""
    if dry_run:
        return "" if info.sealed_by is None else f"encrypted with key {info.sealed_by!r}"
    try:
        session.store.retry(info.thread_id)
    except (errors.Conflict, errors.Deleted, errors.KeyUnavailable, errors.LeaseHeld, errors.NotFound) as error:
        return str(error)
    return ""


def _retry_lines(
    screen: Screen, back: list[str], refused: dict[str, str], hint: str, *, dry_run: bool
) -> Iterator[str]:
    for thread_id in back:
        yield f"{'would retry' if dry_run else 'retried'}  {printable(thread_id)}"
    for thread_id, refusal in refused.items():
        yield f"{screen.style('refused', fg=COLOURS['failed'])}  {printable(thread_id)}: {printable(refusal)}"
    if not back and not refused:
        yield "no failed threads"
    elif hint:
        yield screen.faint(hint)


@command()
@thread_argument("thread")
@step_argument
@click.option(
    "--done", metavar="JSON", type=json_value, help="Record that it happened, with this result: JSON, @FILE, or -."
)
@click.option("--retry", is_flag=True, help="Execute it again at the next resume, with the same key.")
@click.option("--fail", is_flag=True, help="Record that it failed: the code that called it gets StepFailed.")
@by_option
def settle(session: Session, thread: str, step: str, done: Any, retry: bool, fail: bool, by: str) -> Answer:
    """Record how a step in doubt ended: it was begun, and its end is not recorded. Then the thread can be resumed.

    STEP is its key, as `holdfast steps` lists it. Takes the full id of the thread. If your code does not catch the
    StepFailed of --fail, the thread fails, and running it again executes the step again, like any failed step.
    """
    is_done = click.get_current_context().get_parameter_source("done") is not ParameterSource.DEFAULT
    if is_done + retry + fail != 1:
        raise errors.ConfigurationError("give one of --done JSON, --retry and --fail")
    choice = "done" if is_done else "retry" if retry else "fail"
    store, screen = session.store, session.screen
    info = store.thread(lookup.find_exact_thread(store, thread))
    begun = lookup.read_work(store, info.thread_id).begun
    key = next((key for key in begun if printable(key) == step), step)
    store.settle(info.thread_id, key, choice, done, by=by)
    document = {"thread_id": info.thread_id, "step": key, "choice": choice, "value": done, "by": by}
    document["before"] = info.status
    end = {"done": "is done", "retry": "will be executed again, with the same key", "fail": "has failed"}[choice]
    settled = f"step {printable(key)} of {printable(info.thread_id)} ({lookup.status_of(info)}) {end}"
    hint = f"to resume the thread: {apps.resume_command(store, info.thread_id)}"
    return Answer(document, [settled, screen.faint(hint)])


@command()
@thread_argument("thread")
@yes_option
def cancel(session: Session, thread: str, yes: bool) -> Answer:
    """Cancel a thread. Its history stays; a live run is notified, and stops at its next step.

    Takes the full id. A dry run unless --yes.
    """
    store = session.store
    before = store.thread(lookup.find_exact_thread(store, thread))
    if yes and before.status not in FINISHED:
        store.cancel(before.thread_id)
    after = store.thread(before.thread_id)
    document = {
        "thread_id": before.thread_id,
        "before": before.status,
        "status": after.status,
        "told": yes and after.status not in FINISHED,
        "dry_run": not yes,
    }
    return Answer(document, _cancel_lines(session.screen, before, after, yes=yes))


def _cancel_lines(screen: Screen, before: ThreadInfo, after: ThreadInfo, *, yes: bool) -> Iterator[str]:
    name = printable(before.thread_id)
    if before.status in FINISHED:
        yield f"{name} is already {screen.word(lookup.status_of(before))}; nothing to cancel"
    elif not yes:
        held = f", held by {printable(before.owner)}" if before.owner else ""
        yield f"would cancel {name} ({lookup.status_of(before)}, {counted(before.row_count, 'row')}{held})"
        yield screen.faint(DRY_RUN)
    elif after.status in FINISHED:
        yield f"{name} is {screen.word(lookup.status_of(after))}"
    else:
        yield f"{name} is working; its run was notified, and stops at its next step"
