"""The Lua scripts, as they are sent to a server."""

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

from holdfast.stores.redis.wire import Command, Request


class Script(NamedTuple):
    """A script: its digest, and its source for a server that does not know it yet."""

    digest: bytes
    source: bytes

    def request(self, shard: int, keys: tuple[bytes, ...], arguments: tuple[bytes | int, ...]) -> Request:
        """Return the request that runs it on the server of a shard."""
        rest: Command = (len(keys), *keys, *arguments)
        return Request(shard, (b"EVALSHA", self.digest, *rest), (b"EVAL", self.source, *rest))


@cache
def script(name: str) -> Script:
    """Load the script with this name."""
    source = (files(__name__) / f"{name}.lua").read_bytes()
    return Script(sha1(source, usedforsecurity=False).hexdigest().encode(), source)
