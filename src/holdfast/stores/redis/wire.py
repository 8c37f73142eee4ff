"""Requests to the servers of a store: grouped by server, sent together, and repeated only if nothing was done.

redis-py finds the servers, connects and keeps the connections (stores/redis/pools.py), but we send the commands on its
connections ourselves: its clients repeat a command whose reply was lost, and the pipeline of a cluster does so whatever
its retry settings say. A write that is sent twice could be made twice.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.connection import ConnectionPool
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ConnectionError,  # noqa: A004
    InvalidResponse,
    MovedError,
    NoScriptError,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004
)

from holdfast.records.errors import StoreClosed
from holdfast.stores.attempts import attempts
from holdfast.stores.redis.errors import CLOSED, FAILURES, Lost, NotSent, is_passing, is_wrong_type, lost, translated
from holdfast.stores.redis.keys import SHARDS
from holdfast.stores.redis.pools import Pools

WAIT_MILLISECONDS = 2000
FOLLOW_UPS = 4
"""How often a request is sent again at once: to where its slot has moved, or with the source of its script."""

Command = Sequence[bytes | int]
ASKING: Command = (b"ASKING",)
"""Sent before a command that is redirected to a node while its slot is moving there."""


class Request(NamedTuple):
    """A command for the server of a shard. `source` is sent instead if the server does not know the script."""

    shard: int
    command: Command
    source: Command | None = None
    asked: AskError | None = None
    """The redirection to a node that the slot is moving to."""


class Exchange:
    """The requests for one server, sent together on one connection, each with its index among all replies.

    A connection on which a reply is outstanding is never used again: `end` closes it, whatever has happened.
    """

    def __init__(self, pool: ConnectionPool, *, is_atomic: bool, replicas: int) -> None:
        self.requests: list[tuple[int, Request]] = []
        self._pool = pool
        self._is_atomic = is_atomic
        self._replicas = replicas
        self._connection: Any = None
        self._commands: list[Command] = []
        self._outstanding = 0
        self._failure: Exception | None = None

    @property
    def _is_transaction(self) -> bool:
        return self._is_atomic and len(self.requests) > 1

    def _packed(self) -> Any:
        commands: list[Command] = []
        for _, request in self.requests:
            commands += [ASKING, request.command] if request.asked else [request.command]
        if self._is_transaction:
            # The server executes all of it at once, and syncs its file once.
            commands = [(b"MULTI",), *commands, (b"EXEC",)]
        if self._replicas:
            commands.append((b"WAIT", self._replicas, WAIT_MILLISECONDS))
        self._commands, self._outstanding = commands, len(commands)
        return self._connection.pack_commands(commands)

    def send(self) -> None:
        """Send all commands at once."""
        try:
            self._connection = self._pool.get_connection()
        except (*FAILURES, *CLOSED) as error:
            self._failure = NotSent(error)
            return
        packed = self._packed()
        try:
            self._connection.send_packed_command(packed, check_health=False)
        except (RedisError, *CLOSED) as error:
            self._failure = lost(error)

    def receive(self, replies: list[Any]) -> None:
        """Store the reply to each request, or its failure, under its index."""
        try:
            answers = [] if self._failure else self._answers()
        except (ConnectionError, TimeoutError, InvalidResponse, *CLOSED) as error:
            self._failure = lost(error)
        found = [self._failure] * len(self.requests) if self._failure else self._replies(answers)
        for (at, _), reply in zip(self.requests, found, strict=True):
            replies[at] = reply

    def _answers(self) -> list[Any]:
        answers: list[Any] = []
        while self._outstanding:
            try:
                answers.append(self._connection.read_response(disconnect_on_error=False))
            except (ResponseError, BusyLoadingError) as refusal:
                answers.append(refusal)
            self._outstanding -= 1
        return answers

    def _replies(self, answers: list[Any]) -> list[Any]:
        """Return the answers to the requests alone. A write that too few replicas have counts as lost."""
        copies = answers.pop() if self._replicas else 0
        if self._is_transaction:
            ours = _executed(answers[1:])
        else:
            ours = [answer for sent, answer in zip(self._commands, answers, strict=False) if sent != ASKING]
        if isinstance(copies, int) and copies >= self._replicas:
            return ours
        missed = Lost(f"{copies} of {self._replicas} replicas have it")
        return [answer if isinstance(answer, Exception) else missed for answer in ours]

    def end(self) -> None:
        """Return the connection to its pool."""
        if self._connection is None:
            return
        if self._outstanding:
            self._connection.disconnect()
        self._pool.release(self._connection)


def _executed(answers: list[Any]) -> list[Any]:
    """Return the replies within a transaction: what EXEC returned, or why nothing was executed."""
    *queued, executed = answers
    if isinstance(executed, list):
        return executed
    # One command was refused when it was queued, so none was executed.
    return [answer if isinstance(answer, Exception) else NotSent(executed) for answer in queued]


class Wire:
    """Send requests to the servers of one store. Retry an outage for up to `patience` seconds.

    The very first connection is not retried: the address is most likely wrong.
    """

    def __init__(self, pools: Pools, replicas: int, patience: float) -> None:
        self.kind = pools.kind
        self._pools = pools
        self._patience = patience
        self._replicas = replicas
        self._is_closed = False
        self._has_answered = False
        self.round_trips = 0

    def close(self) -> None:
        """Close the connections. Later calls raise `StoreClosed`."""
        self._is_closed = True
        self._pools.close()

    def check_open(self) -> None:
        """Raise `StoreClosed` after `close`."""
        if self._is_closed:
            raise StoreClosed("this Redis store was closed")

    def one_shard_each(self) -> list[int]:
        """Return one shard of each server, to ask every server once."""
        try:
            return [*{self._pools.of_shard(shard): shard for shard in range(SHARDS)}.values()]
        except NotSent as error:
            raise translated(error, writing=False) from error

    def read(self, requests: Sequence[Request]) -> list[Any]:
        """Return the replies. A request whose reply was lost is sent again."""
        return checked(self.attempt(requests, writing=False), writing=False)

    def read_each(self, requests: Sequence[Request]) -> list[Any]:
        """Return the replies as `read` does, but where a key has the wrong type, the reply is that error."""
        replies = self.attempt(requests, writing=False)
        checked([reply for reply in replies if not is_wrong_type(reply)], writing=False)
        return replies

    def once(self, requests: Sequence[Request]) -> list[Any]:
        """Return the replies, errors included, after one attempt."""
        self.check_open()
        return self._answers(list(requests), writing=False)

    def connection(self) -> Any:
        """Return a connection to one of the servers, not yet connected, which belongs to the caller."""
        self.check_open()
        pool: Any = self._pools.of_shard(0)
        return pool.connection_class(**pool.connection_kwargs)

    def attempt(self, requests: Sequence[Request], *, writing: bool) -> list[Any]:
        """Return the replies, errors included. Repeat a request only if it was not executed, or changes nothing."""
        replies: list[Any] = [None] * len(requests)
        waiting = list(range(len(requests)))
        for is_last in attempts(self._patience):
            self.check_open()
            answers = self._answers([requests[at] for at in waiting], writing=writing)
            for at, answer in zip(waiting, answers, strict=True):
                replies[at] = answer
            self._has_answered = self._has_answered or not all(isinstance(answer, NotSent) for answer in answers)
            waiting = [at for at in waiting if is_passing(replies[at], writing=writing)]
            if is_last or not waiting or not self._has_answered:
                break
            self._pools.refresh()
        return replies

    def _answers(self, requests: list[Request], *, writing: bool) -> list[Any]:
        """Return the replies. Follow redirections, and send the source of unknown scripts, at once."""
        replies = self._send(requests, writing=writing)
        for _ in range(FOLLOW_UPS):
            again = [at for at, reply in enumerate(replies) if isinstance(reply, (AskError, NoScriptError))]
            if not again:
                break
            if any(isinstance(replies[at], MovedError) for at in again):
                self._pools.refresh()
            renewed = [_renewed(requests[at], replies[at]) for at in again]
            for at, reply in zip(again, self._send(renewed, writing=writing), strict=True):
                replies[at] = reply
        return replies

    def _send(self, requests: Sequence[Request], *, writing: bool) -> list[Any]:
        """Return the replies after one round trip to each server involved, to all at the same time."""
        self.round_trips += 1
        replies: list[Any] = [None] * len(requests)
        exchanges = self._grouped(requests, replies, writing=writing)
        try:
            for exchange in exchanges:
                exchange.send()
            for exchange in exchanges:
                exchange.receive(replies)
        finally:
            for exchange in exchanges:
                exchange.end()
        return replies

    def _grouped(self, requests: Sequence[Request], replies: list[Any], *, writing: bool) -> list[Exchange]:
        """Group the requests by server. All callers take connections in the same order, so that none deadlock."""
        groups: dict[ConnectionPool, Exchange] = {}
        for at, request in enumerate(requests):
            asked = request.asked
            try:
                pool = self._pools.at((asked.host, asked.port)) if asked else self._pools.of_shard(request.shard)
            except NotSent as error:
                replies[at] = error
                continue
            if pool not in groups:
                is_atomic, replicas = writing and not self._pools.is_cluster, self._replicas if writing else 0
                groups[pool] = Exchange(pool, is_atomic=is_atomic, replicas=replicas)
            groups[pool].requests.append((at, request))
        return [groups[pool] for pool in sorted(groups, key=id)]


def checked(replies: list[Any], *, writing: bool) -> list[Any]:
    """Return the replies; if one is an error, raise it, translated."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise translated(reply, writing=writing) from (reply.__cause__ or reply)
    return replies


def _renewed(request: Request, reply: Any) -> Request:
    """Return the request to send next. A node that keys are moving to most likely does not know the script."""
    is_ask = isinstance(reply, AskError) and not isinstance(reply, MovedError)
    is_unknown = isinstance(reply, NoScriptError)
    asked = reply if is_ask else request.asked if is_unknown else None
    if request.source is not None and (is_ask or is_unknown):
        return request._replace(command=request.source, asked=asked)
    return request._replace(asked=asked)
