"""Every parser of stored or foreign bytes, with right inputs to begin from. Each repairs what digests would refuse."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from harness.random_walk import TIGHT
from holdfast import CheckpointConfig, FailurePolicy, KeyRing, sync
from holdfast.cli.arguments import parse_keys
from holdfast.codec import decode, encode
from holdfast.codec.seal import Seal
from holdfast.history.binding import Binding, place_of
from holdfast.history.format import decode_header, decode_script
from holdfast.processes import named
from holdfast.records.errors import HoldfastError
from holdfast.records.head import decode_head
from holdfast.records.identity import CheckpointId, RequestId
from holdfast.records.rows import Row
from holdfast.stores.copying import snapshot
from holdfast.stores.file import FileBackend
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.objects.names import MarkName, blob_of, head_name, segment_version
from holdfast.stores.objects.record import Record, Segment, bind, decode_record, rows_in
from holdfast.stores.redis.keys import unpack_row
from holdfast.testing.handles import blocking_store

FOLDER = "holdfast-fuzz-"
THREAD = b"\0t"
POLICY = b"timeout: {strategy: backoff_and_retry}\nwrong_tool_called: {strategy: replan}\n"


class Target(NamedTuple):
    """A parser: right inputs, what is done with any, its share of all inputs, and whether it reads files of its own."""

    seeds: list[bytes]
    parse: Callable[[bytes], object]
    share: int
    reads_files: bool = False


def _filled(backend: Any) -> None:
    """One thread that has everything: cells, blobs, labels, steps, a request, metadata."""
    backend.tuning = TIGHT
    with blocking_store(backend, closes=False) as store:
        store.save("t", {"n": 1, "list": ["a"], "page": "z" * 9000}, metadata={"k": (1,)}, labels={"app": "x"})
        store.append("t", "list", {"deep": [1, {2: None}]})
        store.save("t", {"n": 2.5, "list": [b"b"], "page": "y" * 9000, "set": {1, 2}})
        with suppress(sync.Suspended), store.run("t") as run:
            run.step("one", str, 1)
            run.ask("fine?", {"amount": 1}, choices=("yes", "no"))


def _records() -> Iterator[tuple[str, Target]]:
    """The parsers of single records, with the digest or the checksum of the record made right."""
    memory = MemoryBackend()
    _filled(memory)
    encoded = memory.heads([THREAD])[0] or b""
    head = decode_head(THREAD, encoded)
    binding = Binding(THREAD, head.incarnation, Seal())
    swap = snapshot(memory, THREAD)
    rows = swap.rows if swap is not None else ()
    objects = msgspec.msgpack.encode(
        [THREAD, encoded, 7, b"w" * 8, 0, 3, [[1, 2, 1, 5, b"d" * 16]], {"cancel": "0" * 32}, [], {}, []]
    )
    stored = [msgspec.msgpack.encode([[row.seq, row.base, row.digest, row.header, row.body, []] for row in rows])]
    segment, record = Segment(1, len(rows), 1, 1, bytes(16)), Record(THREAD)

    def header(data: bytes) -> None:
        seq, back = 1 + data[0] % 5, data[0] % 2
        check = crc32(data[1:], crc32(place_of(seq, back), binding.check_start)).to_bytes(4, "big")
        decode_header(binding, Row(seq, seq - back, b"", data[1:] + check, b""))

    def body(data: bytes) -> None:
        decode_script(binding, decode_header(binding, rows[0]), data)

    def segments(data: bytes) -> None:
        digest = sha256(f"{record.segment_folder}{1:012}".encode() + data).digest()[:16]
        rows_in(record, replace(segment, digest=digest), data)

    yield "value", Target(_values(), decode, 300)
    yield "head", Target([encoded[:-16]], lambda data: decode_head(THREAD, data + _sha(THREAD + data)), 100)
    yield "row header", Target([bytes((row.seq - 1,)) + row.header[:-4] for row in rows], header, 100)
    yield "row body", Target([row.body[1:] for row in rows if row.body[1] == 0x93], body, 100)
    for name, seal in {"sealed": Seal(), "encrypted": Seal(key=b"k" * 32, entropy=bytes)}.items():
        seeds = [seal.seal(content, b"") for content in (b"short", b"z" * 9000)]
        yield f"{name} bytes", Target(seeds, partial(seal.unseal, identity=b"", record="it"), 30)
    yield "redis row", Target([b"\0" * 7 + b"\x01\0\0\0\x03\x08" + b"d" * 30], lambda data: unpack_row(1, data), 50)
    yield (
        "object record",
        Target([objects], lambda data: decode_record(head_name(THREAD), bind(head_name(THREAD), data)), 40),
    )
    yield "object segment", Target(stored, segments, 40)


def _values() -> list[bytes]:
    from datetime import UTC, datetime
    from decimal import Decimal
    from fractions import Fraction
    from ipaddress import ip_address, ip_network
    from pathlib import PurePosixPath
    from re import compile as pattern
    from uuid import UUID
    from zoneinfo import ZoneInfo

    nested: Any = "x"
    for _ in range(150):
        nested = [nested]
    values = [None, 1, -(2**70), 2.5, "text", b"bytes", (1, (2,)), {1, 2}, {"a": [1], 2: None}, nested]
    more = [
        datetime(2026, 1, 1, tzinfo=UTC),
        Decimal("1.50"),
        UUID(int=7),
        list(range(300)),
        {str(i): i for i in range(40)},
    ]
    special = [Fraction(1, 3), ip_address("::1"), ip_network("10.0.0.0/8"), PurePosixPath("/x"), pattern("a+"), 2j]
    kept = [
        ZoneInfo("UTC"),
        range(3),
        deque([1]),
        OrderedDict(a=1),
        defaultdict(int, a=1),
        Counter("aab"),
        frozenset({1}),
    ]
    return [encode(value) for value in [*values, *more, *special, *kept]]


def _sha(data: bytes) -> bytes:
    return sha256(data).digest()[:16]


def _foreign() -> Iterator[tuple[str, Target]]:
    """What people and other programs write: names, ids, key files, policies."""
    ring = KeyRing({"2026": b"k" * 32}, write="2026")
    wrapped = ring.wrap(b"d" * 32, THREAD, bytes)

    def names(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        for parse in (segment_version, MarkName.parse, blob_of):
            parse(text)

    def ids(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        named(text)
        for parse in (CheckpointId.parse, RequestId.parse):
            with suppress(HoldfastError):
                parse(text)

    segment = b"cd/" + b"cd" * 32 + b"/00000001/rows/000000000003-" + b"ab" * 16
    yield "object name", Target([segment, b"00000001-ff", b"a/blobs/" + b"0f" * 16], names, 50)
    yield "id", Target([b"my-thread@7.1f9a3c2e", b"t/3", b"host:12:345:abcdefgh:4026531836:00ff00ff"], ids, 50)
    yield (
        "key file",
        Target([b"2026:" + b"6b" * 32, b"# a\n\n" + b"6b" * 32 + b"\n"], lambda d: parse_keys(d, "file"), 40),
    )
    yield "wrapped key", Target([wrapped], lambda data: ring.unwrap(data, THREAD), 30)
    yield "policy in YAML", Target([POLICY], lambda d: FailurePolicy.from_yaml(d.decode("utf-8", "replace") + "\n"), 5)


class Bundles:
    """Bundles are imported from a file: each input is one frame of a bundle, its digest made right."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bundle"
        memory = MemoryBackend()
        _filled(memory)
        with blocking_store(memory, closes=False) as store:
            store.export("t", self.path)
        self.frames = list(_payloads(self.path.read_bytes()))

    def target(self) -> Target:
        return Target([bytes((at,)) + frame for at, frame in enumerate(self.frames)], self.parse, 10, reads_files=True)

    def parse(self, data: bytes) -> None:
        at = data[0] % len(self.frames)
        frames = [*self.frames[:at], data[1:], *self.frames[at + 1 :]]
        self.path.write_bytes(b"holdfast bundle 1\n\0\0" + b"".join(_frame(*each) for each in enumerate(frames, 1)))
        memory = MemoryBackend()
        store = blocking_store(memory, closes=False)
        try:
            name = store.import_(self.path)
        except HoldfastError:
            assert [*store.threads()] == []
            raise
        assert not store.verify().problems
        for info in store.threads():
            assert info.thread_id == name
            store.history(name, limit=1000)
        store.delete(name)


