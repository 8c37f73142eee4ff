"""Stores by kind: the same store, named by where it keeps its threads."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from holdfast.codec.keys import KeyRing
from holdfast.ports import Ports
from holdfast.records.retention import Retention
from holdfast.records.words import Durability, KeepInputs
from holdfast.runs.store import Store
from holdfast.stores import opening
from holdfast.stores.opening import Options, Shared

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Source as PostgresSource
    from holdfast.stores.redis.settings import Source as RedisSource
    from holdfast.stores.s3.places import Source as BucketSource
    from holdfast.stores.sweeper import Sweeper


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
        inputs: KeepInputs = "preview",
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
                inputs=inputs,
                on_close=lambda: self._release(shared),
            )
            if sweep is not None:
                self._sweeper = self._sweeping(sweep)
        except BaseException:
            shared.release()
            raise

    def _sweeping(self, interval: timedelta | float) -> "Sweeper":
        from holdfast.stores.sweeper import Sweeper

        return Sweeper(self._upkeep, self._listings, self.retention, interval)

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
    (its settings). Statements are prepared after `prepare_threshold` uses, never if it is None, nor through a pooler or
    on a pool that was given. `connections` is the most that are opened to a URL; an outage is borne in silence for
    `patience` seconds.
    """

    def __init__(
        self,
        source: "PostgresSource",
        schema: str | None = None,
        *,
        durability: Durability | str | None = None,
        prepare_threshold: int | None = 5,
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


class RedisStore(OpenedStore):
    """A store in Redis or Valkey: one server, whichever Sentinel names, or a cluster.

    `source`: a URL (`redis://user:password@host/0`, `rediss://`, `redis+sentinel://host,host/service/0`,
    `redis+cluster://host,host`), or a client of redis-py, whose settings are copied. `prefix` begins every key.
    `assume` states the durability of a server that does not let its settings be read. With `replicas` a save is
    acknowledged when so many have it. With `expire=True` the server itself removes a thread that was not written to for
    `retention.ttl`; else `prune` does. At most so many `connections` are made to each server; an outage is borne in
    silence for `patience` seconds.
    """

    def __init__(
        self,
        source: "RedisSource",
        *,
        durability: Durability | str | None = None,
        prefix: str | None = None,
        assume: Durability | str | None = None,
        replicas: int | None = None,
        expire: bool = False,
        connections: int = 32,
        patience: float = 10.0,
        **options: Unpack[Options],
    ) -> None:
        given = opening.given(
            prefix=prefix,
            assume=assume,
            replicas=replicas,
            life=opening.life(options.get("retention"), expire=expire),
            connections=connections,
            patience=patience,
        )
        shared = opening.redis(source, opening.level_of(durability), inline=False, **given)
        super().__init__(shared, **options)


class S3Store(OpenedStore):
    """A store in a bucket: of S3 or what speaks like it, Google Cloud Storage (`gs://`) or Azure (`az://`).

    `source`: `s3://bucket/prefix`, perhaps with `?endpoint=…&region=…`, or a store of obstore. Credentials come from
    the environment (AWS_ACCESS_KEY_ID …). `allow_http` permits an unencrypted endpoint that is not on this machine.
    `parallel` is how many requests run side by side; an outage is borne in silence for `patience` seconds, and a reply
    waited for `timeout` seconds.
    """

    def __init__(
        self,
        source: "BucketSource",
        *,
        durability: Durability | str | None = None,
        endpoint: str | None = None,
        region: str | None = None,
        allow_http: bool = False,
        parallel: int = 16,
        patience: float = 10.0,
        timeout: float = 30.0,
        **options: Unpack[Options],
    ) -> None:
        shared = opening.bucket(
            source,
            opening.level_of(durability),
            inline=False,
            endpoint=endpoint,
            region=region,
            allow_http=allow_http,
            parallel=parallel,
            patience=patience,
            timeout=timeout,
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
    inputs: KeepInputs = "preview",
) -> Store:
    """Open a store: a path (SQLite), or a URL: `memory:`, `file:DIR`, `sqlite:PATH`, `postgresql:`, `redis:`, `s3:`.

    Without a URL the environment's HOLDFAST_STORE is taken, else `holdfast.db`. It connects at the first use.
    `durability`: `durable` (the default; survives power loss) or `process` (survives a killed process). `keys` encrypt
    everything but ids. `retention` is what `prune()` applies, every `sweep` seconds in the background if given.
    Two namespaces share nothing. `inline=False` never commits on the event loop's own thread. `inputs` says how much of
    a step's arguments its row keeps: a text of at most 200 bytes (`preview`), all of them (`full`), or `none`.
    """
    return OpenedStore(
        opening.resolve(url, durability, inline=inline),
        keys=keys,
        compress=compress,
        retention=retention,
        sweep=sweep,
        namespace=namespace,
        inputs=inputs,
    )
