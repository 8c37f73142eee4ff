"""Where the servers are and how to connect: parsed from a URL, or copied from a client of redis-py.

    redis://user:password@host:6379/0                       one server; rediss:// with TLS
    unix://user:password@/run/redis.sock?db=0               one server, on a Unix socket
    redis+sentinel://host:26379,host:26379/service/0        the primary that Sentinel names; with
                                                            rediss+sentinel:// TLS to the sentinels too
    redis+cluster://host:6379,host:6379                     a cluster, found from any of its nodes

Only the settings of a client are used, so an awaitable one works too. Its own connections would repeat commands whose
outcome is unknown.
"""

from collections.abc import Callable, Mapping
from ssl import CERT_REQUIRED
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Union
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from holdfast.records.errors import ConfigurationError
from holdfast.records.urls import redacted, well_formed
from holdfast.stores.transport import transport

if TYPE_CHECKING:
    import redis
    import redis.asyncio

COPIED = frozenset({
    "host", "port", "path", "db", "username", "password", "credential_provider", "client_name", "socket_type",
    "socket_timeout", "socket_connect_timeout", "socket_keepalive", "socket_keepalive_options",
})  # fmt: skip
"""The settings of a connection that are copied, besides those of TLS."""
DEFAULTS: dict[str, Any] = {"socket_timeout": 30.0, "socket_connect_timeout": 5.0, "socket_keepalive": True}
NOT_OF_UNIX_SOCKETS = frozenset({
    "host", "port", "socket_type", "socket_connect_timeout", "socket_keepalive", "socket_keepalive_options",
})  # fmt: skip
"""Settings that a connection on a Unix socket does not accept."""
NEVER_REPEAT: dict[str, Any] = {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
OBJECTS = frozenset({"credential_provider", "socket_type", "socket_keepalive_options"})
"""Settings that a client can have and a URL cannot."""
SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")

Source = Union[str, "redis.Redis", "redis.asyncio.Redis", "redis.RedisCluster", "redis.asyncio.RedisCluster"]
"""What a store can be opened with."""
OURS: dict[str, Callable[[str], Any]] = {"prefix": str, "assume": str, "durability": str, "replicas": int}
"""The options of a store that its URL may contain."""

Address = tuple[str, int]


class Settings(NamedTuple):
    """How to connect to one server; or to the `nodes` of a cluster; or through sentinels, if there is a `service`."""

    connection: type[AbstractConnection]
    options: dict[str, Any]
    nodes: tuple[Address, ...] = ()
    service: str = ""
    sentinel_connection: type[AbstractConnection] = Connection
    sentinel_options: Mapping[str, Any] = MappingProxyType({})
    remap: Callable[[Address], Address] | None = None

    def __repr__(self) -> str:
        return f"<{self.connection.__name__} settings>"  # the options hold passwords

    @property
    def identity(self) -> object:
        """Equal for settings that lead to the same place, as the same user."""
        options = {**self.options, "credential_provider": id(self.options.get("credential_provider"))}
        return (self.connection, repr(sorted(options.items())), self.nodes, self.service)

    @property
    def transport(self) -> str:
        """Describe how commands travel to the servers, and to the sentinels."""
        hosts = [host for host, _ in self.nodes] or [self.options.get("host", "localhost")]
        if self.connection is UnixDomainSocketConnection:
            return transport([], "")
        guard = _weakness(self.sentinel_connection(**self.sentinel_options)) if self.service else ""
        return transport(hosts, _weakness(self.make()) or guard)

    def make(self, host: str | None = None, port: int | None = None, **given: Any) -> AbstractConnection:
        """Return a connection, not yet connected, to another address if one is given: a pool of redis-py calls this.

        It returns bytes, and never repeats a command. Of what a pool passes, only the pool itself is used.
        """
        options = {**DEFAULTS, **self.options, **({} if host is None else {"host": host, "port": port})}
        kind = self.connection
        if "connection_pool" in given:
            kind = SentinelManagedSSLConnection if kind is SSLConnection else SentinelManagedConnection
            options["connection_pool"] = given["connection_pool"]
        if kind is UnixDomainSocketConnection:
            options = {name: value for name, value in options.items() if name not in NOT_OF_UNIX_SOCKETS}
        return kind(**options, **NEVER_REPEAT)

    @property
    def for_sentinels(self) -> dict[str, Any]:
        """Return the arguments of redis-py's clients of the sentinels."""
        is_tls = self.sentinel_connection is SSLConnection
        return {**DEFAULTS, "socket_timeout": 5.0, **self.sentinel_options, **NEVER_REPEAT, "ssl": is_tls}


def _weakness(connection: AbstractConnection) -> str:
    """Describe what TLS does not check on this connection; empty if it checks the certificate and the host name."""
    if not isinstance(connection, SSLConnection):
        return "no TLS (redis:)"
    if connection.cert_reqs != CERT_REQUIRED:
        return "TLS that accepts any certificate (ssl_cert_reqs)"
    return "" if connection.check_hostname else "TLS that accepts the certificate of any host (ssl_check_hostname)"


def options_in(url: str) -> tuple[str, dict[str, Any]]:
    """Split a URL into the URL without the store's own options, and these options."""
    place, _, query = _checked(url).partition("?")
    try:
        words = parse_qsl(query, keep_blank_values=True)
        ours = {name: OURS[name](value) for name, value in words if name in OURS}
        rest = urlencode([word for word in words if word[0] not in OURS])
    except ValueError:  # its text shows the value
        raise ConfigurationError(f"{redacted(url)!r} has an option that cannot be read: replicas is a number") from None
    return f"{place}?{rest}" if rest else place, ours


def from_url(url: str) -> Settings:
    """Return the settings that a URL names."""
    scheme, _, rest = _checked(url).partition("://")
    tls, _, kind = scheme.partition("+")
    try:
        found = _single(f"{scheme}://{rest}") if not kind else _several(tls, kind, rest)
        for host in (found.options.get("host", ""), *(host for host, _ in found.nodes)):
            host.encode("idna")  # as the resolver will: ValueError if the name cannot be encoded
        found.make()
        return found  # noqa: TRY300
    except ValueError as error:
        raise ConfigurationError(f"{redacted(url)!r} is not a URL of Redis: {error}") from None
    except (TypeError, RedisError):
        raise ConfigurationError(
            f"{redacted(url)!r} has an option of TLS that redis-py does not know, or TLS options without rediss://"
        ) from None


def _checked(url: str) -> str:
    """Return the URL; refuse one that is not of Redis, or malformed."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES or not rest:
        raise ConfigurationError(
            f"{redacted(url)!r} is not a URL of Redis: it must begin with {', '.join(SCHEMES)}, then ://"
        )
    return well_formed(url)


def _single(url: str) -> Settings:
    options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    if objects := sorted(options.keys() & OBJECTS):
        raise ValueError(f"{', '.join(objects)} cannot be written in a URL; pass a client to RedisStore instead")
    if url.startswith("unix:") and (urlsplit(url).hostname or not options.get("path")):
        raise ValueError("an absolute path of the socket must follow the slashes: unix:///run/redis.sock")
    connection = options.pop("connection_class", Connection)
    return Settings(connection, _copied(options))


def _several(tls: str, kind: str, rest: str) -> Settings:
    place, _, query = rest.partition("?")
    user, at, place = place.rpartition("@")
    hosts, _, path = place.partition("/")
    service, _, db = path.partition("/") if kind == "sentinel" else ("", "", path)
    words = dict(parse_qsl(query))
    of_sentinel = {
        name: words.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in words
    }
    one = _single(f"{tls}://{user}{at}localhost/{db}?{urlencode(words)}")
    options = {name: value for name, value in one.options.items() if name not in {"host", "port"}}
    if kind == "sentinel" and not service:
        raise ValueError("the name of the service is missing: redis+sentinel://host:26379/service")
    port = 26379 if kind == "sentinel" else 6379
    nodes = tuple(_address(host, port) for host in hosts.split(","))
    of_sentinel |= _tls(options)
    return Settings(one.connection, options, nodes, unquote(service), one.connection, of_sentinel)


def _tls(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of TLS, which apply to the sentinels too."""
    return {name: value for name, value in options.items() if name.startswith("ssl_")}


def _address(text: str, port: int) -> Address:
    host, colon, number = text.rpartition(":")
    if not colon or number.endswith("]"):
        host, number = text, str(port)
    if not host:
        raise ValueError("a host is missing")
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < 2**16):
        raise ValueError(f"the port {number[:20]!r} is not a number below {2**16}")
    return host.strip("[]"), int(number)


