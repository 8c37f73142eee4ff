"""The five calls of an object store, and the one place that translates their errors.

An error before a head is replaced means that nothing was committed; an error while it is replaced means that the
outcome is unknown. Independent calls run in parallel, on a few threads that end with `close`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    """All that an object store must offer. The calls block, may come from any thread, and see all that was done before.

    Names have at most 250 characters of `0-9a-z/-`. An object exists completely or not at all, and a put that returns
    is durable. A call that fails may raise anything; `StoreUnavailable` from a put promises that nothing was written.
    So does None: a client that retries a conditional put whose reply was lost, and is then refused because of its own
    first attempt, must raise instead.
    """

    def get(self, name: str) -> tuple[bytes, str] | None:
        """Return the object's content and its version tag; None if it does not exist."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        """Create an object and return its tag; None if it exists already, which leaves it unchanged."""
        ...

    def put_if_match(self, name: str, data: bytes, tag: str) -> str | None:
        """Replace an object that still has this tag, and return the new tag; None if it changed or is gone."""
        ...

    def list(self, prefix: str, after: str = "", limit: int = PAGE) -> Names:
        """Return the first `limit` names that begin with `prefix` and are greater than `after`, by code point.

        Fewer than `limit` means that there are no more.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete an object; no error if it does not exist."""
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
        """Make later calls raise `StoreClosed`."""
        self._closed = True
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.shutdown()

    def check_open(self) -> None:
        """Raise `StoreClosed` after `close`."""
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
        """Yield all names that begin with `prefix` and are greater than `after`; one call for each `page` of them."""
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

    # In parallel

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Put objects in parallel. One that exists is equal, and stays."""
        self.each(lambda item: self.put_if_absent(*item), list(objects.items()))

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete objects in parallel."""
        self.each(self.delete, list(names))

    def each(self, function: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """Return `function` of every item, computed in parallel; if one fails, raise that once all are done."""
        if len(items) < 2 or getattr(self._here, "is_pool", False):
            return [function(item) for item in items]
        futures = self._submitted(function, items)
        try:
            rest = [function(item) for item in items[len(futures) :]]
        finally:
            wait(futures)
        return [*(future.result() for future in futures), *rest]

    def _submitted(self, function: Callable[[T], U], items: Sequence[T]) -> list[Future[U]]:
        """Submit as many of the calls as the pool accepts: none once Python is shutting down."""
        pool, futures = self._running_pool(), list[Future[U]]()
        with suppress(RuntimeError):
            for item in items:
                futures.append(pool.submit(self._in_pool, function, item))
        return futures

    def _in_pool(self, function: Callable[[T], U], item: T) -> U:
        # Work in the pool must not wait for the pool: it would wait for itself once all threads do.
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
