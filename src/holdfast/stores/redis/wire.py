"""Requests to the servers of a store: grouped by server, sent together, and repeated where nothing was done."""

from collections.abc import Sequence
from typing import Any

from redis.connection import ConnectionPool
from redis.exceptions import AskError, MovedError

from holdfast.stores.attempts import attempts
from holdfast.stores.redis.errors import (
    NotSent,
    closed,
    is_passing,
    is_redirect,
    is_wrong_type,
    needs_source,
    translated,
)
from holdfast.stores.redis.exchange import Exchange, Request
from holdfast.stores.redis.keys import SHARDS
from holdfast.stores.redis.pools import Pools

FOLLOW_UPS = 4
"""How often a request is sent again at once: to where its slot has moved, with the source of its script."""


class Wire:
    """All that is sent to the servers of one store. An outage is retried for up to `patience` seconds.

    The very first connection is not waited for: what is wrong then is most likely the address.
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
            raise closed()

    def one_shard_each(self) -> list[int]:
        """Return a shard of each server: what is to be asked of all servers is asked of these."""
        try:
            return [*{self._pools.of_shard(shard): shard for shard in range(SHARDS)}.values()]
        except NotSent as error:
            raise translated(error, writing=False) from error

    def read(self, requests: Sequence[Request]) -> list[Any]:
        """Return the replies. What was lost on the way is asked for again."""
        return self.checked(self.attempt(requests, writing=False), writing=False)

    def read_each(self, requests: Sequence[Request]) -> list[Any]:
        """As `read`, but where a key holds something else, the reply is that error."""
        replies = self.attempt(requests, writing=False)
        self.checked([reply for reply in replies if not is_wrong_type(reply)], writing=False)
        return replies

    def checked(self, replies: list[Any], *, writing: bool) -> list[Any]:
        """Return the replies, if all are; else raise the first error among them, in our own words."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise translated(reply, writing=writing) from (reply.__cause__ or reply)
        return replies

    def attempt(self, requests: Sequence[Request], *, writing: bool) -> list[Any]:
        """Return the replies, errors among them. A request is repeated only if it was not done, or changes nothing."""
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
        """Return the replies; what is redirected, or needs the source of its script, is sent again at once."""
        replies = self._send(requests, writing=writing)
        for _ in range(FOLLOW_UPS):
            again = [at for at, reply in enumerate(replies) if is_redirect(reply) or needs_source(reply)]
            if not again:
                break
            if any(isinstance(replies[at], MovedError) for at in again):
                self._pools.refresh()
            renewed = [_renewed(requests[at], replies[at]) for at in again]
            for at, reply in zip(again, self._send(renewed, writing=writing), strict=True):
                replies[at] = reply
        return replies

    def _send(self, requests: Sequence[Request], *, writing: bool) -> list[Any]:
        """Return the replies after one round trip to each server that is concerned, to all at the same time."""
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
        """Return the requests by server, in the same order for all who send: so none waits for another in a circle."""
        groups: dict[ConnectionPool, Exchange] = {}
        for at, request in enumerate(requests):
            try:
                pool = self._pool_for(request)
            except NotSent as error:
                replies[at] = error
                continue
            if pool not in groups:
                is_atomic, replicas = writing and not self._pools.is_cluster, self._replicas if writing else 0
                groups[pool] = Exchange(pool, is_atomic=is_atomic, replicas=replicas)
            groups[pool].requests.append((at, request))
        return [groups[pool] for pool in sorted(groups, key=id)]

    def _pool_for(self, request: Request) -> ConnectionPool:
        asked = request.asked
        return self._pools.at((asked.host, asked.port)) if asked else self._pools.of_shard(request.shard)


def _renewed(request: Request, reply: Any) -> Request:
    """Return the request to send next. A node that keys are moving to does not know the script, most likely."""
    is_ask = isinstance(reply, AskError) and not isinstance(reply, MovedError)
    asked = reply if is_ask else request.asked if needs_source(reply) else None
    if request.source is not None and (is_ask or needs_source(reply)):
        return request._replace(command=request.source, asked=asked)
    return request._replace(asked=asked)
