"""Stores by kind: the same store, named by where it keeps its threads."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.ports import Ports
from holdfast.runs.store import Store
from holdfast.stores import locations
from holdfast.stores.locations import Shared
from holdfast.stores.options import BucketOptions, HandleOptions, LocalOptions, PostgresOptions, RedisOptions

if TYPE_CHECKING:
    from holdfast.stores.postgres.connections import Source as PostgresSource
    from holdfast.stores.redis.settings import Source as RedisSource
    from holdfast.stores.s3.places import Source as BucketSource
    from holdfast.stores.sweeper import Sweeper


class OpenedStore(Store):
    """A store over a backend that may be shared with other handles, with a sweeper if one was asked for."""

    def __init__(self, shared: Shared, options: HandleOptions, ports: Ports | None = None) -> None:
        self._sweeper: Sweeper | None = None
        given: dict[str, Any] = {**options}
        sweep: timedelta | float | None = given.pop("sweep", None)
        try:
            super().__init__(
                shared.backend,
                committer=shared.committer,
                ports=ports,
                on_close=lambda: self._release(shared),
                **given,
            )
            if sweep is not None:
                self._sweeper = self._sweeping(sweep)
        except BaseException:
            shared.release()
            raise

    def _sweeping(self, interval: timedelta | float) -> "Sweeper":
        from holdfast.stores.sweeper import Sweeper

        return Sweeper(self._maintenance, self._listings, self.retention, interval)

    def _release(self, shared: Shared) -> None:
        if self._sweeper is not None:
            self._sweeper.stop()
        shared.release()


class MemoryStore(OpenedStore):
    """A store in this process's memory: gone when it ends. Each is its own."""

    def __init__(self, **options: Unpack[LocalOptions]) -> None:
        super().__init__(*locations.memory_parts(options))


class SQLiteStore(OpenedStore):
    """A store in one SQLite file. `":memory:"` is private to this object."""

    def __init__(self, path: str | os.PathLike[str], **options: Unpack[LocalOptions]) -> None:
        super().__init__(*locations.sqlite_parts(path, options))


class FileStore(OpenedStore):
    """A store in a directory: one append-only file per thread."""

    def __init__(self, path: str | os.PathLike[str], **options: Unpack[LocalOptions]) -> None:
        super().__init__(*locations.file_parts(path, options))


class PostgresStore(OpenedStore):
    """A store in a schema of a PostgreSQL database, which is made if it is not there.

    `source`: a URL, a pool of psycopg_pool (used itself if it blocks; else its settings are), or a psycopg connection
    (its settings). Statements are prepared after `prepare_threshold` uses, never if it is None, nor through a pooler or
    on a pool that was given. `connections` is the most that are opened to a URL; a call is retried for up to
    `patience` seconds.
    """

    def __init__(self, source: "PostgresSource", schema: str | None = None, **options: Unpack[PostgresOptions]) -> None:
        super().__init__(*locations.postgres_parts(source, schema, options))


class RedisStore(OpenedStore):
    """A store in Redis or Valkey: one server, whichever Sentinel names, or a cluster.

    `source`: a URL (`redis://user:password@host/0`, `rediss://`, `unix:///run/redis.sock?db=0`,
    `redis+sentinel://host,host/service/0`, `redis+cluster://host,host`), or a client of redis-py, whose settings are
    copied. `prefix` begins every key.
    `assume` states the durability of a server that does not let its settings be read. With `replicas` a save is
    acknowledged when so many have it. With `expire=True` the server itself removes a thread that was not written to for
    `retention.ttl`; else `prune` does. At most so many `connections` are made to each server; a call is retried for up
    to `patience` seconds before `StoreUnavailable` is raised.
    """

    def __init__(self, source: "RedisSource", **options: Unpack[RedisOptions]) -> None:
        super().__init__(*locations.redis_parts(source, options))


class S3Store(OpenedStore):
    """A store in a bucket: of S3 or what speaks like it, Google Cloud Storage (`gs://`) or Azure (`az://`).

    `source`: `s3://bucket/prefix`, perhaps with `?endpoint=…&region=…`, or a store of obstore. Credentials come from
    the environment (AWS_ACCESS_KEY_ID …). `allow_http` permits an unencrypted endpoint that is not on this machine.
    `parallel` is how many requests run side by side; a call is retried for up to `patience` seconds, and a reply
    waited for `timeout` seconds.
    """

    def __init__(self, source: "BucketSource", **options: Unpack[BucketOptions]) -> None:
        super().__init__(*locations.bucket_parts(source, options))


def open(  # noqa: A001  the public name: holdfast.open
    url: str | os.PathLike[str] | None = None, **options: Unpack[LocalOptions]
) -> Store:
    """Open a store: a path (SQLite), or a URL: `memory:`, `file:DIR`, `sqlite:PATH`, `postgresql:`, `redis:`, `s3:`.

    Without a URL the environment's HOLDFAST_STORE is taken, else `holdfast.db`. It connects at the first use.
    `durability`: `durable` (the default; survives power loss) or `process` (survives a killed process). `keys` encrypt
    everything but ids. `retention` is what `prune()` applies, every `sweep` seconds in the background if given.
    Two namespaces share nothing. `inline=False` never commits on the event loop's own thread. `inputs` says how much of
    a step's arguments its row keeps: a text of at most 200 bytes (`preview`), all of them (`full`), or `none`.
    `limits` bounds how large a state may be.
    """
    return OpenedStore(*locations.url_parts(url, options))
