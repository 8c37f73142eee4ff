"""Every backend keeps every promise of the interface, and every store over it every promise of the API."""

import os
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from holdfast.records.words import Durability
from holdfast.stores.backend import Backend
from holdfast.stores.file import FileBackend
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.objects import ObjectBackend
from holdfast.stores.objects.names import head_name
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.testing.conformance import BackendConformance, Kit, StoreConformance
from object_map import ObjectMap
from stores.file_scenes import log_of


class InMemory(Kit):
    def backend(self) -> Backend:
        return MemoryBackend()


class InSQLiteMemory(Kit):
    def backend(self) -> Backend:
        return SQLiteBackend(":memory:")


class OnDisk(Kit):
    """Each backend has a directory of its own; another one is made from what the first was made from."""

    @pytest.fixture(autouse=True)
    def _new_places(self, tmp_path: Path) -> None:
        self.places: dict[Backend, str] = {}
        self.names = (str(tmp_path / str(number)) for number in count())

    def make(self, place: str) -> Backend:
        raise NotImplementedError

    def _made(self, place: str) -> Backend:
        backend = self.make(place)
        self.places[backend] = place
        return backend

    def backend(self) -> Backend:
        return self._made(next(self.names))

    def reopen(self, backend: Backend) -> Backend:
        return self._made(self.places[backend])


class InSQLite(OnDisk):
    def make(self, place: str) -> Backend:
        return SQLiteBackend(place, Durability.PROCESS)

    def damage(self, backend: Backend, thread: bytes) -> None:
        number = "(SELECT number FROM threads WHERE thread = ?)"
        sql = f"UPDATE rows SET header = 'text' WHERE digest = x'' AND id >> 28 = {number}"
        with closing(sqlite3.connect(self.places[backend], isolation_level=None)) as connection:
            assert connection.execute(sql, (thread,)).rowcount == 1


class InFiles(OnDisk):
    def make(self, place: str) -> Backend:
        return FileBackend(place, Durability.PROCESS)

    def damage(self, backend: Backend, thread: bytes) -> None:
        log = log_of(Path(self.places[backend]), thread)
        log.unlink()
        os.mkfifo(log)


class InObjects(Kit):
    def setup_method(self) -> None:
        super().setup_method()
        self.maps: dict[Backend, ObjectMap] = {}

    def _made(self, objects: ObjectMap) -> Backend:
        backend = ObjectBackend(objects)
        self.maps[backend] = objects
        return backend

    def backend(self) -> Backend:
        return self._made(ObjectMap())

    def reopen(self, backend: Backend) -> Backend:
        return self._made(self.maps[backend])

    def damage(self, backend: Backend, thread: bytes) -> None:
        self.maps[backend].kept[head_name(thread)] = (b"garbage", "planted")


class TestMemoryBackend(InMemory, BackendConformance): ...


@pytest.mark.slow
class TestSQLiteMemoryBackend(InSQLiteMemory, BackendConformance): ...


class TestSQLiteBackend(InSQLite, BackendConformance): ...


@pytest.mark.again
class TestFileBackend(InFiles, BackendConformance): ...


@pytest.mark.again
class TestObjectBackend(InObjects, BackendConformance): ...


class TestMemoryStore(InMemory, StoreConformance): ...


@pytest.mark.again
class TestSQLiteStore(InSQLite, StoreConformance): ...


@pytest.mark.again
class TestFileStore(InFiles, StoreConformance): ...


@pytest.mark.again
class TestObjectStore(InObjects, StoreConformance): ...


@pytest.mark.slow
class TestAwaitableMemoryStore(InMemory, StoreConformance):
    awaitable = True


@pytest.mark.again
class TestAwaitableSQLiteStore(InSQLite, StoreConformance):
    awaitable = True


@pytest.mark.slow
class TestAwaitableFileStore(InFiles, StoreConformance):
    awaitable = True


@pytest.mark.slow
class TestAwaitableObjectStore(InObjects, StoreConformance):
    awaitable = True
