"""Objects in this process's memory: for tests, and the example of the five calls that `ObjectBackend` needs."""

from collections.abc import Callable
from copy import copy
from itertools import count
from threading import Lock
from typing import Self, TypeAlias, TypeVar

from holdfast.stores.objects.calls import Names

T = TypeVar("T")
Hook: TypeAlias = Callable[[str, str], BaseException | None]
"""Called before each call, with its name and the object's (for `list` the prefix).

What it raises fails the call before anything is done; an exception it returns is raised after the call was done, as
when a reply is lost.
"""


class ObjectMap:
    """The five calls over a dict."""

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook
        self.kept: dict[str, tuple[bytes, str]] = {}
        self._lock = Lock()
        self._numbers = count(1)

    def client(self, hook: Hook | None = None) -> Self:
        """The same objects under another hook. Two backends over two clients are two processes over one store."""
        other = copy(self)
        other.hook = hook
        return other

    def get(self, name: str) -> tuple[bytes, str] | None:
        """See `Objects.get`."""
        lost = self._before("get", name)
        with self._lock:
            found = self.kept.get(name)
        return _replied(found, lost)

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        """See `Objects.put_if_absent`."""
        lost = self._before("put_if_absent", name)
        with self._lock:
            tag = None if name in self.kept else self._put(name, data)
        return _replied(tag, lost)

    def put_if_match(self, name: str, data: bytes, tag: str) -> str | None:
        """See `Objects.put_if_match`."""
        lost = self._before("put_if_match", name)
        with self._lock:
            found = self.kept.get(name)
            new_tag = self._put(name, data) if found and found[1] == tag else None
        return _replied(new_tag, lost)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Names:
        """See `Objects.list`."""
        lost = self._before("list", prefix)
        with self._lock:
            names = sorted(name for name in self.kept if name.startswith(prefix) and name > after)
        return _replied(names[:limit], lost)

    def delete(self, name: str) -> None:
        """See `Objects.delete`."""
        lost = self._before("delete", name)
        with self._lock:
            self.kept.pop(name, None)
        _replied(None, lost)

    def _before(self, call: str, name: str) -> BaseException | None:
        return self.hook(call, name) if self.hook else None

    def _put(self, name: str, data: bytes) -> str:
        tag = self._tag(data)
        self.kept[name] = (bytes(data), tag)
        return tag

    def _tag(self, data: bytes) -> str:
        return str(next(self._numbers))


def _replied(reply: T, lost: BaseException | None) -> T:
    if lost is not None:
        raise lost
    return reply
