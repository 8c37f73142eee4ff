"""The kinds of store under test, by name: places to open them at, and how to open one there."""

from collections.abc import Callable, Collection, Iterable
from hashlib import sha256
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from holdfast import sync
from holdfast.records.words import Durability
from holdfast.stores.backend import Backend
from holdfast.stores.file import FileBackend
from holdfast.stores.objects import ObjectBackend
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.testing.places import DirectoryPlace, MemoryPlace, Place
from object_map import ObjectMap

ON_DISK = ("sqlite", "file")
EVERY_KIND = ("memory", *ON_DISK)
ON_SERVERS = ("postgres", "redis", "s3")


def shared_kinds(*kinds: str) -> list[ParameterSet]:
    """Those kinds of store, as parameters of a test: the ones on servers carry the mark `servers`."""
    return [pytest.param(kind, marks=[pytest.mark.servers] if kind in ON_SERVERS else []) for kind in kinds]


def parameters(*names: str, quick: Collection[str], rare: Collection[str] = ()) -> list[ParameterSet]:
    """Those kinds of store, or worlds over them, as parameters of a fixture.

    The quick ones carry no mark, the rare ones the mark `slow`, all others the mark `again`.
    """

    def parameter(name: str) -> ParameterSet:
        if name in quick:
            return pytest.param(name)
        return pytest.param(name, marks=pytest.mark.slow if name in rare else pytest.mark.again)

    return [parameter(name) for name in names]


def alike(values: Iterable[Any]) -> list[ParameterSet]:
    """Values of one kind, as parameters of a test: only the first is in the quick tests."""
    first, *others = values
    return [pytest.param(first), *(pytest.param(other, marks=pytest.mark.again) for other in others)]


def worlds_over(*kinds: str) -> list[ParameterSet]:
    """Both worlds over kinds of store, as parameters of a fixture: each world and each kind in an ordinary run.

    The first world over the first kind is in the quick tests too. The store is behind one interface, and has tests of
    its own, so the other combinations are left to `make faults`.
    """
    in_turn = [f"{world}-{kind}" for world, kind in zip(cycle(("awaitable", "blocking")), kinds, strict=False)]
    every = [f"{world}-{kind}" for world in ("awaitable", "blocking") for kind in kinds]
    return parameters(*every, quick=in_turn[:1], rare={*every} - {*in_turn})


SHARED = shared_kinds(*ON_DISK, *ON_SERVERS)
"""The kinds that several processes can share."""

_numbers = count()


def sqlite_backend(directory: Path) -> Backend:
    """SQLite in a directory. `process` survives all that a test can do to it, and costs no fsync."""
    return SQLiteBackend(str(directory / "store.db"), Durability.PROCESS)


def file_backend(directory: Path) -> Backend:
    """A file store in a directory."""
    return FileBackend(str(directory / "store"), Durability.PROCESS)


MAKERS: dict[str, Callable[[Path], Backend]] = {"sqlite": sqlite_backend, "file": file_backend}


class ObjectsPlace:
    """Objects in a map that outlives the backends over it."""

    def __init__(self) -> None:
        self._objects = ObjectMap()

    def open(self) -> Backend:
        """Another backend over the same objects."""
        return ObjectBackend(self._objects)

    def crashed(self) -> "ObjectsPlace":
        """Itself: what was put is there."""
        return self


def new_place(kind: str, directory: Path) -> Place:
    """A new, empty place of that kind."""
    if kind == "memory":
        return MemoryPlace()
    if kind == "objects":
        return ObjectsPlace()
    return DirectoryPlace(directory / f"{kind}-{next(_numbers)}", MAKERS[kind])


def _word_for(directory: Path) -> str:
    """A prefix that belongs to a test's directory."""
    return "d" + sha256(str(directory).encode()).hexdigest()[:16]


def url_of(kind: str, directory: Path) -> str:
    """What to give to `open` for a store on disk in that directory; on a server, for one that belongs to it."""
    if kind == "postgres":
        from servers.postgres import url_for

        return url_for(directory)
    if kind == "redis":
        from servers import redis

        return redis.shared_server().url(_word_for(directory))
    if kind == "s3":
        from servers import s3

        return s3.shared(s3.SeaweedServer).url(_word_for(directory))
    return str(directory / "store.db") if kind == "sqlite" else f"file:{directory / 'store'}"


def open_store(kind: str, directory: Path) -> sync.Store:
    """The store on disk in that directory, through the front door."""
    return sync.open(url_of(kind, directory), durability="process")
