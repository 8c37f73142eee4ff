"""Reports of a store about itself: its guarantee, its size, its health, what was copied."""

from datetime import datetime

import msgspec

from holdfast.records.words import Durability


class Guarantee(msgspec.Struct, frozen=True, kw_only=True):
    """The effective durability, read from the store's own settings."""

    level: Durability
    store: str
    details: dict[str, str] = {}


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds. Threads whose head cannot be read count as `damaged` in `statuses`; their size is unknown."""

    threads: int
    rows: int
    bytes: int
    statuses: dict[str, int]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One damaged record."""

    thread_id: str
    record: str
    message: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification: how many records were checked, and their problems."""

    checked: int
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        """True if nothing is damaged."""
        return not self.problems


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did: the threads copied, with their rows and bytes, and how many already existed.

    `conflicts` exist and differ, `damaged` are damaged in the source: both were skipped.
    """

    threads: int = 0
    rows: int = 0
    bytes: int = 0
    skipped: int = 0
    conflicts: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    def __add__(self, other: "Copied") -> "Copied":
        return Copied(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The open threads of a queue, by what they wait for."""

    name: str
    ready: int = 0
    """How many are due and wait for a worker."""
    delayed: int = 0
    """How many wait for a moment."""
    running: int = 0
    """How many are held by a run."""
    waiting: int = 0
    """How many wait for an answer."""
    oldest_ready: datetime | None = None
    """Since when the oldest one that is ready is due."""
    functions: tuple[str, ...] = ()
    """The functions that run them."""