def _payloads(data: bytes) -> Iterator[bytes]:
    at = data.index(b"\n") + 3
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "big")
        yield data[at + 24 : at + 24 + length]
        at += 24 + length


def _frame(number: int, payload: bytes) -> bytes:
    identity = b"holdfast bundle" + number.to_bytes(8, "big")
    return len(payload).to_bytes(8, "big") + _sha(identity + payload) + payload


class Stored:
    """A whole thread of which one record is exchanged, its digests made right: everything is asked of it."""

    def __init__(self) -> None:
        self.memory = MemoryBackend()
        _filled(self.memory)
        self.swap = snapshot(self.memory, THREAD)

    def target(self) -> Target:
        assert self.swap is not None
        return Target([row.body for row in self.swap.rows], self.parse, 5)

    def parse(self, data: bytes) -> None:
        """The body of the last row, in place of the one that is there."""
        assert self.swap is not None
        *before, last = self.swap.rows
        binding = Binding(THREAD, self.swap.head.incarnation, Seal())
        place = place_of(last.seq, last.seq - last.base)
        parent = b"" if last.base == last.seq or not before else before[-1].digest
        row = replace(last, body=data, digest=binding.digest(parent, place, last.header, data))
        head = replace(self.swap.head, digest=row.digest)
        memory = MemoryBackend()
        memory.swap([replace(self.swap, rows=(*before, row), head=head, replacement=_encoded(head))])
        store = blocking_store(memory, closes=False)
        for question in (store.latest, store.history, store.thread, store.outcome, lambda _: store.requests()):
            with suppress(HoldfastError):
                question("t")
        store.verify()
        store.delete("t")


