"""Translate the errors of Redis and redis-py, and decide which requests may be repeated."""

from typing import Any

from redis.exceptions import AskError, AuthenticationError, NoPermissionError, RedisClusterException, RedisError

from holdfast.records.errors import ConfigurationError, Corrupt, HoldfastError, OutcomeUnknown, StoreUnavailable

FAILURES = (RedisError, RedisClusterException, OSError)
"""What redis-py raises while it connects."""
CLOSED = (ValueError, AttributeError)
"""What redis-py raises on a connection that its pool closed at this moment for another thread, as an idle one."""
PASSING = ("LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY ", "NOREPLICAS", "UNBLOCKED")
"""Temporary refusals: the server starts, fails over, moves slots or is busy. Nothing was executed."""
FORBIDDEN = ("The user executing the script can't run", "NOPERM")
"""How the refusal of an ACL reads within a script, and within a transaction."""
REFUSED_CONNECTION = ("max number of clients", "previous master is now a slave")
"""How redis-py describes a connection on which nothing was executed."""
WRONG_TYPE = "WRONGTYPE"
REFUSALS = {
    "OOM": "Redis is out of memory (maxmemory): raise it, or prune; nothing was written",
    "MISCONF": "Redis refuses writes because it cannot write to its disk; see its log; nothing was written",
    "READONLY": "this Redis is a replica and takes no writes; name the primary, or use redis+sentinel://",
    "LOADING": "Redis is still loading its data",
    "NOREPLICAS": "Redis refuses writes: too few of its replicas are connected (min-replicas-to-write)",
    "CLUSTERDOWN": "the Redis cluster is down: not all of its slots are served",
    "MASTERDOWN": "the Redis replica has lost its primary",
    "TRYAGAIN": "the Redis cluster is moving these keys between its nodes",
    "BUSY": "Redis is busy with a long script",
}
CODES = {
    "ReadOnlyError": "READONLY", "BusyLoadingError": "LOADING", "OutOfMemoryError": "OOM",
    "ClusterDownError": "CLUSTERDOWN", "MasterDownError": "MASTERDOWN", "TryAgainError": "TRYAGAIN",
}  # fmt: skip
"""The code of each error from which redis-py removes it."""


class _Unanswered(Exception):
    def __init__(self, cause: object) -> None:
        super().__init__(str(cause))
        if isinstance(cause, BaseException):
            self.__cause__ = cause


class NotSent(_Unanswered):
    """The server was not reached, or rejected the connection: nothing was executed."""


class Lost(_Unanswered):
    """The commands were sent, and no reply came: the outcome is unknown."""


def lost(error: Exception) -> NotSent | Lost:
    """Return what became of commands that were sent on a connection which then failed."""
    return NotSent(error) if any(words in str(error) for words in REFUSED_CONNECTION) else Lost(error)


def code_of(error: BaseException) -> str:
    """Return the code that a refusal begins with: some versions of redis-py keep it, others remove it."""
    status = getattr(error, "status_code", None)
    if isinstance(status, str):
        return status
    return CODES.get(type(error).__name__) or str(error).partition(" ")[0]


def is_passing(reply: Any, *, writing: bool) -> bool:
    """True if the same command may be sent again: it was certainly not executed, or changes nothing."""
    if isinstance(reply, NotSent):
        return _refusal_behind(reply) is None
    if isinstance(reply, Lost):
        return not writing
    is_temporary = isinstance(reply, RedisError) and f"{code_of(reply)} ".startswith(PASSING)
    return is_temporary or isinstance(reply, AskError)


def is_wrong_type(reply: Any) -> bool:
    """True if one of our keys has another type than ours."""
    return isinstance(reply, RedisError) and code_of(reply) == WRONG_TYPE


def translated(error: Exception, *, writing: bool) -> HoldfastError:
    """Return the error to raise for one that came instead of a reply."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, Lost):
        if writing:
            return OutcomeUnknown(f"the reply of Redis was lost: {error}; the write may or may not have happened")
        return StoreUnavailable(f"Redis does not answer: {error}")
    if (refusal := _refusal_behind(error)) is not None:
        return ConfigurationError(f"Redis denies access to this user, or this command: {refusal}; see its ACL")
    if isinstance(error, NotSent):
        return StoreUnavailable(f"Redis cannot be reached: {error}")
    return _about_refusal(error, writing=writing)


def _refusal_behind(error: BaseException) -> BaseException | None:
    """Return the refusal of an ACL that caused an error, or None: redis-py wraps some of them."""
    found: BaseException | None = error
    while found is not None:
        says_so = any(words in str(found) for words in FORBIDDEN)
        if says_so or isinstance(found, (AuthenticationError, NoPermissionError)):
            return found
        found = found.__cause__ or found.__context__
    return None


def _about_refusal(error: Exception, *, writing: bool) -> HoldfastError:
    code = code_of(error)
    if code in REFUSALS:
        return StoreUnavailable(REFUSALS[code])
    if code == WRONG_TYPE:
        return Corrupt(f"a key of this store has another type: {error}", record="a Redis key")
    if "user_script" in str(error):
        # Scripts read before they write, and fail only while they read.
        return Corrupt(f"data in Redis is damaged: {error}", record="a Redis key")
    if isinstance(error, RedisError) and not writing:
        return StoreUnavailable(f"Redis refuses: {error}")
    return OutcomeUnknown(f"Redis failed during a write: {error}")
