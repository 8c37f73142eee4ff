"""What went wrong between Redis and us, in our own words; and what may be tried again."""

from typing import Any

from redis.exceptions import (
    AskError,
    AuthenticationError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    RedisClusterException,
    RedisError,
)

from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    HoldfastError,
    OutcomeUnknown,
    StoreClosed,
    StoreUnavailable,
)

FAILURES = (RedisError, RedisClusterException, OSError)
"""What redis-py raises while it connects."""
PASSING = ("LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY ", "NOREPLICAS", "UNBLOCKED")
"""Refusals that pass: the server starts, fails over, moves slots, is busy. Nothing was done."""
FORBIDDEN = ("The user executing the script can't run", "NOPERM")
"""What an ACL's refusal says within a script, and within a transaction."""
REFUSED_WHOLLY = ("max number of clients", "previous master is now a slave")
"""What redis-py says of a connection on which nothing was done."""
WRONG_TYPE = "WRONGTYPE"
REFUSALS = {
    "OOM": "Redis is out of memory (maxmemory): raise it, or prune; nothing was written",
    "MISCONF": "Redis refuses writes because it cannot write to its disk; see its log; nothing was written",
    "READONLY": "this Redis is a replica, and takes no writes; name the primary, or use redis+sentinel://",
    "LOADING": "Redis is still loading its data",
    "NOREPLICAS": "Redis refuses writes: too few of its replicas are connected (min-replicas-to-write)",
    "CLUSTERDOWN": "the Redis cluster is down: not all of its slots are served",
    "MASTERDOWN": "the Redis replica has lost its primary",
    "TRYAGAIN": "the Redis cluster is moving these keys between its nodes",
    "BUSY": "Redis is busy with somebody's long script",
}


class NotSent(Exception):
    """The server was not reached, or turned the connection away: certainly nothing was done."""


class Lost(Exception):
    """The commands were sent, and no reply came: they may or may not have been done."""


def not_sent(error: Exception) -> NotSent:
    """Return what to say of commands for which there was no connection."""
    failure = NotSent(str(error))
    failure.__cause__ = error
    return failure


def lost(error: Exception) -> NotSent | Lost:
    """Return what to say of commands that were sent on a connection which then failed."""
    if any(words in str(error) for words in REFUSED_WHOLLY):
        return not_sent(error)
    failure = Lost(str(error))
    failure.__cause__ = error
    return failure


def code_of(error: BaseException) -> str:
    """The word a refusal begins with: some versions of redis-py keep it, others cut it off."""
    status = getattr(error, "status_code", None)
    if isinstance(status, str):
        return status
    kinds = {
        "ReadOnlyError": "READONLY", "BusyLoadingError": "LOADING", "OutOfMemoryError": "OOM",
        "ClusterDownError": "CLUSTERDOWN", "MasterDownError": "MASTERDOWN", "TryAgainError": "TRYAGAIN",
    }  # fmt: skip
    return kinds.get(type(error).__name__) or str(error).partition(" ")[0]


def is_redirect(reply: Any) -> bool:
    """True if the slot is elsewhere: the same command is to be sent there, at once."""
    return isinstance(reply, (AskError, MovedError))


def is_passing(reply: Any, *, writing: bool) -> bool:
    """True if the same command may be sent again: it was certainly not done, or changes nothing."""
    if isinstance(reply, NotSent):
        return _refusal_behind(reply) is None
    if isinstance(reply, Lost):
        return not writing
    return is_redirect(reply) or (isinstance(reply, RedisError) and f"{code_of(reply)} ".startswith(PASSING))


def needs_source(reply: Any) -> bool:
    """True if the server does not know a script, as after a restart."""
    return isinstance(reply, NoScriptError)


def is_wrong_type(reply: Any) -> bool:
    """True if a key of ours holds something else."""
    return isinstance(reply, RedisError) and code_of(reply) == WRONG_TYPE


def translated(error: Exception, *, writing: bool) -> HoldfastError:
    """What to raise for an error that stands in the place of a reply."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, Lost):
        return _about_loss(error, writing=writing)
    if (refusal := _refusal_behind(error)) is not None:
        return ConfigurationError(f"Redis does not let this user in, or do this: {refusal}; see its ACL")
    if isinstance(error, NotSent):
        return StoreUnavailable(f"Redis cannot be reached: {error}")
    return _about_refusal(error, writing=writing)


def _refusal_behind(error: BaseException) -> BaseException | None:
    """Return the refusal of an ACL that an error stems from, if it does: redis-py wraps some of them."""
    found: BaseException | None = error
    while found is not None:
        says_so = any(words in str(found) for words in FORBIDDEN)
        if says_so or isinstance(found, (AuthenticationError, NoPermissionError)):
            return found
        found = found.__cause__ or found.__context__
    return None


def _about_loss(error: Lost, *, writing: bool) -> HoldfastError:
    if writing:
        return OutcomeUnknown(f"the reply of Redis was lost: {error}; the write may or may not have happened")
    return StoreUnavailable(f"Redis does not answer: {error}")


def _about_refusal(error: Exception, *, writing: bool) -> HoldfastError:
    code = code_of(error)
    if code in REFUSALS:
        return StoreUnavailable(REFUSALS[code])
    if code == WRONG_TYPE:
        return Corrupt(f"a key of this store holds something else: {error}", record="a Redis key")
    if "user_script" in str(error):
        # Scripts read before they write, and fail only at what they read.
        return Corrupt(f"what is kept in Redis is damaged: {error}", record="a Redis key")
    if isinstance(error, RedisError) and not writing:
        return StoreUnavailable(f"Redis refuses: {error}")
    return OutcomeUnknown(f"Redis failed in the midst of a write: {error}")


def closed() -> StoreClosed:
    """What a closed backend raises."""
    return StoreClosed("this Redis store was closed")
