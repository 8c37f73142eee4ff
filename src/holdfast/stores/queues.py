"""The queues of a store: how many threads wait in each, and for what. Blocking."""

from holdfast.records.reports import QueueInfo
from holdfast.records.times import from_microseconds
from holdfast.stores.agenda import Entry, depth_of
from holdfast.stores.reader import Reader


def list_queues(reader: Reader) -> list[QueueInfo]:
    """Return the queues that have open threads, by name."""
    entries = reader.agenda.entries(reader.bindings.prefix)
    names = sorted({entry.queue for entry in entries.values()})
    return [_described(reader, name, entries) for name in names]


def _described(reader: Reader, name: str, entries: dict[bytes, Entry]) -> QueueInfo:
    depth = depth_of(entries.values(), name, reader.agenda.now())
    return QueueInfo(
        name=name,
        ready=depth.ready,
        delayed=depth.delayed,
        running=depth.running,
        waiting=depth.waiting,
        oldest_ready=from_microseconds(depth.oldest_ready) if depth.oldest_ready else None,
        functions=_functions(reader, {entry.route: key for key, entry in entries.items() if entry.queue == name}),
    )


def _functions(reader: Reader, samples: dict[bytes, bytes]) -> tuple[str, ...]:
    """Return the functions of these threads, of which there is one for each route."""
    found = set()
    for thread in samples.values():
        seen = reader.seen(thread)
        if seen is not None and not seen.head.deleted:
            found.add(reader.bindings.read_summary(reader.binding(thread, seen.head), seen.head).function)
    return tuple(sorted(found - {""}))
