"""Where a store under test keeps its threads: opened any number of times, and left as a crash leaves it."""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Protocol

from holdfast.stores.backend import Backend
from holdfast.stores.memory import MemoryBackend


class Place(Protocol):
    """A place that can be opened several times at once, and crashed."""

    def open(self) -> Backend:
        """Return another backend on this place, not yet open."""
        ...

    def crashed(self) -> "Place":
        """Return a place with what is on disk now, as if all processes that use this one were killed."""
        ...


class DirectoryPlace:
    """A place in a directory. `make(path)` returns a backend that keeps everything below that path."""

    def __init__(self, directory: Path, make: Callable[[Path], Backend]) -> None:
        self.directory = directory
        self._make = make
        self._crashes = count(1)
        directory.mkdir(parents=True, exist_ok=True)

    def open(self) -> Backend:
        """See `Place.open`."""
        return self._make(self.directory)

    def crashed(self) -> "DirectoryPlace":
        """Return a copy of every file as it is now. Handles on the old files cannot change it."""
        copy = self.directory.with_name(f"{self.directory.name}-{next(self._crashes)}")
        shutil.copytree(self.directory, copy)
        return DirectoryPlace(copy, self._make)


class _Kept(MemoryBackend):
    """A memory backend that outlives its handles."""

    def close(self) -> None:
        """Do nothing: the place keeps it."""


class MemoryPlace:
    """A place in memory, which keeps everything through a crash."""

    def __init__(self, backend: Backend | None = None) -> None:
        self._backend = _Kept() if backend is None else backend

    def open(self) -> Backend:
        """See `Place.open`; it is the same memory each time."""
        return self._backend

    def crashed(self) -> "MemoryPlace":
        """Return self: there is no disk to lose."""
        return self
