"""Requests to the servers of a store: grouped by server, pipelined, and repeated where nothing was done."""

from collections.abc import Iterator, Sequence
from time import sleep
from typing import Any, NamedTuple

from redis.exceptions import AskError, MovedError

from holdfast.stores.redis.connections import Command, Connection, Connections, Lost, NotSent
from holdfast.stores.redis.errors import closed, is_passing, is_redirect, needs_source, translated
from holdfast.stores.redis.servers import Servers
from holdfast.stores.redis.settings import Address, Settings

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
WAIT_MILLISECONDS = 2000


class Request(NamedTuple):
    """A command for the server of a shard. `source` is sent instead if the server does not know the script."""

    shard: int
    command: Command
    source: Command | None = None


class Wire:
    """All that is said to the servers of one store."""

    def __init__(self, settings: Settings, servers: Servers, replicas: int, connections: int, patience: float) -> None:
        self.servers = servers
        self._connections = connections
        self._patience = patience
        self._settings = settings
        self._replicas = replicas
        self._pools: dict[Address | None, Connections] = {}
        self._is_closed = False
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
        if not any(isinstance(reply, Exception) for reply in replies):
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
        sent: list[tuple[_Group, Connection]] = []
        for group in self._grouped(requests, asked, replies):
            if writing and self._replicas:
                group.commands.append((b"WAIT", self._replicas, WAIT_MILLISECONDS))
            try:
                sent.append((group, group.pool.send(group.commands)))
            except (NotSent, Lost) as error:
                group.fail(replies, error)
        for group, connection in sent:
            try:
                answers = group.pool.receive(connection, len(group.commands))
            except (NotSent, Lost) as error:
                group.fail(replies, error)
            else:
                group.fill(replies, answers, self._replicas if writing else 0)
        return replies

    def _send_one(self, request: Request) -> list[Any]:
        """The same, for most."""
        try:
            pool = self._pool(self.servers.of_shard(request.shard))
            return pool.receive(pool.send((request.command,)), 1)
        except (NotSent, Lost) as error:
            return [error]

    def _grouped(self, requests: Sequence[Request], asked: Sequence[Any], replies: list[Any]) -> "list[_Group]":
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
                groups[address] = _Group(self._pool(address))
            groups[address].add(at, request.command, asking=ask is not None)
        return [groups[address] for address in sorted(groups, key=repr)] if len(groups) > 1 else [*groups.values()]

    def _pool(self, address: Address | None) -> Connections:
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools.setdefault(address, Connections(lambda: self._settings.make(address), self._connections))
        return pool


class _Group:
    """Commands for one server, and which of their replies belongs to which request."""

    def __init__(self, pool: Connections) -> None:
        self.pool = pool
        self.commands: list[Command] = []
        self._places: list[tuple[int, int]] = []

    def add(self, at: int, command: Command, *, asking: bool) -> None:
        """One more request."""
        if asking:
            self.commands.append((b"ASKING",))
        self._places.append((at, len(self.commands)))
        self.commands.append(command)

    def fail(self, replies: list[Any], error: Exception) -> None:
        """None of the requests was answered."""
        for at, _ in self._places:
            replies[at] = error

    def fill(self, replies: list[Any], answers: list[Any], replicas: int) -> None:
        """The answers to the requests; a write that too few replicas have is as good as lost."""
        for at, place in self._places:
            replies[at] = answers[place]
        if replicas and (not isinstance(answers[-1], int) or answers[-1] < replicas):
            error = Lost(f"{answers[-1]} of {replicas} replicas have it")
            for at, place in self._places:
                replies[at] = answers[place] if isinstance(answers[place], Exception) else error


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
