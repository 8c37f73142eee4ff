"""The five calls of an object store, and the one place where their errors are translated.

Any error before a head is replaced means that nothing was committed; an error while it is replaced means that nobody
knows. Calls that do not depend on each other run side by side, on a few threads that end with `close`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Lock, local
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

from holdfast.records.errors import HoldfastError, OutcomeUnknown, StoreClosed, StoreUnavailable

Names: TypeAlias = list[str]
"""A list of names, under a name that the method `list` does not hide."""

PAGE = 1000
P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


class Objects(Protocol):
    """All that an object store must offer. Blocking; each call may come from any thread, and sees all that was done.

    Names have at most 250 characters of `0-9a-z/-`. An object is there wholly or not at all, and a put that returns is
    durable. A call that fails raises anything; `StoreUnavailable` says of a put that it was certainly not made. So does
    None: a client that repeats a conditional put whose reply was lost, and is refused by itself, must raise instead.
    """

    def get(self, name: str) -> tuple[bytes, str] | None:
        """The object's content and its version tag; None if it is not there."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        """Create an object and return its tag; None if it exists already, which leaves it as it is."""
        ...

    def put_if_match(self, name: str, data: bytes, tag: str) -> str | None:
        """Replace an object whose tag is still this one, and return the new tag; None if it changed or is gone."""
        ...

    def list(self, prefix: str, after: str = "", limit: int = PAGE) -> Names:
        """The first `limit` names that begin with `prefix` and are greater than `after`, ascending by code point.

        Fewer than `limit` says that there are no more.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove an object; no error if it is not there."""
        ...


class Calls:
    """The calls as the backend makes them."""

    def __init__(self, objects: Objects, parallel: int) -> None:
        self._objects = objects
        self._parallel = parallel
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0
        self._lock = Lock()
        self._here = local()
        self._closed = False

    def close(self) -> None:
        """Later calls raise `StoreClosed`."""
        self._closed = True
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.shutdown()

    def check_open(self) -> None:
        """`StoreClosed` after `close`."""
        if self._closed:
            raise StoreClosed("this object store was closed")

    def get(self, name: str) -> tuple[bytes, str] | None:
        """See `Objects.get`."""
        return self._translated(self._objects.get, name)

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        """See `Objects.put_if_absent`."""
        return self._translated(self._objects.put_if_absent, name, data)

    def put_if_match(self, name: str, data: bytes, tag: str) -> str | None:
        """See `Objects.put_if_match`."""
        return self._translated(self._objects.put_if_match, name, data, tag)

    def delete(self, name: str) -> None:
        """See `Objects.delete`."""
        self._translated(self._objects.delete, name)

    def names(self, prefix: str, after: str = "", page: int = PAGE) -> Iterator[str]:
        """All names that begin with `prefix` and are greater than `after`; asks for `page` of them at a time."""
        while True:
            listed = self._translated(self._objects.list, prefix, after, page)
            yield from listed
            if len(listed) < page:
                return
            after = listed[-1]

    def _translated(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.check_open()
        try:
            return call(*args, **kwargs)
        except OutcomeUnknown as error:
            raise StoreUnavailable(f"the object store did not answer: {error}") from error
        except HoldfastError:
            raise
        except Exception as error:
            raise StoreUnavailable(f"the object store failed: {error!r}") from error

    def replace(self, name: str, data: bytes, tag: str | None) -> str | None:
        """Replace an object, or create it if `tag` is None: the commit. Any doubt raises `OutcomeUnknown`."""
        self.check_open()
        try:
            if tag is None:
                return self._objects.put_if_absent(name, data)
            return self._objects.put_if_match(name, data, tag)
        except HoldfastError:
            raise
        except Exception as error:
            raise OutcomeUnknown(f"the object store failed while it replaced {name}: {error!r}") from error

    def each(self, function: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """`function` of every item, side by side; if one fails, that is raised once all are done."""
        if len(items) < 2 or getattr(self._here, "is_pool", False):
            return [function(item) for item in items]
        futures = self._submitted(function, items)
        try:
            last = [function(item) for item in items[len(futures) :]]
        finally:
            wait(futures)
        return [*(future.result() for future in futures), *last]

    def _submitted(self, function: Callable[[T], U], items: Sequence[T]) -> list[Future[U]]:
        """As many of the calls as the pool takes: none any more once Python is ending."""
        pool, futures = self._running_pool(), list[Future[U]]()
        with suppress(RuntimeError):
            for item in items:
                futures.append(pool.submit(self._in_pool, function, item))
        return futures

    def _in_pool(self, function: Callable[[T], U], item: T) -> U:
        # Work within the pool must not wait for the pool: it would wait for itself once all threads do.
        self._here.is_pool = True
        return function(item)

    def _running_pool(self) -> ThreadPoolExecutor:
        self.check_open()
        with self._lock:
            # A forked child has its parent's pool but none of its threads.
            if self._pool is None or self._process != os.getpid():
                self._pool = ThreadPoolExecutor(self._parallel, "holdfast-objects")
                self._process = os.getpid()
            return self._pool
