"""Stores by kind: the same store, named by where it keeps its threads."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from holdfast.codec.keys import KeyRing
from holdfast.ports import Ports
from holdfast.records.retention import Retention
from holdfast.records.words import Durability
from holdfast.runs.store import Store
from holdfast.stores import opening
from holdfast.stores.opening import Options, Shared
from holdfast.stores.sweeper import Sweeper

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Source as PostgresSource


class OpenedStore(Store):
    """A store over a backend that may be shared with other handles, with a sweeper if one was asked for."""

    def __init__(
        self,
        shared: Shared,
        *,
        ports: Ports | None = None,
        keys: KeyRing | bytes | None = None,
        compress: bool = True,
        retention: Retention | None = None,
        sweep: timedelta | float | None = None,
        namespace: str = "",
    ) -> None:
        self._sweeper: Sweeper | None = None
        try:
            super().__init__(
                shared.backend,
                committer=shared.committer,
                ports=ports,
                keys=keys,
                compress=compress,
                retention=retention,
                namespace=namespace,
                on_close=lambda: self._release(shared),
            )
            self._sweeper = None if sweep is None else Sweeper(self._upkeep, self._listings, retention, sweep)
        except BaseException:
            shared.release()
            raise

    def _release(self, shared: Shared) -> None:
        if self._sweeper is not None:
            self._sweeper.stop()
        shared.release()


class MemoryStore(OpenedStore):
    """A store in this process's memory: gone when it ends. Each is its own."""

    def __init__(
        self, *, durability: Durability | str | None = None, inline: bool = True, **options: Unpack[Options]
    ) -> None:
        super().__init__(opening.memory(opening.level_of(durability), inline=inline), **options)


class SQLiteStore(OpenedStore):
    """A store in one SQLite file. `":memory:"` is private to this object."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability | str | None = None,
        inline: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(opening.sqlite(path, opening.level_of(durability), inline=inline), **options)


class FileStore(OpenedStore):
    """A store in a directory: one append-only file per thread."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability | str | None = None,
        inline: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(opening.file(path, opening.level_of(durability), inline=inline), **options)


class PostgresStore(OpenedStore):
    """A store in a schema of a PostgreSQL database, which is made if it is not there.

    `source`: a URL, a pool of psycopg_pool (used itself if it blocks; else its settings are), or a psycopg connection
    (its settings). `prepare_threshold` allows server-side prepared statements after so many uses: not through a pooler
    that cannot keep them apart. `connections` is the most that are opened to a URL; an outage is borne in silence for
    `patience` seconds.
    """

    def __init__(
        self,
        source: "PostgresSource",
        schema: str | None = None,
        *,
        durability: Durability | str | None = None,
        prepare_threshold: int | None = None,
        connections: int = 8,
        patience: float = 10.0,
        **options: Unpack[Options],
    ) -> None:
        shared = opening.postgres(
            source,
            schema,
            opening.level_of(durability),
            inline=False,
            prepare_threshold=prepare_threshold,
            connections=connections,
            patience=patience,
        )
        super().__init__(shared, **options)


def open(  # noqa: A001  the public name: holdfast.open
    url: str | os.PathLike[str] | None = None,
    *,
    durability: Durability | str | None = None,
    keys: KeyRing | bytes | None = None,
    compress: bool = True,
    retention: Retention | None = None,
    sweep: timedelta | float | None = None,
    namespace: str = "",
    inline: bool = True,
) -> Store:
    """Open a store: a path is a SQLite file, or a URL: `memory:`, `file:DIR`, `sqlite:PATH`, `postgresql:`.

    Without a URL the environment's HOLDFAST_STORE is taken, else `holdfast.db`. It connects at the first use.
    `durability`: `durable` (the default; survives power loss) or `process` (survives a killed process). `keys` encrypt
    everything but ids. `retention` is what `prune()` applies, every `sweep` seconds in the background if given.
    Two namespaces share nothing. `inline=False` never commits on the event loop's own thread.
    """
    return OpenedStore(
        opening.resolve(url, durability, inline=inline),
        keys=keys,
        compress=compress,
        retention=retention,
        sweep=sweep,
        namespace=namespace,
    )
