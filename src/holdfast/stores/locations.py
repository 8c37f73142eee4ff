"""From a path or URL to a backend, which all handles of one process on the same place share."""

import os
import re
import stat
from collections.abc import Callable, Mapping
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from holdfast.records.arguments import check_options, path_text
from holdfast.records.errors import ConfigurationError, StoreUnavailable, missing_extra
from holdfast.records.retention import Retention
from holdfast.records.urls import redacted, seems_mistyped, well_formed
from holdfast.records.words import Durability
from holdfast.stores.backend import Backend
from holdfast.stores.committer import Committer
from holdfast.stores.options import BucketOptions, HandleOptions, LocalOptions, PostgresOptions, RedisOptions

if TYPE_CHECKING:
    from holdfast.stores.postgres.backend import PostgresBackend
    from holdfast.stores.postgres.connections import Source as PostgresSource
    from holdfast.stores.redis.settings import Source as RedisSource
    from holdfast.stores.s3.places import Source as BucketSource

DEFAULT_URL = "holdfast.db"
DEFAULT_SCHEMA = "holdfast"
VARIABLE = "HOLDFAST_STORE"
REDIS = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
BUCKETS = {"s3", "gs", "az"}
CONNINFO = ("host=", "hostaddr=", "port=", "dbname=", "user=", "password=", "service=")
"""How a connection string of PostgreSQL begins; a file is not named like that."""
MALFORMED = "a bracket, a port or a character in it is malformed; write characters other than letters and digits as %xx"
CLOUD_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_")


class Shared:
    """A backend and its committer, kept while a handle uses them."""

    def __init__(self, identity: object, backend: Backend, *, inline: bool) -> None:
        self.backend = backend
        self.committer = Committer(backend, inline=inline)
        self._identity = identity
        self._handles = 0

    def acquire(self) -> "Shared":
        """Count one more handle."""
        self._handles += 1
        return self

    def release(self) -> None:
        """Count one handle less; the last one closes the backend."""
        with _lock:
            self._handles -= 1
            if self._handles:
                return
            if _shared.get(self._identity) is self:
                del _shared[self._identity]
        self.backend.close()


_shared: dict[object, Shared] = {}
_lock = Lock()


def share(identity: object, make: Callable[[], Backend], *, inline: bool) -> Shared:
    """Return the shared backend of that identity, created if needed. With None it is not shared."""
    with _lock:
        # A forked child must not use its parent's connections.
        key = None if identity is None else (os.getpid(), inline, identity)
        found = _shared.get(key) if key is not None else None
        if found is None:
            found = Shared(key, make(), inline=inline)
            if key is not None:
                _shared[key] = found
        return found.acquire()


def level_of(durability: Durability | str | None) -> Durability | None:
    """Return a durability level by its word."""
    try:
        return None if durability is None else Durability(durability)
    except ValueError:
        raise ConfigurationError(f"`durability` must be one of {', '.join(Durability)}, got {durability!r}") from None


def memory(durability: Durability | None, *, inline: bool) -> Shared:
    """Return a new memory backend."""
    from holdfast.stores.memory import MemoryBackend

    return share(None, lambda: MemoryBackend(durability or Durability.NONE), inline=inline)


def sqlite(path: str | os.PathLike[str], durability: Durability | None, *, inline: bool) -> Shared:
    """Return the SQLite backend of a path."""
    from holdfast.stores.sqlite import SQLiteBackend

    place = path_text(path)
    if place == ":memory:":
        return share(None, lambda: SQLiteBackend(place, durability), inline=inline)
    level = durability or Durability.DURABLE
    return share(("sqlite", os.path.realpath(place), level), lambda: SQLiteBackend(place, level), inline=inline)


def file(path: str | os.PathLike[str], durability: Durability | None, *, inline: bool) -> Shared:
    """Return the file backend of a directory."""
    from holdfast.stores.file import FileBackend

    place, level = path_text(path), durability or Durability.DURABLE
    return share(("file", os.path.realpath(place), level), lambda: FileBackend(place, level), inline=inline)


def needing(extra: str, module: str) -> Any:
    """Import a module whose driver comes with an extra of the package."""
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_extra(f"the {extra} store needs a driver that is not installed ({error})", extra) from error


