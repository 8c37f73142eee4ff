"""Commands for one server, sent together on one connection, and their replies."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.connection import ConnectionPool
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ConnectionError,  # noqa: A004
    InvalidResponse,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004
)

from holdfast.stores.redis.errors import FAILURES, Lost, NotSent, lost, not_sent

WAIT_MILLISECONDS = 2000

Command = Sequence[bytes | int]


class Request(NamedTuple):
    """A command for the server of a shard. `source` is sent instead if the server does not know the script."""

    shard: int
    command: Command
    source: Command | None = None
    asked: AskError | None = None
    """The redirection to a node that the slot is moving to."""


class Exchange:
    """The requests for one server, each with its place among all replies.

    A connection on which a reply is outstanding is never used again: `end` closes it, whatever has happened.
    """

    def __init__(self, pool: ConnectionPool, *, is_atomic: bool, replicas: int) -> None:
        self.requests: list[tuple[int, Request]] = []
        self._pool = pool
        self._is_atomic = is_atomic
        self._replicas = replicas
        self._connection: Any = None
        self._places: list[int] = []
        self._outstanding = 0
        self._failure: Exception | None = None

    @property
    def _is_transaction(self) -> bool:
        return self._is_atomic and len(self.requests) > 1

    def _commands(self) -> list[Command]:
        commands: list[Command] = []
        for _, request in self.requests:
            if request.asked:
                commands.append((b"ASKING",))
            self._places.append(len(commands))
            commands.append(request.command)
        if self._is_transaction:
            # The server makes all of it at once, and syncs once.
            commands = [(b"MULTI",), *commands, (b"EXEC",)]
        return [*commands, (b"WAIT", self._replicas, WAIT_MILLISECONDS)] if self._replicas else commands

    def send(self) -> None:
        """Send all commands at once."""
        try:
            self._connection = self._pool.get_connection()
        except FAILURES as error:
            self._failure = not_sent(error)
            return
        commands = self._commands()
        self._outstanding = len(commands)
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        except RedisError as error:
            self._failure = lost(error)

    def receive(self, replies: list[Any]) -> None:
        """Put the reply to each request, or its failure, into its place."""
        try:
            answers = [] if self._failure else self._answers()
        except (ConnectionError, TimeoutError, InvalidResponse) as error:
            self._failure = lost(error)
        if self._failure:
            for at, _ in self.requests:
                replies[at] = self._failure
            return
        for (at, _), answer in zip(self.requests, self._replies(answers), strict=True):
            replies[at] = answer

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
        """Return the answers to the requests alone; a write that too few replicas have is as good as lost."""
        copies = answers.pop() if self._replicas else 0
        ours = _executed(answers[1:]) if self._is_transaction else [answers[place] for place in self._places]
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
    """Return the replies to commands that were made as one: what EXEC says, or why there was nothing to execute."""
    *queued, executed = answers
    if isinstance(executed, list):
        return executed
    # One of them was refused before, and so none was made.
    return [answer if isinstance(answer, Exception) else NotSent(str(executed)) for answer in queued]