def _encoded(head: Any) -> bytes:
    from holdfast.records.head import encode_head

    return encode_head(THREAD, head)


class Logs:
    """The log of a file store, as it lies on disk."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "files"
        backend = FileBackend(str(self.root))
        _filled(backend)
        backend.close()
        (self.log,) = self.root.rglob("*.log")
        self.right = self.log.read_bytes()

    def target(self) -> Target:
        return Target([self.right], self.parse, 5, reads_files=True)

    def parse(self, data: bytes) -> None:
        self.log.write_bytes(data)
        with sync.FileStore(self.root) as store:
            for question in (store.latest, store.history, store.thread):
                with suppress(HoldfastError):
                    question("t")


class Configurations:
    """The configuration of a checkpoint manager, in TOML and in YAML."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "checkpoint.toml", folder / "checkpoint.yaml"]

    def target(self) -> Target:
        seed = b'enabled = true\nstrategy = "hybrid"\ninterval = 5\n[recovery]\ntimeout = 60\n'
        return Target([seed], self.parse, 3, reads_files=True)

    def parse(self, data: bytes) -> None:
        for path in self.paths:
            path.write_bytes(data)
            with suppress(HoldfastError):
                CheckpointConfig.load(path)


@contextmanager
def targets() -> Iterator[dict[str, Target]]:
    """All of them by name. Some write to a folder below `FOLDER`, which is gone at the end."""
    with TemporaryDirectory(prefix=FOLDER) as folder:
        yield {
            **dict([*_records(), *_foreign()]),
            "bundle": Bundles(Path(folder)).target(),
            "thread": Stored().target(),
            "file log": Logs(Path(folder)).target(),
            "configuration": Configurations(Path(folder)).target(),
        }
