"""Threads: all of them, one of them, and what they amount to."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.answer import Answer
from holdfast.cli.arguments import named_text
from holdfast.cli.command import command
from holdfast.cli.examinations import is_abandoned
from holdfast.cli.find import every, find_thread, standing
from holdfast.cli.find_request import requests_of
from holdfast.cli.heads import PAGE, key_advice, list_threads, read_thread
from holdfast.cli.hints import next_commands
from holdfast.cli.loops import loop_facts, read_loop
from holdfast.cli.offers import thread_argument
from holdfast.cli.requests import request_lines
from holdfast.cli.screen import Column, Screen, counted, size
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.cli.values import arguments_of, inline
from holdfast.cli.work import Work, journal_of, read_work
from holdfast.cli.workflows import read_workflow, workflow_facts
from holdfast.processes import is_certainly_dead, named
from holdfast.records.checkpoint import CheckpointInfo
from holdfast.records.errors import Corrupt
from holdfast.records.failure import AgentSummary
from holdfast.records.request import Request
from holdfast.records.thread import ThreadInfo
from holdfast.records.turn import SessionSummary
from holdfast.records.words import Status
from holdfast.sync.agents import read_summary as read_agent_summary
from holdfast.sync.session import read_summary

if TYPE_CHECKING:
    from holdfast.sync import Store

THREADS = (
    Column("THREAD", gives_way=True),
    Column("STATUS"),
    Column("SEQ", number=True),
    Column("SIZE", number=True),
    Column("UPDATED"),
    Column("LABELS", gives_way=True),
)
UNSEARCHED = "encrypted threads were not searched for labels; to search them"
ENDED_BADLY = {Status.FAILED, Status.CANCELLED}
ROWS = (
    Column("SEQ", number=True),
    Column("SAVED"),
    Column("STATUS"),
    Column("CAUSE"),
    Column("PHASE"),
    Column("NOTES", gives_way=True),
)


@command("threads")
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.value for status in Status]),
    help="Only threads that stand so.",
)
@click.option("--label", multiple=True, metavar="NAME=VALUE", type=named_text, help="Only threads with this label.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(0), help="At most so many; 0 for all.")
def threads(session: Session, status: tuple[str, ...], label: tuple[tuple[str, str], ...], limit: int) -> Answer:
    """List threads, the newest first."""
    store = session.store
    found = list_threads(store, status, dict(label), min(limit + 1, PAGE) if limit else PAGE)
    infos = list(islice(found, limit or None))
    more = next(found, None) is not None if limit else False
    unsearched = bool(label) and any(info.sealed_by is not None for info in list_threads(store))
    if unsearched and session.as_json:
        click.echo(f"warning: {UNSEARCHED} {key_advice(store)}", err=True)
    hidden = _hidden_lines(infos, key_advice(store), unsearched=unsearched)
    return Answer(infos, lambda screen: _thread_lines(screen, infos, hidden, more=more))


def _hidden_lines(infos: list[ThreadInfo], advice: str, *, unsearched: bool) -> list[str]:
    """What could not be listed for want of a key."""
    sealed_count = sum(info.sealed_by is not None for info in infos)
    listed = f"{counted(sealed_count, 'thread')} encrypted, with hidden labels; to see them {advice}"
    return [listed] * bool(sealed_count) + [f"{UNSEARCHED} {advice}"] * unsearched


def _thread_lines(screen: Screen, infos: list[ThreadInfo], hidden: list[str], *, more: bool) -> Iterator[str]:
    if infos:
        yield from screen.table(THREADS, [_thread_row(screen, info) for info in infos])
    else:
        yield "no threads"
    yield from map(screen.faint, hidden)
    if more:
        yield screen.faint(f"… and more; these are the first {len(infos)}. --limit 0 lists all")


def _thread_row(screen: Screen, info: ThreadInfo) -> tuple[str, ...]:
    if info.damaged is not None:
        return info.thread_id, standing(info), "", "", "", info.damaged
    labels = " ".join(f"{name}={value}" for name, value in info.labels.items())
    return (
        info.thread_id,
        standing(info),
        str(info.seq),
        size(info.stored_bytes),
        screen.time(info.updated_at),
        labels,
    )


@command("show")
@thread_argument()
@click.option("--limit", default=20, show_default=True, type=click.IntRange(0), help="Show up to N rows; 0 for all.")
@click.option("--journal", is_flag=True, help="Also what was started, begun, asked, answered, ended.")
def show(session: Session, thread: str, limit: int, journal: bool) -> Answer:
    """Show a thread: how it stands, what it asks, and its checkpoints, the newest first."""
    store = session.store
    info = read_thread(store, find_thread(store, thread))
    if info.damaged is not None:
        raise Corrupt(f"{info.damaged}; `holdfast delete` removes it", record=info.thread_id)
    if info.sealed_by is not None:
        return _sealed(info, key_advice(store))
    rows, more_count = _rows(store, info, limit, journal=journal)
    newest = store.latest(info.thread_id)
    requests = _standing(info, requests_of(store, info.thread_id))
    summary = read_summary(store, info.thread_id) if info.row_count else None
    talked = summary if summary is not None and summary.role else None
    attempts = read_agent_summary(store, info.thread_id) if info.row_count else None
    tried = attempts if attempts is not None and attempts.agent else None
    work = read_work(store, info.thread_id)
    loop = read_loop(work, newest)
    workflow = read_workflow(work, newest, journal_of(store, info.thread_id))
    document = {
        "thread": info,
        "work": work,
        "session": talked,
        "agent": tried,
        "loop": loop,
        "workflow": workflow,
        "requests": requests,
        "checkpoints": rows,
        "more": more_count,
    }
    recorded = newest.lazy_steps if newest is not None else ()
    step_count = len(recorded)
    facts = [("steps", f"{step_count} recorded")] if step_count else []
    facts += _session_facts(talked) if talked is not None else []
    facts += _agent_facts(tried) if tried is not None else []
    facts += loop_facts(loop) if loop is not None else []
    facts += workflow_facts(workflow) if workflow is not None else []
    calls = {step.metadata.get("key"): arguments_of(step) for step in recorded}
    hints = list(next_commands(store, info.thread_id, work.begun)) if _can_resume(info, requests) else []

    def lines(screen: Screen) -> Iterator[str]:
        yield from _shown(screen, info, work, facts, requests, rows, calls)
        if more_count:
            yield screen.faint(f"… and {more_count:,} more; --limit 0 shows all")
        if hints:
            yield ""
            yield from map(screen.faint, hints)

    return Answer(document, lines)


def _rows(store: "Store", info: ThreadInfo, limit: int, *, journal: bool) -> tuple[list[CheckpointInfo], int]:
    """The newest rows, and how many more there are."""
    if not info.seq and not journal:
        return [], 0
    if not limit:
        return list(every(store.history(info.thread_id, limit=PAGE, journal=journal))), 0
    page = store.history(info.thread_id, limit=limit, journal=journal)
    rest = store.history(info.thread_id, cursor=page.next, limit=PAGE, journal=journal) if page.next else None
    return list(page), sum(1 for _ in every(rest))


def _sealed(info: ThreadInfo, advice: str) -> Answer:
    """What there is to say of a thread whose key is missing."""
    names = ("work", "session", "agent", "loop", "workflow", "requests", "checkpoints")
    document = {"thread": info, **dict.fromkeys(names)}
    hidden = f"labels, error, requests, steps and checkpoints are encrypted with key {info.sealed_by!r}"

    def lines(screen: Screen) -> Iterator[str]:
        yield from screen.facts(_facts(screen, info, Work()))
        yield ""
        yield from screen.wrapped(f"Its {hidden}. To see them {advice}.", screen.width)

    return Answer(document, lines)


def _can_resume(info: ThreadInfo, requests: list[Request]) -> bool:
    """True if a thread stands still until somebody resumes it."""
    if info.status is Status.INPUT_REQUIRED:
        return not any(request.status == "open" for request in requests)
    return info.status is Status.FAILED or is_abandoned(info, datetime.now(UTC))


def _standing(info: ThreadInfo, requests: list[Request]) -> list[Request]:
    """What is asked; of a thread that waits though all is answered, the last answer: it is to be run again."""
    still_open = [request for request in requests if request.status == "open"]
    return still_open or (requests[-1:] if info.status is Status.INPUT_REQUIRED else [])


def _shown(
    screen: Screen,
    info: ThreadInfo,
    work: Work,
    more: list[tuple[str, str]],
    requests: list[Request],
    rows: list[CheckpointInfo],
    calls: Mapping[Any, str],
) -> Iterator[str]:
    yield from screen.facts([*_facts(screen, info, work), *more])
    for request in requests:
        yield ""
        yield from request_lines(screen, request)
    if rows:
        yield ""
        yield from screen.table(ROWS, [_checkpoint_row(screen, row, calls) for row in rows])


def _facts(screen: Screen, info: ThreadInfo, work: Work) -> Iterable[tuple[str, str]]:
    room = screen.width - 10
    error = info.error if info.status in ENDED_BADLY else ""
    yield "thread", printable(info.thread_id)
    yield "started", screen.fit(_call(work), room) if work.function else ""
    yield "status", screen.word(standing(info))
    yield "result", screen.fit(inline(work.result), room) if work.result is not None else ""
    for number, line in enumerate(screen.wrapped(error or "", room)):
        yield "" if number else "error", screen.style(line, fg="red") if line else ""
    yield "held by", screen.fit(_holder(screen, info), room)
    for key, begun_at in work.begun.items():
        call = f"{key}({work.begun_with[key]})" if key in work.begun_with else key
        yield "begun", screen.fit(f"{call}, {screen.time(begun_at)}; its end is not recorded", room)
    yield "wakes", screen.time(info.wake_at) if info.wake_at else ""
    yield "labels", screen.fit(" ".join(f"{name}={value}" for name, value in info.labels.items()), room)
    yield "created", screen.time(info.created_at)
    yield "updated", screen.time(info.updated_at)
    yield "stored", f"{size(info.stored_bytes)} in {counted(info.row_count, 'row')}"


def _session_facts(summary: SessionSummary) -> list[tuple[str, str]]:
    usage, failed = summary.usage, f", {summary.failed_count} failed" if summary.failed_count else ""
    kinds = {"in": usage.input_tokens, "out": usage.output_tokens}
    kinds |= {"from a cache": usage.cache_read_tokens, "to a cache": usage.cache_write_tokens}
    split = ", ".join(f"{count:,} {name}" for name, count in kinds.items() if count)
    tools = f"; {counted(usage.tool_calls, 'tool call')}" if usage.tool_calls else ""
    return [
        ("session", printable(f"{summary.role} / {summary.phase}")),
        ("turns", f"{summary.turn_count:,}{failed}"),
        ("usage", f"{usage.tokens:,} tokens ({split}){tools}" if usage.tokens else tools.removeprefix("; ")),
        ("cost", summary.price if summary.cost_usd or summary.unpriced_count else ""),
    ]


def _agent_facts(summary: AgentSummary) -> list[tuple[str, str]]:
    usage = summary.usage
    failed = [f"{kind.value} → {action}" for kind, action in zip(summary.failures, summary.actions, strict=True)]
    went = ", ".join(f"to {target}" if target else "to the beginning" for target in summary.rollbacks)
    split = f"{usage.tokens:,} tokens ({usage.input_tokens:,} in, {usage.output_tokens:,} out)"
    return [
        ("agent", printable(summary.agent)),
        ("failed", f"{counted(len(failed), 'attempt')}: {', '.join(failed)}" if failed else ""),
        ("rollbacks", f"{len(summary.rollbacks)}: {went}" if went else ""),
        ("usage", split if usage.tokens else ""),
        ("cost", f"{summary.cost_usd:.4f} USD" if summary.cost_usd else ""),
    ]


def _call(work: Work) -> str:
    """The call that a durable function was started with."""
    named = [f"{name}={inline(value)}" for name, value in work.named.items()]
    return f"{work.function}({', '.join([*map(inline, work.arguments), *named])})"


def _holder(screen: Screen, info: ThreadInfo) -> str:
    """The process that has the thread, whether it is known to be gone, and until when others wait for it."""
    if info.lease is None:
        return ""
    owner, ends = info.lease.owner, info.lease.expires_at
    gone = ", which is gone" if is_certainly_dead(owner) else ""
    return f"{named(owner)}{gone}; its lease {'expired' if ends <= screen.now else 'ends'} {screen.time(ends)}"


def _checkpoint_row(screen: Screen, row: CheckpointInfo, calls: Mapping[Any, str]) -> tuple[str, ...]:
    notes = ["pinned"] * row.pinned + ["journal"] * row.journal
    notes += [_note(name, value) for name, value in row.metadata.items()]
    step = row.metadata.get("step")
    if isinstance(step, str) and calls.get(step):
        notes.append(f"({calls[step]})")
    phase = row.phase.value if row.phase else ""
    return str(row.seq), screen.time(row.created_at), row.status.value, row.cause.value, phase, " ".join(notes)


def _note(name: str, value: Any) -> str:
    """A piece of metadata; of a transition, from where to where."""
    if name == "transition" and isinstance(value, dict) and {"from", "to"} == set(value):
        return f"{value['from']} → {value['to']}"
    return f"{name}={value if isinstance(value, str) else inline(value)}"


@command("stats")
def stats(session: Session) -> Answer:
    """Say how much the store holds."""
    found = session.store.stats()

    def lines(screen: Screen) -> Iterator[str]:
        yield from screen.facts(
            [("threads", f"{found.threads:,}"), ("rows", f"{found.rows:,}"), ("bytes", size(found.bytes))]
        )
        if found.statuses:
            yield ""
            ordered = sorted(found.statuses.items(), key=lambda item: -item[1])
            yield from screen.table(
                (Column("STATUS"), Column("THREADS", number=True)),
                [(word.replace("_", " "), f"{count:,}") for word, count in ordered],
            )

    return Answer(found, lines)
