"""The work on a thread, as its journal tells: what was started, what came of it, what was begun and not ended."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.codec import decode
from holdfast.history.entries import Begun
from holdfast.history.journal import Journal
from holdfast.ports import run_blocking
from holdfast.records.errors import NotFound
from holdfast.records.times import from_microseconds
from holdfast.records.words import Status
from holdfast.runs.store import tools_of
from holdfast.runtimes.agent.memory import AGENT

if TYPE_CHECKING:
    from holdfast.sync import Store


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a thread, of any runtime."""

    function: str = ""
    """The durable function that it was started as; empty if it was not."""
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    result: Any = None
    begun: dict[str, datetime] = {}
    """The steps with an effect that were begun and have no end yet, and when they were."""
    begun_with: dict[str, str] = {}
    """A preview of their arguments, where one is kept."""


def journal_of(store: "Store", thread_id: str) -> Journal:
    """The journal of a thread, read without a claim on it; empty if it was claimed and nothing was written yet."""
    tools = tools_of(store._store)  # noqa: SLF001  the blocking store has nothing of its own
    load = tools.ports.perform(tools.reader.load_head, tools.reader.key(thread_id))
    try:
        return Journal.of(run_blocking(load).log.document)
    except NotFound:
        store.thread(thread_id)
        return Journal()


def function_of(store: "Store", thread_id: str) -> str:
    """What a thread was started as: the name of a durable function, or of an agent; empty if it is neither's."""
    try:
        started = journal_of(store, thread_id).started
    except NotFound:
        return ""
    return started.function if started is not None else ""


def read_work(store: "Store", thread_id: str) -> Work:
    """The work of a thread, read without a claim on it."""
    journal = journal_of(store, thread_id)
    begun = [memo for memo in journal.memos.values() if isinstance(memo, Begun)]
    return Work(
        **_started(journal),
        result=_result(journal),
        begun={memo.key: from_microseconds(memo.at) for memo in begun},
        begun_with={memo.key: memo.arguments for memo in begun if memo.arguments},
    )


def _started(journal: Journal) -> dict[str, Any]:
    started = journal.started
    if started is None or started.function.startswith(AGENT):
        return {}
    given = decode(started.arguments)
    if isinstance(given, list) and len(given) == 2 and isinstance(given[0], list) and isinstance(given[1], dict):
        return {"function": started.function, "arguments": tuple(given[0]), "named": given[1]}
    return {"function": started.function, "arguments": (given,), "named": {}}  # of a runtime of the user's own


def _result(journal: Journal) -> Any:
    ended = journal.ended
    return decode(ended.value) if ended is not None and ended.status == Status.COMPLETE.value else None
