"""Connection pools of redis-py: to one server, to the primary that Sentinel names, or to the nodes of a cluster."""

from threading import Lock
from typing import Any

from redis import RedisCluster
from redis.cluster import ClusterNode
from redis.connection import BlockingConnectionPool, ConnectionPool
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.utils import str_if_bytes

from holdfast.ports import reset_after_fork
from holdfast.stores.redis.errors import FAILURES, NotSent
from holdfast.stores.redis.keys import Keys
from holdfast.stores.redis.settings import NEVER_REPEAT, Address, Settings

WAIT_SECONDS = 20.0


class Pools:
    """The pool of one server, or of the server that Sentinel names as the primary."""

    is_cluster = False
    """True if a command may use keys of one shard only."""

    def __init__(self, settings: Settings, keys: Keys, limit: int) -> None:
        self.kind = "redis (Sentinel)" if settings.service else "redis"
        self._settings = settings
        self._keys = keys
        self._options: dict[str, Any] = {
            "connection_class": settings.make,
            "max_connections": limit,
            "timeout": WAIT_SECONDS,
            "protocol": 2,
        }
        self._source: Any = None
        self._inherited: list[Any] = []
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Use another pool in a child: the connections of this one are the parent's, and its locks may be held."""
        self._inherited.append(self._source)
        self._source = None
        self._lock = Lock()

    def _opened(self) -> Any:
        """Return what the pools come from; `NotSent` if the servers cannot be found."""
        with self._lock:
            if self._source is None:
                try:
                    self._source = self._made()
                except FAILURES as error:
                    raise NotSent(error) from error
            return self._source

    def _made(self) -> Any:
        settings = self._settings
        if not settings.service:
            return BlockingConnectionPool(**self._options)  # type: ignore[no-untyped-call]
        return PrimaryPool(settings.service, Sentinels(settings), **self._options)  # type: ignore[no-untyped-call]

    def of_shard(self, shard: int) -> ConnectionPool:
        """Return the pool of the server that has a shard; `NotSent` if none is known."""
        pool: ConnectionPool = self._opened()
        return pool

    def at(self, address: Address) -> ConnectionPool:
        """Return the pool of a node that a cluster redirects to; `NotSent` if it is not known yet."""
        raise NotSent(f"a server outside a cluster redirects to {address[0]}:{address[1]}; use redis+cluster://")

    def refresh(self) -> None:
        """Close idle connections and locate the servers again; keep the known ones if no server answers."""
        self._opened().disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close all connections."""
        if self._source is not None:
            self._source.close()


class PrimaryPool(SentinelConnectionPool, BlockingConnectionPool):
    """A pool of connections to the primary of a service; callers wait for a free one."""


class Sentinels(Sentinel):
    """redis-py's sentinels, which also ask the server that they name: a sentinel may be out of date.

    The error says why each sentinel failed: redis-py's own text has only the class of the error.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.nodes, sentinel_kwargs=settings.for_sentinels)  # type: ignore[no-untyped-call]
        self._settings = settings

    def discover_master(self, service_name: str) -> Address:
        """Return the address of the primary, by the first sentinel that names one."""
        failures = []
        for sentinel, (host, port) in zip(self.sentinels, self._settings.nodes, strict=True):
            try:
                return self._primary(sentinel.sentinel_get_master_addr_by_name(service_name))
            except (AuthenticationError, NoPermissionError):
                raise
            except RedisError as error:
                failures.append(f"{host}:{port}: {error}")
        raise MasterNotFoundError(f"no sentinel names a primary of {service_name!r} ({'; '.join(failures)})")

    def _primary(self, named: Any) -> Address:
        if not named:
            raise MasterNotFoundError("it does not monitor this service")
        host, port = str_if_bytes(named[0]), int(named[1])
        connection: Any = self._settings.make(host, port)
        try:
            connection.send_command("ROLE")
            if connection.read_response()[0] == b"master":
                return host, port
        finally:
            connection.disconnect()
        raise MasterNotFoundError(f"{host}:{port} is not the primary any more")


class Cluster(Pools):
    """The pools of the nodes of a cluster, by redis-py's own map of the slots."""

    is_cluster = True

    def __init__(self, settings: Settings, keys: Keys, limit: int) -> None:
        super().__init__(settings, keys, limit)
        self.kind = "redis (Cluster)"

    def _made(self) -> Any:
        (host, port), *others = self._settings.nodes
        return RedisCluster(
            # It takes a class of pools only with a URL. It would drop some options of TLS; `settings.make` keeps them.
            url=f"redis://[{host}]:{port}" if ":" in host else f"redis://{host}:{port}",
            startup_nodes=[ClusterNode(*each) for each in others],  # type: ignore[no-untyped-call]
            address_remap=self._settings.remap,
            retry=NEVER_REPEAT["retry"],
            connection_pool_class=BlockingConnectionPool,
            **self._options,
        )

    def of_shard(self, shard: int) -> ConnectionPool:
        """See `Pools.of_shard`."""
        client = self._opened()
        try:
            return _pool(client, client.get_node_from_key(self._keys.base(shard)))
        except FAILURES as error:
            raise NotSent(error) from error

    def at(self, address: Address) -> ConnectionPool:
        """See `Pools.at`."""
        client = self._opened()
        node = client.get_node(*address)
        if node is None:
            raise NotSent(f"slots are moving to {address[0]}:{address[1]}, which the cluster does not list yet")
        return _pool(client, node)

    def refresh(self) -> None:
        """See `Pools.refresh`."""
        try:
            self._opened().nodes_manager.initialize()
        except (NotSent, *FAILURES):
            return

    def close(self) -> None:
        """See `Pools.close`: the client's own `close` leaves pools of a given class open."""
        if self._source is not None:
            self._source.disconnect_connection_pools()


def _pool(client: Any, node: ClusterNode) -> ConnectionPool:
    pool: ConnectionPool = client.get_redis_connection(node).connection_pool
    return pool


def pools_of(settings: Settings, keys: Keys, limit: int) -> Pools:
    """Return the pools for these settings, with at most `limit` connections to each server."""
    kind = Cluster if settings.nodes and not settings.service else Pools
    return kind(settings, keys, limit)
