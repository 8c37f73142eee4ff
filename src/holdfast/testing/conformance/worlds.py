"""One set of tests for both worlds: here an awaitable store, with an event loop, looks like a blocking one."""

from asyncio import Runner
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, cast

from holdfast import sync
from holdfast.records.thread import Page
from holdfast.runs.store import Store
from holdfast.stores.listing import AsyncPage


class _Awaited:
    """Calls the methods of an awaitable store, and awaits their results."""

    def __init__(self, store: Store, runner: Runner) -> None:
        self._store = store
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._called(found) if callable(found) else found

    def _called(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            return self._await(result) if isawaitable(result) else result

        return call

    def _await(self, awaitable: Any) -> Any:
        async def awaited() -> Any:
            return await awaitable

        result = self._runner.run(awaited())
        return _AwaitedPage(result, self._await) if isinstance(result, AsyncPage) else result


class _AwaitedPage(Page[Any]):
    def __init__(self, page: AsyncPage[Any], wait: Callable[[Any], Any]) -> None:
        super().__init__(page.items, page.next)
        self._page = page
        self._wait = wait

    def next_page(self) -> Any:
        return self._wait(self._page.next_page())


def awaited(store: sync.Store, runner: Runner) -> sync.Store:
    """Return the awaitable store beneath a blocking one, run by that runner's loop; its ports must be awaitable too."""
    return cast("sync.Store", _Awaited(store._store, runner))  # noqa: SLF001  the two are one store
