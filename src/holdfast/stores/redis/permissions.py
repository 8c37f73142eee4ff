"""What a store must be permitted to do, tried at open: a script that an ACL stops in the middle is not undone."""

from holdfast.stores.redis.exchange import Request
from holdfast.stores.redis.keys import Keys


def trials(keys: Keys) -> list[Request]:
    """Every command that a write uses after its first change, on keys that hold nothing.

    There is a key for each type, since another process may try the same at this moment.
    """
    text, fields, members, ranked = (keys.base(0) + name for name in (b"w", b"wh", b"ws", b"wz"))
    commands: list[tuple[bytes | int, ...]] = [
        (b"SETNX", text, 1),
        (b"PEXPIRE", text, 1),
        *((command, text) for command in (b"PERSIST", b"PTTL", b"EXISTS", b"DEL")),
        (b"HSETNX", fields, b"w", 1),
        (b"HSET", fields, b"w", 1),
        (b"HDEL", fields, b"w"),
        (b"SADD", members, b"w"),
        (b"DEL", members),
        (b"ZADD", ranked, b"XX", 0, b"w"),
        (b"ZREM", ranked, b"w"),
        (b"MULTI",),  # if the server refused it, it would execute the commands of a batch one by one
        (b"EXEC",),
    ]
    return [Request(0, command) for command in commands]