def postgres(
    source: "PostgresSource",
    schema: str | None,
    durability: Durability | None,
    *,
    inline: bool,
    **options: Any,
) -> Shared:
    """Return the PostgreSQL backend of a URL; one of a pool or a connection is not shared."""
    backend = needing("postgres", "holdfast.stores.postgres").PostgresBackend
    if not isinstance(source, str):
        return share(
            None, lambda: backend(source, durability, schema=schema or DEFAULT_SCHEMA, **options), inline=inline
        )
    place, named = schema_of(well_formed(source) if "://" in source else source)
    name = schema or named or DEFAULT_SCHEMA
    identity = ("postgres", place, name, durability, tuple(sorted(options.items())))
    return share(identity, lambda: backend(place, durability, schema=name, **options), inline=inline)


def schema_of(url: str) -> tuple[str, str | None]:
    """Split the `schema`, which libpq does not know, from a PostgreSQL URL."""
    if "://" not in url:
        return url, None
    from urllib.parse import parse_qsl, quote, urlencode, urlsplit

    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        rest = urlencode([each for each in query if each[0] != "schema"], quote_via=quote)
    except ValueError:  # its text may show the password
        raise ConfigurationError(f"this URL of PostgreSQL cannot be read: {MALFORMED}") from None
    schema = next((value for name, value in query if name == "schema"), None)
    return parts._replace(query=rest).geturl(), schema


def bucket(source: "BucketSource", durability: Durability | None, *, inline: bool, **options: Any) -> Shared:
    """Return the backend of a bucket's URL; one of an obstore object is not shared."""
    backend = needing("s3", "holdfast.stores.s3").S3Backend
    identity = None
    if isinstance(source, str):
        settings = [item for item in os.environ.items() if item[0].startswith(CLOUD_VARIABLES)]
        identity = ("bucket", source, durability, tuple(sorted(options.items())), tuple(sorted(settings)))
    return share(identity, lambda: backend(source, durability, **options), inline=inline)


def redis(source: "RedisSource", durability: Durability | None, *, inline: bool, **options: Any) -> Shared:
    """Return the Redis backend of a URL; one of a client is not shared."""
    backend = needing("redis", "holdfast.stores.redis").RedisBackend(source, durability, **options)
    return share(("redis", backend.identity) if isinstance(source, str) else None, lambda: backend, inline=inline)


def _expiry(retention: Retention | None, *, expire: bool) -> dict[str, Any]:
    """Return how long the server keeps a thread without writes, and whether pins keep it, if `expire` is set."""
    if not expire:
        return {}
    if retention is None or retention.ttl is None:
        raise ConfigurationError("`expire` needs retention=Retention(ttl=...), which says when")
    return {"life": retention.ttl, "keep_pinned": retention.keep_pinned}


# The parts of each class of stores: a shared backend, and the options of the handle on it


Parts = tuple[Shared, HandleOptions]


def memory_parts(options: LocalOptions) -> Parts:
    """Return the parts of `MemoryStore`."""
    return _parts(memory, (), options, LocalOptions)


def sqlite_parts(path: str | os.PathLike[str], options: LocalOptions) -> Parts:
    """Return the parts of `SQLiteStore`."""
    return _parts(sqlite, (path,), options, LocalOptions)


def file_parts(path: str | os.PathLike[str], options: LocalOptions) -> Parts:
    """Return the parts of `FileStore`."""
    return _parts(file, (path,), options, LocalOptions)


def postgres_parts(source: "PostgresSource", schema: str | None, options: PostgresOptions) -> Parts:
    """Return the parts of `PostgresStore`."""
    return _parts(postgres, (source, schema), options, PostgresOptions, inline=False)


def bucket_parts(source: "BucketSource", options: BucketOptions) -> Parts:
    """Return the parts of `S3Store`."""
    return _parts(bucket, (source,), options, BucketOptions, inline=False)


def redis_parts(source: "RedisSource", options: RedisOptions) -> Parts:
    """Return the parts of `RedisStore`."""

    def make(source: "RedisSource", level: Durability | None, *, expire: bool = False, **more: Any) -> Shared:
        given = {name: value for name, value in more.items() if value is not None}  # what is not may be in the URL
        return redis(source, level, **given, **_expiry(options.get("retention"), expire=expire))

    return _parts(make, (source,), options, RedisOptions, inline=False)


def url_parts(url: str | os.PathLike[str] | None, options: LocalOptions) -> Parts:
    """Return the parts of the store that a URL names."""
    return _parts(resolve, (url,), options, LocalOptions)


def _parts(
    make: Callable[..., Shared],
    place: tuple[Any, ...],
    options: Mapping[str, Any],
    declared: type,
    *,
    inline: bool = True,
) -> Parts:
    check_options(options, tuple(declared.__annotations__))
    handle: HandleOptions = {}
    rest: dict[str, Any] = {"inline": inline}
    for name, value in options.items():
        (handle if name in HandleOptions.__annotations__ else rest)[name] = value  # type: ignore[literal-required]
    level = level_of(rest.pop("durability", None))
    return make(*place, level, **rest), handle


