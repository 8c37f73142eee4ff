"""Requests to the servers of a store: grouped by server, pipelined, and repeated where nothing was done."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import sleep
from typing import Any, NamedTuple

from redis.exceptions import AskError, MovedError

from holdfast.stores.redis.connections import Command, Connection, Connections, Lost, NotSent
from holdfast.stores.redis.errors import closed, is_passing, is_redirect, is_wrong_type, needs_source, translated
from holdfast.stores.redis.servers import Servers
from holdfast.stores.redis.settings import Address

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
WAIT_MILLISECONDS = 2000
READ_AT_ONCE = 16_000
"""So many bytes a server reads from a connection before it turns to the others, and then syncs what it has done."""
PARTS = 12


class Request(NamedTuple):
    """A command for the server of a shard. `source` is sent instead if the server does not know the script."""

    shard: int
    command: Command
    source: Command | None = None


class Wire:
    """All that is said to the servers of one store. `patience`: for how many seconds an outage is borne in silence.

    The very first connection is not waited for: what is wrong then is most likely the address.
    """

    def __init__(self, servers: Servers, replicas: int, connections: int, patience: float) -> None:
        self.servers = servers
        self._connections = connections
        self._patience = patience
        self._replicas = replicas
        self._pools: dict[Address | None, Connections] = {}
        self._is_closed = False
        self._has_answered = False
        self.round_trips = 0

    def close(self) -> None:
        """Close the connections. Later calls raise `StoreClosed`."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.close()

    def check_open(self) -> None:
        """Raises `StoreClosed` after `close`."""
        if self._is_closed:
            raise closed()

    def read(self, requests: Sequence[Request]) -> list[Any]:
        """The replies. What was lost on the way is asked for again."""
        return self.checked(self.attempt(requests, writing=False), writing=False)

    def read_each(self, requests: Sequence[Request]) -> list[Any]:
        """As `read`, but where a key holds something else, the reply is that error."""
        replies = self.attempt(requests, writing=False)
        self.checked([reply for reply in replies if not is_wrong_type(reply)], writing=False)
        return replies

    def checked(self, replies: list[Any], *, writing: bool) -> list[Any]:
        """The replies, if all are; else the first error among them is raised, in our own words."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise translated(reply, writing=writing) from (reply.__cause__ or reply)
        return replies

    def attempt(self, requests: Sequence[Request], *, writing: bool) -> list[Any]:
        """The replies, errors among them. A request is repeated only where nothing was done, or nothing can be."""
        self.check_open()
        replies = self._send(requests, writing=writing)
        self._has_answered = self._has_answered or not all(isinstance(reply, NotSent) for reply in replies)
        if not self._has_answered or not any(isinstance(reply, Exception) for reply in replies):
            return replies
        for pause in _pauses(self._patience):
            again = [at for at, reply in enumerate(replies) if _may_repeat(reply, writing=writing)]
            if not again:
                break
            self._prepare([replies[at] for at in again], pause)
            renewed = [_renewed(requests[at], replies[at]) for at in again]
            asked = [replies[at] if _is_ask(replies[at]) else None for at in again]
            for at, reply in zip(again, self._send(renewed, writing=writing, asked=asked), strict=True):
                replies[at] = reply
        return replies

    def _prepare(self, refusals: list[Any], pause: float) -> None:
        """Wait for what passes, and find out where things are now."""
        if all(needs_source(reply) for reply in refusals):
            return
        if not all(is_redirect(reply) or needs_source(reply) for reply in refusals):
            sleep(pause)
        if not all(_is_ask(reply) for reply in refusals):
            for pool in [*self._pools.values()]:
                pool.close()
            try:
                self.servers.refresh()
            except NotSent:
                sleep(pause)

    def _send(self, requests: Sequence[Request], *, writing: bool, asked: Sequence[Any] = ()) -> list[Any]:
        """One round trip to each server that is concerned, to all of them at the same time."""
        self.round_trips += 1
        if len(requests) == 1 and not asked and not self._replicas:
            return self._send_one(requests[0])
        replies: list[Any] = [None] * len(requests)
        sent: deque[tuple[_Group, Connection]] = deque()
        try:
            for group in self._grouped(
                requests, asked, replies, is_transaction=writing and not self.servers.is_cluster
            ):
                self._send_group(group, sent, replies, self._replicas if writing else 0)
            while sent:
                group, connection = sent.popleft()
                group.receive(connection, replies, self._replicas if writing else 0)
        except BaseException:
            for group, connection in sent:
                group.pool.discard(connection)
            raise
        return replies

    def _send_group(
        self, group: "_Group", sent: "deque[tuple[_Group, Connection]]", replies: list[Any], replicas: int
    ) -> None:
        """Over several connections, if it is large and they are free; over one in any case."""
        first, *others = group.parts()
        for part in others:
            connection = part.send(replies, replicas, part.pool.send_if_free)
            if connection is None and not part.has_failed:
                first.absorb(part)
            elif connection is not None:
                sent.append((part, connection))
        connection = first.send(replies, replicas, first.pool.send)
        if connection is not None:
            sent.append((first, connection))

    def _send_one(self, request: Request) -> list[Any]:
        """The same, for most."""
        try:
            pool = self._pool(self.servers.of_shard(request.shard))
            return pool.receive(pool.send((request.command,)), 1)
        except (NotSent, Lost) as error:
            return [error]

    def _grouped(
        self, requests: Sequence[Request], asked: Sequence[Any], replies: list[Any], *, is_transaction: bool
    ) -> "list[_Group]":
        """The requests by server, in the same order for all who send, so that none waits for another in a circle."""
        groups: dict[Address | None, _Group] = {}
        for at, request in enumerate(requests):
            ask = asked[at] if asked else None
            try:
                address = (ask.host, int(ask.port)) if ask else self.servers.of_shard(request.shard)
            except NotSent as error:
                replies[at] = error
                continue
            if address not in groups:
                groups[address] = _Group(self._pool(address), is_transaction=is_transaction)
            groups[address].add(at, request.command, asking=ask is not None)
        return [groups[address] for address in sorted(groups, key=repr)] if len(groups) > 1 else [*groups.values()]

    def _pool(self, address: Address | None) -> Connections:
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools.setdefault(
                address, Connections(lambda: self.servers.connect(address), self._connections)
            )
        return pool


class _Group:
    """Commands for one server, and which of their replies belongs to which request."""

    def __init__(self, pool: Connections, *, is_transaction: bool = False) -> None:
        self.pool = pool
        self.is_transaction = is_transaction
        """True if a server is to make all of it at once: then it syncs once."""
        self.has_failed = False
        self._count = 0
        self.requests: list[tuple[int, Command, bool]] = []

    def add(self, at: int, command: Command, *, asking: bool) -> None:
        """One more request."""
        self.requests.append((at, command, asking))

    def absorb(self, other: "_Group") -> None:
        """The requests of another one too."""
        self.requests += other.requests

    def parts(self) -> "list[_Group]":
        """The requests in parts that a server reads at once: each time that it reads, it syncs."""
        if self.is_transaction:
            return [self]
        parts, size = [_Group(self.pool)], 0
        for request in self.requests:
            length = sum([len(word) for word in request[1] if isinstance(word, bytes)])
            if size and size + length > READ_AT_ONCE and len(parts) < PARTS:
                parts.append(_Group(self.pool))
                size = 0
            size += length
            parts[-1].requests.append(request)
        return parts

    def send(
        self, replies: list[Any], replicas: int, send: "Callable[[list[Command]], Connection | None]"
    ) -> Connection | None:
        """The connection it was sent on; None if it was not."""
        commands: list[Command] = []
        for _, command, asking in self.requests:
            commands += ((b"ASKING",), command) if asking else (command,)
        if self.is_transaction:
            commands = [(b"MULTI",), *commands, (b"EXEC",)]
        if replicas:
            commands.append((b"WAIT", replicas, WAIT_MILLISECONDS))
        self._count = len(commands)
        try:
            return send(commands)
        except (NotSent, Lost) as error:
            self._fail(replies, error)
            return None

    def receive(self, connection: Connection, replies: list[Any], replicas: int) -> None:
        """Put the replies where they belong; a write that too few replicas have is as good as lost."""
        try:
            answers = self.pool.receive(connection, self._count)
        except (NotSent, Lost) as error:
            self._fail(replies, error)
            return
        lost = None
        if replicas and (not isinstance(answers[-1], int) or answers[-1] < replicas):
            lost = Lost(f"{answers[-1]} of {replicas} replicas have it")
        if self.is_transaction:
            answers = _executed(answers[1 : len(self.requests) + 2])
        place = 0
        for at, _, asking in self.requests:
            place += 1 if asking else 0
            replies[at] = answers[place] if lost is None or isinstance(answers[place], Exception) else lost
            place += 1

    def _fail(self, replies: list[Any], error: Exception) -> None:
        """None of the requests was answered."""
        self.has_failed = True
        for at, *_ in self.requests:
            replies[at] = error


def _executed(answers: list[Any]) -> list[Any]:
    """The replies to commands that were made as one: what EXEC says, or why there was nothing to execute."""
    *queued, executed = answers
    if isinstance(executed, list):
        return executed
    # One of them was refused before, and so none was made.
    return [answer if isinstance(answer, Exception) else NotSent(str(executed)) for answer in queued]


def _pauses(patience: float) -> Iterator[float]:
    """How long to wait before each further attempt, in seconds."""
    pause = FIRST_PAUSE
    while patience > 0:
        yield min(pause, patience)
        patience -= pause
        pause = min(2 * pause, LONGEST_PAUSE)


def _may_repeat(reply: Any, *, writing: bool) -> bool:
    return is_redirect(reply) or needs_source(reply) or is_passing(reply, writing=writing)


def _is_ask(reply: Any) -> bool:
    return isinstance(reply, AskError) and not isinstance(reply, MovedError)


def _renewed(request: Request, reply: Any) -> Request:
    """The request as it is to be repeated. A node that keys are moving to does not know the script, most likely."""
    if request.source is None or not (needs_source(reply) or _is_ask(reply)):
        return request
    return request._replace(command=request.source)
