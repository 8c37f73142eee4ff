"""Which server has a shard: the only one, the primary that Sentinel names, or a node of a cluster."""

from threading import Lock
from typing import Any, Protocol

from redis.crc import key_slot
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from holdfast.ports import reset_after_fork
from holdfast.stores.redis.connections import Connection, Connections, Lost, NotSent, connected
from holdfast.stores.redis.keys import SHARDS, Keys
from holdfast.stores.redis.settings import Address, Settings


class Servers(Protocol):
    """Where to send commands."""

    kind: str
    is_cluster: bool
    """True if a command may use keys of one shard only."""

    def of_shard(self, shard: int) -> Address | None:
        """The server of a shard; None for the only one there is."""
        ...

    def connect(self, address: Address | None) -> Connection:
        """A new connection to a server, connected."""
        ...

    def refresh(self) -> None:
        """Ask again: it was said that things have changed. `NotSent` if nobody answers."""
        ...


class OneServer:
    """The server of the settings."""

    kind = "redis"
    is_cluster = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def of_shard(self, shard: int) -> Address | None:
        """See `Servers.of_shard`."""
        return None

    def connect(self, address: Address | None) -> Connection:
        """See `Servers.connect`."""
        return connected(self._settings.make(address))

    def refresh(self) -> None:
        """Nothing can have changed."""


class Sentinels:
    """The primary of a service. Sentinel is asked whenever a connection is made: it closes them when it moves."""

    kind = "redis (Sentinel)"
    is_cluster = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def of_shard(self, shard: int) -> Address | None:
        """See `Servers.of_shard`: whichever is the primary when it is connected to."""
        return None

    def connect(self, address: Address | None) -> Connection:
        """See `Servers.connect`. A sentinel that names no primary, or one that is none any more, is passed over."""
        failures = []
        for sentinel in self._settings.nodes:
            try:
                return self._primary_of(sentinel)
            except (NotSent, RedisError) as error:
                if isinstance(error.__cause__, (AuthenticationError, NoPermissionError)):
                    raise
                failures.append(f"{sentinel[0]}:{sentinel[1]}: {error}")
        raise NotSent(f"no sentinel names a primary of {self._settings.service!r} ({'; '.join(failures)})")

    def _primary_of(self, sentinel: Address) -> Connection:
        """The primary that a sentinel names, connected. It is asked what it is: the sentinel may be out of date."""
        asked = connected(self._settings.make_to_sentinel(sentinel))
        named = _reply(asked, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._settings.service)
        asked.disconnect()
        if not named:
            raise NotSent("it does not watch this service")
        host, port = named[0].decode(), int(named[1])
        connection = connected(self._settings.make((host, port)))
        if _reply(connection, "ROLE")[0] != b"master":
            connection.disconnect()
            raise NotSent(f"{host}:{port} is not the primary any more")
        return connection

    def refresh(self) -> None:
        """Nothing is kept that could be out of date but connections."""


def _reply(connection: Connection, *command: str) -> Any:
    """The reply to a command, or `NotSent`: a connection on which it failed is not used."""
    try:
        connection.send_command(*command)
        return connection.read_response(disable_decoding=True)
    except RedisError as error:
        connection.disconnect()
        raise NotSent(str(error)) from error


class Cluster:
    """The nodes of a cluster, by CLUSTER SLOTS."""

    kind = "redis (Cluster)"
    is_cluster = True

    def __init__(self, settings: Settings, keys: Keys) -> None:
        self._settings = settings
        self._slots = [key_slot(keys.base(shard)) for shard in range(SHARDS)]
        self._nodes: list[Address] = list(settings.nodes)
        self._shards: list[Address] = []
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """A forked child has no use for a lock that a thread of its parent may hold."""
        self._lock = Lock()

    def of_shard(self, shard: int) -> Address | None:
        """See `Servers.of_shard`."""
        if not self._shards:
            self.refresh()
        return self._shards[shard]

    def connect(self, address: Address | None) -> Connection:
        """See `Servers.connect`."""
        return connected(self._settings.make(address))

    def refresh(self) -> None:
        """See `Servers.refresh`: any node that answers will do."""
        with self._lock:
            failures = []
            for node in dict.fromkeys([*self._nodes, *self._settings.nodes]):
                try:
                    self._learn(node)
                except (NotSent, Lost, RedisError) as error:
                    failures.append(f"{node[0]}:{node[1]}: {error}")
                else:
                    return
        raise NotSent(f"no node of the cluster tells where its slots are ({'; '.join(failures)})")

    def _learn(self, node: Address) -> None:
        connections = Connections(lambda: self.connect(node), 1)
        try:
            (slots,) = connections.receive(connections.send([(b"CLUSTER", b"SLOTS")]), 1)
        finally:
            connections.close()
        if isinstance(slots, RedisError):
            raise slots
        ranges = [(first, last, self._reachable(primary, node)) for first, last, primary, *_ in slots]
        owners = [next((at for first, last, at in ranges if first <= slot <= last), None) for slot in self._slots]
        if None in owners:
            raise NotSent("not all of its slots are covered")
        self._shards = [owner for owner in owners if owner]
        self._nodes = list(dict.fromkeys(self._shards))

    def _reachable(self, said: list[bytes | int], asked: Address) -> Address:
        """A node's address as we can reach it. One that does not know its name has that under which it was asked."""
        host = said[0].decode() if isinstance(said[0], bytes) else ""
        address = (host if host and host != "?" else asked[0], int(said[1]))
        return self._settings.remap(address) if self._settings.remap else address


def servers_of(settings: Settings, keys: Keys) -> Servers:
    """The servers that settings lead to."""
    if settings.service:
        return Sentinels(settings)
    return Cluster(settings, keys) if settings.nodes else OneServer(settings)