def from_client(client: Any) -> Settings:
    """Return the settings of a client of redis-py, blocking or awaitable, for one server, Sentinel or a cluster."""
    if hasattr(client, "nodes_manager"):
        return _of_cluster(client)
    pool: Any = getattr(client, "connection_pool", None)
    if not hasattr(pool, "connection_kwargs"):
        raise ConfigurationError(f"a Redis store takes a URL or a client of redis-py, not {type(client).__name__}")
    options = _copied(pool.connection_kwargs)
    connection = _class_of(pool.connection_class.__name__)
    if not hasattr(pool, "sentinel_manager"):
        return Settings(connection, options)
    pools = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
    nodes = tuple((each.connection_kwargs["host"], int(each.connection_kwargs["port"])) for each in pools)
    given = _copied(pools[0].connection_kwargs)
    of_sentinel = {name: given[name] for name in ("username", "password") if given.get(name)} | _tls(given)
    guard = _class_of(pools[0].connection_class.__name__)
    return Settings(connection, options, nodes, pool.service_name, guard, of_sentinel)


def _of_cluster(client: Any) -> Settings:
    manager = client.nodes_manager
    given = getattr(manager, "connection_kwargs", None) or getattr(client, "connection_kwargs", {})
    name = getattr(given.get("connection_class"), "__name__", "SSL" if given.get("ssl") else "")
    options = {name: value for name, value in _copied(given).items() if name not in {"host", "port", "db"}}
    nodes = tuple((node.host, int(node.port)) for node in manager.startup_nodes.values())
    return Settings(_class_of(name), options, nodes, remap=getattr(manager, "address_remap", None))


def _class_of(name: str) -> type[AbstractConnection]:
    if "Unix" in name:
        return UnixDomainSocketConnection
    return SSLConnection if "SSL" in name else Connection


def _copied(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in options.items()
        if value is not None and (name in COPIED or name.startswith("ssl_"))
    }
