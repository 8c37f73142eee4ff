"""The store classes by kind, and `open`, which picks one by URL."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.ports import Ports
from holdfast.runs.engine import engine_of
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
    """A store over a backend that other stores may share, with a sweeper if `sweep` was given."""

    def __init__(self, shared: Shared, options: HandleOptions, ports: Ports | None = None) -> None:
        self._sweeper: Sweeper | None = None
        given: dict[str, Any] = {**options}
        sweep: timedelta | float | None = given.pop("sweep", None)
        try:
            given["engine"] = engine_of(given.get("engine"))
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
    """A store in the memory of this process, lost when it ends. Each object is a separate store."""

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
    """A store in a schema of a PostgreSQL database, which is created if it does not exist.

    `source`: a URL, a pool of psycopg_pool (used itself if it blocks; else its settings are), or a psycopg connection
    (its settings). Statements are prepared after `prepare_threshold` uses; never if it is None, through a pooler or on
    a pool that was given. Up to `connections` are opened to a URL. A failed call is retried for up to `patience`
    seconds.
    """

    def __init__(self, source: "PostgresSource", schema: str | None = None, **options: Unpack[PostgresOptions]) -> None:
        super().__init__(*locations.postgres_parts(source, schema, options))


class RedisStore(OpenedStore):
    """A store in Redis or Valkey: one server, whichever Sentinel names, or a cluster.

    `source`: a URL (`redis://user:password@host/0`, `rediss://`, `unix:///run/redis.sock?db=0`,
    `redis+sentinel://host,host/service/0`, `redis+cluster://host,host`), or a client of redis-py, whose settings are
    copied. `prefix` begins every key.
    `assume` states the durability of a server whose settings cannot be read. With `replicas=n` a save is acknowledged
    when n replicas have it. With `expire=True` the server itself deletes a thread that was not written to for
    `retention.ttl`; else `prune` does. Up to `connections` are made to each server. A failed call is retried for up to
    `patience` seconds before `StoreUnavailable` is raised.
    """

    def __init__(self, source: "RedisSource", **options: Unpack[RedisOptions]) -> None:
        super().__init__(*locations.redis_parts(source, options))


class S3Store(OpenedStore):
    """A store in a bucket of S3 or a compatible service, Google Cloud Storage (`gs://`) or Azure (`az://`).

    `source`: `s3://bucket/prefix`, optionally with `?endpoint=…&region=…`, or a store of obstore. Credentials come from
    the environment (AWS_ACCESS_KEY_ID …). `allow_http` permits an unencrypted endpoint that is not on this machine.
    Up to `parallel` requests run at once. A failed call is retried for up to `patience` seconds; a reply may take
    `timeout` seconds.
    """

    def __init__(self, source: "BucketSource", **options: Unpack[BucketOptions]) -> None:
        super().__init__(*locations.bucket_parts(source, options))


def open(  # noqa: A001  the public name: holdfast.open
    url: str | os.PathLike[str] | None = None, **options: Unpack[LocalOptions]
) -> Store:
    """Open a store and return it: a path (SQLite), or a URL.

    URLs begin with `memory:`, `file:DIR`, `sqlite:PATH`, `postgresql:`, `redis:` or `s3:`. Without one the environment
    variable HOLDFAST_STORE is used, else `holdfast.db`. The store connects at its first use.

    - `durability`: `durable` (the default) survives power loss, `process` survives a killed process.
    - `keys` encrypts everything except ids.
    - `retention` is what `prune()` applies, in the background every `sweep` seconds if given.
    - `namespace`: two namespaces share nothing.
    - `inline=False` never commits on the thread of the event loop.
    - `inputs`: how much of a step's arguments its row keeps: up to 200 bytes of text (`preview`), `full`, or `none`.
    - `limits` bounds how large a state may be.
    - `engine`, or the environment variable HOLDFAST_ENGINE, is an engine that runs submitted threads: the URL of
      Temporal (`temporal://host:7233/namespace?task_queue=holdfast`) or Restate (`restate://host:8080`).
    """
    return OpenedStore(*locations.url_parts(url, options))


def twin(store: Store, ports: Ports) -> Store:
    """Return another handle on a store, with other ports and the same listeners. Closing it leaves the store open."""
    bindings = store._reader.bindings
    other = Store(
        store._backend,
        committer=store._committer,
        ports=ports,
        keys=bindings.ring,
        compress=bindings.compress,
        namespace=bindings.namespace,
        inputs=store._inputs,
        limits=bindings.limits,
        on_close=lambda: None,
    )
    other._events.follow(store._events)
    return other
