"""Swaps to try on an object store, processes over one store, and faults that strike one of their calls."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from holdfast.records.head import Head, encode_head
from holdfast.records.identity import namespace_prefix, thread_key
from holdfast.records.rows import Row, Swap
from holdfast.stores.backend import Backend
from holdfast.stores.objects import ObjectBackend
from object_map import Hook, ObjectMap

SPACE = namespace_prefix("")
THREAD = thread_key(SPACE, "a")
OTHER = thread_key(SPACE, "b")
TAIL_BYTES = 0
"""How many bytes of rows may ride in the heads that a process writes."""
TOMBSTONE = Head(token=3, deleted=True)


def head(seq: int, *, thread: bytes = THREAD, **fields: Any) -> Head:
    return Head(**{"seq": seq, "status": "idle", "created_at": 1, "owner": thread.hex()[:4], **fields})


def row(seq: int, text: str = "", base: int = 1) -> Row:
    content = f"{seq} {base} {text}".encode()
    return Row(seq, base, sha256(content).digest()[:16], content, content * 2)


def blob(seq: int, data: bytes) -> tuple[bytes, bytes]:
    return seq.to_bytes(5, "big") + sha256(data).digest()[:11], data


def make(old: Head | None, new: Head, *rows: Row, thread: bytes = THREAD, **more: Any) -> Swap:
    expected = encode_head(thread, old) if old else b""
    return Swap(thread, expected, encode_head(thread, new), new, rows, **more)


def steps(count: int, *, thread: bytes = THREAD, start: int = 1, **more: Any) -> list[Swap]:
    """A thread of `count` rows, each with a blob of its own."""
    made = []
    for seq in range(start, start + count):
        old = head(seq - 1, thread=thread) if seq > 1 else None
        new = head(seq, thread=thread)
        made.append(make(old, new, row(seq), thread=thread, blobs=dict([blob(seq, b"%d" % seq)]), **more))
    return made


def play(backend: Backend, swaps: Sequence[Swap]) -> None:
    for swap in swaps:
        assert backend.swap([swap]) == [True]


IDS = [blob(seq, b"%d" % seq)[0] for seq in range(1, 12)] + [blob(seq, b"big")[0] for seq in range(1, 12)]


def view(backend: Backend, thread: bytes = THREAD) -> object:
    """Everything that can be read of a thread but its blobs."""
    index = backend.index(thread, None, None)
    rows = {entry.seq: backend.rows(thread, entry.seq) for entry in index}
    return backend.heads([thread]), index, rows, backend.inbox(thread)


def blobs_of(backend: Backend, thread: bytes = THREAD) -> set[tuple[bytes, bytes]]:
    """The blobs of a thread. Some that no row names may be among them, for a while."""
    return set(backend.blobs(thread, IDS).items())


def process(kept: ObjectMap, hook: Hook | None = None, **options: Any) -> ObjectBackend:
    """Another process over the same objects. No row rides in the head, unless TAIL_BYTES says otherwise."""
    return ObjectBackend(kept.client(hook), **{"parallel": 1, "tail_bytes": TAIL_BYTES, **options})


def counted(kept: ObjectMap) -> tuple[ObjectBackend, list[tuple[str, str]]]:
    calls: list[tuple[str, str]] = []
    return process(kept, lambda call, name: calls.append((call, name))), calls


def names(kept: ObjectMap, part: str = "") -> list[str]:
    return sorted(name for name in kept.kept if part in name)


def segments(kept: ObjectMap) -> list[tuple[int, int]]:
    """The first and the last row of each segment there is, in the log or not."""
    contents = [msgspec.msgpack.decode(kept.kept[name][0]) for name in names(kept, "/rows/")]
    return sorted((rows[0][0], rows[-1][0]) for rows in contents)


def stored(kept: ObjectMap) -> list[int]:
    """The seqs of all rows in segments; more than once if they are in several."""
    return sorted(seq for first, last in segments(kept) for seq in range(first, last + 1))


class Crashed(BaseException):
    """The process is dead: no handler of ours may run calls after it."""


class Fault:
    """Fails one call: the `at`th, or the first that `when` says. Done first if `late`. A crash fails all after it."""

    def __init__(self, error: BaseException, when: Callable[[str], bool] | int, *, late: bool = False) -> None:
        self.error = error
        self.when = when
        self.late = late
        self.count = 0
        self.struck = False

    def __call__(self, call: str, name: str) -> BaseException | None:
        self.count += 1
        if self.struck:
            if isinstance(self.error, Crashed):
                raise self.error
            return None
        self.struck = self.count == self.when if isinstance(self.when, int) else self.when(f"{call} {name}")
        if self.struck and not self.late:
            raise self.error
        return self.error if self.struck else None


def leave_garbage(kept: ObjectMap, swap: Swap) -> None:
    """A process with an old head that dies before it could take back what it put."""
    hook = Fault(Crashed(), lambda it: it.startswith("put_if_match"))
    zombie = process(kept, hook)
    zombie.heads([THREAD])
    with pytest.raises(Crashed):
        zombie.swap([swap])
