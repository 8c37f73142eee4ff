"""`holdfast show`: one thread with all there is to say about it, and what its runtime adds."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from holdfast.cli import lookup
from holdfast.cli.apps import next_commands
from holdfast.cli.checkpoints import arguments_of
from holdfast.cli.command import command
from holdfast.cli.completion import thread_argument
from holdfast.cli.output import Answer, Screen, columns, counted, cut, inline, noted, printable, size
from holdfast.cli.requests import request_lines
from holdfast.cli.session import Session
from holdfast.codec import decode
from holdfast.history.journal import Journal
from holdfast.processes import is_certainly_dead, named
from holdfast.records.checkpoint import Checkpoint, CheckpointInfo, Step
from holdfast.records.errors import Corrupt, HoldfastError
from holdfast.records.failure import AgentSummary
from holdfast.records.loop import LoopState
from holdfast.records.loop import Snapshot as LoopSnapshot
from holdfast.records.request import Request
from holdfast.records.thread import ThreadInfo
from holdfast.records.turn import SessionSummary
from holdfast.records.words import Status
from holdfast.runs.queues import DEFAULT_QUEUE
from holdfast.runtimes.loop.core import LOOP
from holdfast.runtimes.workflow.execution import GRAPH, is_name_of_workflow
from holdfast.runtimes.workflow.snapshot import Snapshot as WorkflowSnapshot
from holdfast.sync import Store
from holdfast.sync.agents import read_summary as read_agent_summary
from holdfast.sync.session import read_summary as read_session_summary

ROWS = columns("SEQ", "SAVED", "STATUS", "CAUSE", "PHASE", "NOTES", shrinks=["NOTES"], numbers=["SEQ"])
AROUND = 5
"""How many steps of a plan are shown before and after the cursor."""
LONGEST = 60
"""How many columns of a step of a plan are shown."""
MOST_EXECUTORS = 40
Facts = Iterator[tuple[str, str]]
"""Names and values, one line each."""


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a workflow, and its graph."""

    name: str
    supersteps: int
    runs: dict[str, int]
    """How often each executor ran."""
    failures: dict[str, int]
    next: list[str]
    """The executors with waiting messages, without those that are done in the current superstep."""
    waiting: list[str]
    """The executors that wait for a response."""
    gathering: list[str]
    """The fan-ins that wait for other sources."""
    outputs: int
    signature: str
    graph: dict[str, Any]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a thread; None where its runtime has none, or its key is missing."""

    thread: ThreadInfo
    work: lookup.Work | None = None
    session: SessionSummary | None = None
    agent: AgentSummary | None = None
    loop: LoopSnapshot | None = None
    workflow: WorkflowView | None = None
    requests: list[Request] | None = None
    checkpoints: list[CheckpointInfo] | None = None
    more: int = 0
    """How many rows are not shown."""


@command(only_reads=True)
@thread_argument("thread")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(0), help="Show up to N rows; 0 for all.")
@click.option("--journal", is_flag=True, help="Show journal rows too: started, begun, asked, answered, ended.")
def show(session: Session, thread: str, limit: int, journal: bool) -> Answer:
    """Show a thread: its status, its open requests, and its checkpoints, newest first."""
    store = session.store
    info = lookup.read_thread(store, lookup.find_thread(store, thread))
    if info.damaged is not None:
        raise Corrupt(f"{info.damaged}; `holdfast delete` removes it", record=info.thread_id)
    if info.sealed_by is not None:
        return Answer(View(thread=info), _sealed_lines(session.screen, info, lookup.key_advice(store)))
    newest = store.latest(info.thread_id)
    view = _read_view(store, info, newest, limit, journal=journal)
    hints = next_commands(store, info.thread_id, view.work.begun if view.work else ()) if _has_stopped(view) else ()
    return Answer(view, _lines(session.screen, view, newest.lazy_steps if newest is not None else (), hints))


def _read_view(store: Store, info: ThreadInfo, newest: Checkpoint | None, limit: int, *, journal: bool) -> View:
    rows, more_count = _read_rows(store, info, limit, journal=journal)
    work = lookup.read_work(store, info.thread_id)
    session = read_session_summary(store, info.thread_id) if info.row_count else None
    agent = read_agent_summary(store, info.thread_id) if info.row_count else None
    return View(
        thread=info,
        work=work,
        session=session if session is not None and session.role else None,
        agent=agent if agent is not None and agent.agent else None,
        loop=_read_loop(work, newest),
        workflow=_read_workflow(work, newest, lookup.journal_of(store, info.thread_id)),
        requests=_pending(info, lookup.requests_of(store, info.thread_id)),
        checkpoints=rows,
        more=more_count,
    )


def _read_rows(store: Store, info: ThreadInfo, limit: int, *, journal: bool) -> tuple[list[CheckpointInfo], int]:
    """Return the newest rows, and how many more there are."""
    if not info.seq and not journal:
        return [], 0
    if not limit:
        return list(lookup.every(store.history(info.thread_id, limit=lookup.PAGE, journal=journal))), 0
    page = store.history(info.thread_id, limit=limit, journal=journal)
    rest = store.history(info.thread_id, cursor=page.next, limit=lookup.PAGE, journal=journal) if page.next else None
    return list(page), sum(1 for _ in lookup.every(rest))


def _pending(info: ThreadInfo, requests: list[Request]) -> list[Request]:
    """Return the open requests; if a waiting thread has none, its last one: with that answer it can be resumed."""
    still_open = [request for request in requests if request.status == "open"]
    return still_open or (requests[-1:] if info.status is Status.INPUT_REQUIRED else [])


def _has_stopped(view: View) -> bool:
    """True if a thread stays as it is until it is resumed."""
    if view.thread.status is Status.INPUT_REQUIRED:
        return not any(request.status == "open" for request in view.requests or ())
    return view.thread.status is Status.FAILED or lookup.is_abandoned(view.thread, datetime.now(UTC))


def _sealed_lines(screen: Screen, info: ThreadInfo, advice: str) -> Iterator[str]:
    yield from screen.facts(_facts(screen, info, lookup.Work()))
    yield ""
    hidden = f"labels, error, requests, steps and checkpoints are encrypted with key {info.sealed_by!r}"
    yield from screen.wrapped(f"Its {hidden}. To see them {advice}.", screen.width)


def _lines(screen: Screen, view: View, steps: Sequence[Step], hints: Iterable[str]) -> Iterator[str]:
    facts = [*_facts(screen, view.thread, view.work or lookup.Work())]
    facts += [("steps", f"{len(steps)} recorded")] if steps else []
    facts += _session_facts(view.session) if view.session else []
    facts += _agent_facts(view.agent) if view.agent else []
    facts += _loop_facts(view.loop) if view.loop else []
    facts += _workflow_facts(view.workflow) if view.workflow else []
    yield from screen.facts(facts)
    for request in view.requests or ():
        yield ""
        yield from request_lines(screen, request)
    if view.checkpoints:
        yield ""
        calls = {step.metadata.get("key"): arguments_of(step) for step in steps}
        yield from screen.table(ROWS, [_checkpoint_row(screen, row, calls) for row in view.checkpoints])
    if view.more:
        yield screen.faint(f"… and {view.more:,} more; --limit 0 shows all")
    for number, hint in enumerate(hints):
        yield from [""] * (not number)
        yield screen.faint(hint)


def _facts(screen: Screen, info: ThreadInfo, work: lookup.Work) -> Facts:
    room = screen.width - 10
    error = info.error if info.status in {Status.FAILED, Status.CANCELLED} else ""
    yield "thread", printable(info.thread_id)
    yield "started", screen.fit(_call_text(work), room) if work.function else ""
    yield "status", screen.word(lookup.status_of(info))
    yield "result", screen.fit(inline(work.result), room) if work.result is not None else ""
    for number, line in enumerate(screen.wrapped(error or "", room)):
        yield "" if number else "error", screen.style(line, fg="red") if line else ""
    yield "queue", screen.fit(_place(info), room)
    yield "held by", screen.fit(_holder(screen, info), room)
    for key, begun_at in work.begun.items():
        call = f"{key}({work.begun_with[key]})" if key in work.begun_with else key
        yield "in doubt", screen.fit(f"{call}, begun {screen.time(begun_at)}; its end is not recorded", room)
    yield "wakes", screen.time(info.wake_at) if info.wake_at else ""
    yield "labels", screen.fit(" ".join(f"{name}={value}" for name, value in info.labels.items()), room)
    yield "created", screen.time(info.created_at)
    yield "updated", screen.time(info.updated_at)
    yield "stored", f"{size(info.stored_bytes)} in {counted(info.row_count, 'row')}"


def _place(info: ThreadInfo) -> str:
    """Write where the thread queues, and the version that began it; empty for the default queue of a begun one."""
    if not info.queue or (info.queue == DEFAULT_QUEUE and not info.priority and info.status != Status.QUEUED):
        return ""
    version = f"version {info.version}" if info.version else "not begun"
    return f"{printable(info.queue)}, {f'priority {info.priority}, ' if info.priority else ''}{version}"


def _call_text(work: lookup.Work) -> str:
    """Write the call that started a durable function."""
    keywords = [f"{name}={inline(value)}" for name, value in work.named.items()]
    return f"{work.function}({', '.join([*map(inline, work.arguments), *keywords])})"


def _holder(screen: Screen, info: ThreadInfo) -> str:
    """Name the process that holds the thread, and say whether it is dead and when its lease ends."""
    if info.lease is None:
        return ""
    owner, ends = info.lease.owner, info.lease.expires_at
    gone = ", which is gone" if is_certainly_dead(owner) else ""
    return f"{named(owner)}{gone}; its lease {'expired' if ends <= screen.now else 'ends'} {screen.time(ends)}"


def _checkpoint_row(screen: Screen, row: CheckpointInfo, calls: Mapping[Any, str]) -> tuple[str, ...]:
    notes = ["pinned"] * row.pinned + ["journal"] * row.journal
    notes += [noted(name, value) for name, value in row.metadata.items()]
    step = row.metadata.get("step")
    if isinstance(step, str) and calls.get(step):
        notes.append(f"({calls[step]})")
    phase = row.phase.value if row.phase else ""
    return str(row.seq), screen.time(row.created_at), row.status.value, row.cause.value, phase, " ".join(notes)


def _session_facts(summary: SessionSummary) -> Facts:
    usage, failed = summary.usage, f", {summary.failed_count} failed" if summary.failed_count else ""
    kinds = {"in": usage.input_tokens, "out": usage.output_tokens}
    kinds |= {"from a cache": usage.cache_read_tokens, "to a cache": usage.cache_write_tokens}
    split = ", ".join(f"{count:,} {name}" for name, count in kinds.items() if count)
    tools = f"; {counted(usage.tool_calls, 'tool call')}" if usage.tool_calls else ""
    yield "session", printable(f"{summary.role} / {summary.phase}")
    yield "turns", f"{summary.turn_count:,}{failed}"
    yield "usage", f"{usage.tokens:,} tokens ({split}){tools}" if usage.tokens else tools.removeprefix("; ")
    yield "cost", summary.price if summary.cost_usd or summary.unpriced_count else ""


def _agent_facts(summary: AgentSummary) -> Facts:
    usage = summary.usage
    failed = [f"{kind.value} → {action}" for kind, action in zip(summary.failures, summary.actions, strict=True)]
    targets = ", ".join(f"to {target}" if target else "to the beginning" for target in summary.rollbacks)
    split = f"{usage.tokens:,} tokens ({usage.input_tokens:,} in, {usage.output_tokens:,} out)"
    yield "agent", printable(summary.agent)
    yield "failed", f"{counted(len(failed), 'attempt')}: {', '.join(failed)}" if failed else ""
    yield "rollbacks", f"{len(summary.rollbacks)}: {targets}" if targets else ""
    yield "usage", split if usage.tokens else ""
    yield "cost", f"{summary.cost_usd:.4f} USD" if summary.cost_usd else ""


def _read_loop(work: lookup.Work, newest: Checkpoint | None) -> LoopSnapshot | None:
    """Return the loop of a thread; None if it has none, or it cannot be read."""
    if work.function != LOOP or newest is None or not isinstance(newest.state, dict):
        return None
    try:
        return LoopSnapshot.from_dict(newest.state)
    except Corrupt:
        return None


def _loop_facts(loop: LoopSnapshot) -> Facts:
    """Show the plan around the cursor: finished steps are ticked, an arrow marks the cursor."""
    count, cursor = len(loop.plan), loop.cursor
    yield "loop", f"{loop.state}, {cursor} of {counted(count, 'step')} done"
    first, last = max(cursor - AROUND, 0), min(cursor + AROUND + 1, count)
    is_over = loop.state in {LoopState.COMPLETE, LoopState.FAILED}
    for number in range(first, last):
        mark = "✓" if number < cursor else "→" if number == cursor and not is_over else "·"
        hidden = f" (… {first} before)" if number == first and first else ""
        hidden += f" (… {count - last} after)" if number == last - 1 and last < count else ""
        step = loop.plan[number]
        text = step if isinstance(step, str) and step.isprintable() else inline(step)
        yield "plan" if number == first else "", f"{mark} {cut(text, LONGEST)}{hidden}"
    if loop.outbox:
        yield "deferred", ", ".join(f"{each.tool}({', '.join(map(inline, each.arguments))})" for each in loop.outbox)


def _read_workflow(work: lookup.Work, newest: Checkpoint | None, journal: Journal) -> WorkflowView | None:
    """Return the workflow of a thread; None if it has none, or it cannot be read."""
    if newest is None or not is_name_of_workflow(work.function):
        return None
    try:
        now = WorkflowSnapshot.of(newest.state, newest.thread_id)
        recorded = journal.noted(GRAPH, now.signature)
        graph: dict[str, Any] = {} if recorded is None else decode(recorded.content)
    except HoldfastError:
        return None
    steps = [step for step in newest.steps if "superstep" in step.metadata]
    current = [step for step in steps if step.metadata["superstep"] == now.iteration + 1]
    done = {step.action for step in current if step.error is None}
    return WorkflowView(
        name=now.workflow,
        supersteps=now.iteration,
        runs=Counter(step.action for step in steps if step.error is None),
        failures=Counter(step.action for step in steps if step.error is not None),
        next=list(dict.fromkeys(each.target for each in now.messages if each.target not in done)),
        waiting=list(dict.fromkeys(each.executor for each in now.requests.values())),
        gathering=list(now.buffers),
        outputs=len(now.outputs),
        signature=now.signature,
        graph=graph,
    )


def _workflow_facts(view: WorkflowView) -> Facts:
    """Show the executors: those that ran are ticked, an arrow marks those that run next."""
    outputs = counted(view.outputs, "output")
    yield "workflow", f"{printable(view.name)}, {counted(view.supersteps, 'superstep')} done, {outputs}"
    nodes = [id_ for id_, node in view.graph.get("nodes", {}).items() if node.get("kind") != "workflow"]
    for number, id_ in enumerate(nodes[:MOST_EXECUTORS]):
        is_cut = number == MOST_EXECUTORS - 1 and len(nodes) > MOST_EXECUTORS
        hidden = f" (… {len(nodes) - MOST_EXECUTORS} more)" if is_cut else ""
        yield "graph" if number == 0 else "", _executor_text(view, id_) + hidden
    for edge in view.gathering:
        yield "gathering", printable(edge)


def _executor_text(view: WorkflowView, id_: str) -> str:
    runs, failures, waits = view.runs.get(id_, 0), view.failures.get(id_, 0), id_ in view.waiting
    mark = "→" if id_ in view.next else "?" if waits else "✓" if runs else "·"
    times = f" x{runs}" if runs > 1 else ""
    failed = f", failed {counted(failures, 'time')}" if failures else ""
    return f"{mark} {printable(id_)}{times}{failed}{', waits for a response' if waits else ''}"