def locate(url: str | os.PathLike[str] | None) -> tuple[str, str]:
    """Return the kind of store a URL names, and its place. Without a URL: HOLDFAST_STORE, else holdfast.db."""
    text = path_text(url, "url") if url is not None else os.environ.get(VARIABLE) or DEFAULT_URL
    scheme, colon, rest = text.partition(":")
    if text.startswith(CONNINFO):
        raise ConfigurationError(
            f"{text.split('=')[0]}=… is not a path; give it to PostgresStore as it is, or give a URL"
        )
    is_path = not colon or len(scheme) < 2 or "/" in scheme or "\\" in scheme or "." in scheme
    if is_path and not seems_mistyped(text):
        return "sqlite", text
    if scheme == "memory":
        return scheme, rest
    if scheme in {"sqlite", "file"}:
        return scheme, _path_of(scheme, rest)
    if scheme in {"postgresql", "postgres"}:
        return "postgres", text
    if scheme in BUCKETS:
        return "s3", text
    redis = f"redis{scheme.removeprefix('valkey')}" if scheme.startswith("valkey") else scheme
    if redis in REDIS:
        return "redis", f"{redis}:{rest}"
    raise ConfigurationError(
        f"unknown store {redacted(text)!r}: a path (SQLite), or a URL: memory:, file:, sqlite:, postgresql:, redis:,"
        " unix: or s3:"
    )


def absolute_url(url: str | os.PathLike[str] | None) -> str:
    """Return a URL that names the same store from every directory, whatever HOLDFAST_STORE is later."""
    kind, place = locate(url)
    if kind not in {"sqlite", "file"} or place == ":memory:":
        return f"{kind}:{place}" if kind == "memory" else place
    path = os.path.abspath(place)  # noqa: PTH100  a plain name is what was given
    return path if kind == "sqlite" else f"file:{path}"


def is_there(url: str | os.PathLike[str] | None) -> bool:
    """False if a URL names a place in the file system, or a schema, without a store: opening it would create one.

    An empty file or directory is not a store.
    """
    kind, place = locate(url)
    if kind == "postgres":
        return _has_schema(place)
    try:
        if kind == "sqlite":
            return place == ":memory:" or not _is_empty_file(place)
        return kind != "file" or bool(os.listdir(place))  # noqa: PTH208  likewise
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True  # opening it reports what is wrong
    except OSError as error:
        raise StoreUnavailable(f"cannot look at {place}: {error.strerror}") from error


def _has_schema(url: str) -> bool:
    """True if the schema of a PostgreSQL URL has a store."""
    shared = postgres(url, None, None, inline=False)
    try:
        return cast("PostgresBackend", shared.backend).exists()
    finally:
        shared.release()


def _is_empty_file(path: str) -> bool:
    """True for an empty regular file. For anything else, opening it reports what is wrong."""
    status = os.stat(path)  # noqa: PTH116  a plain name is what was given
    return stat.S_ISREG(status.st_mode) and not status.st_size


def resolve(url: str | os.PathLike[str] | None, level: Durability | None, *, inline: bool) -> Shared:
    """Return the backend that a URL names."""
    kind, place = locate(url)
    if kind == "memory":
        return memory(level, inline=inline)
    if kind == "postgres":
        return postgres(place, None, level, inline=inline)
    if kind == "s3":
        return bucket(place, level, inline=inline)
    if kind == "redis":
        return redis(place, level, inline=inline)
    return sqlite(place, level, inline=inline) if kind == "sqlite" else file(place, level, inline=inline)


def _path_of(scheme: str, rest: str) -> str:
    """Return the path in `sqlite:a.db`, `sqlite:///abs/a.db` or `file:dir`."""
    path = rest
    if rest.startswith("//"):
        from urllib.parse import unquote

        if re.match(r"//[^/]*@|//.*\?[^/]*=", rest):
            raise ConfigurationError(
                f"{redacted(f'{scheme}:{rest}')!r}: {scheme}: takes a path, and no user, password, host or options"
            )
        path = unquote(rest.removeprefix("//"))
    if not path:
        raise ConfigurationError(
            f"{scheme}: needs a path, such as {scheme}:agents{'.db' if scheme == 'sqlite' else ''}"
        )
    return path_text(path, "url")
