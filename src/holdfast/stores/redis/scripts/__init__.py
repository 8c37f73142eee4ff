"""The Lua scripts, as they are sent to the server."""

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

from holdfast.stores.redis.exchange import Command, Request


class Script(NamedTuple):
    """A script by its digest, and its source for a server that does not know it yet."""

    digest: bytes
    source: bytes

    def request(self, shard: int, keys: tuple[bytes, ...], arguments: tuple[bytes | int, ...]) -> Request:
        """Run it on the server of a shard."""
        rest: Command = (len(keys), *keys, *arguments)
        return Request(shard, (b"EVALSHA", self.digest, *rest), (b"EVAL", self.source, *rest))


@cache
def script(name: str) -> Script:
    """The script of that name."""
    source = (files(__name__) / f"{name}.lua").read_bytes()
    return Script(sha1(source, usedforsecurity=False).hexdigest().encode(), source)
