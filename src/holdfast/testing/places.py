"""Where the threads of a store under test are kept: opened any number of times, and left as a crash would leave it."""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Protocol

from holdfast.stores.backend import Backend
from holdfast.stores.memory import MemoryBackend


class Place(Protocol):
    """What a model needs of a store: to open it, several times at once, and to lose every process that uses it."""

    def open(self) -> Backend:
        """Another backend on this place, not yet open."""
        ...

    def crashed(self) -> "Place":
        """A place with what is on disk at this moment, as after the sudden death of all who use this one."""
        ...


class DirectoryPlace:
    """A place in a directory of its own. `make` gives a backend that keeps everything below the path it is given."""

    def __init__(self, directory: Path, make: Callable[[Path], Backend]) -> None:
        self.directory = directory
        self._make = make
        self._crashes = count(1)
        directory.mkdir(parents=True, exist_ok=True)

    def open(self) -> Backend:
        """See `Place.open`."""
        return self._make(self.directory)

    def crashed(self) -> "DirectoryPlace":
        """A copy of every file as it is now. Handles on the old files cannot reach it."""
        copy = self.directory.with_name(f"{self.directory.name}-{next(self._crashes)}")
        shutil.copytree(self.directory, copy)
        return DirectoryPlace(copy, self._make)


class _Kept(MemoryBackend):
    """A memory backend that outlives its handles."""

    def close(self) -> None:
        """Nothing: the place is what keeps it."""


class MemoryPlace:
    """Memory has no disk, and so nothing to crash: it keeps everything."""

    def __init__(self, backend: Backend | None = None) -> None:
        self._backend = _Kept() if backend is None else backend

    def open(self) -> Backend:
        """See `Place.open`: the same memory each time."""
        return self._backend

    def crashed(self) -> "MemoryPlace":
        """Itself."""
        return self
