"""The user's own program: imported by `module:name`, its durable functions resumed in their own world."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.chaos.named import find_named
from holdfast.records.errors import ConfigurationError
from holdfast.records.signatures import is_async

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.runs.store import Store

T = TypeVar("T")


def load(app: str) -> Any:
    """What `module:name` names, or the module; modules of the working directory are found first."""
    if os.getcwd() not in sys.path:  # noqa: PTH109  sys.path holds str
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        return find_named(app)
    except ConfigurationError as error:
        raise ConfigurationError(f"--app {app}: {error}") from error


def load_classes(app: str) -> None:
    """Import a module and register the classes that it has, as a workflow does that is built with them."""
    from holdfast.codec.discovery import Annotation
    from holdfast.codec.registry import adopt_named, is_registrable

    load(app)
    values = vars(sys.modules[app.partition(":")[0]]).values()
    classes = [each for each in values if isinstance(each, type) and is_registrable(each)]
    adopt_named([Annotation(each, {}) for each in classes], evaluate=True)


def in_world_of(session: "Session", act: "Callable[[Store], Coroutine[Any, Any, T]]", *, blocking: bool) -> T:
    """Act on the session's store without an event loop, or in one; the store of an application has its own world."""
    from holdfast.ports import BlockingPorts, run_blocking
    from holdfast.ports.awaitable import AsyncPorts
    from holdfast.runs.kinds import OpenedStore
    from holdfast.runs.store import tools_of
    from holdfast.stores.locations import url_parts

    own = session.own
    if own is not None:
        return run_blocking(act(own)) if tools_of(own).ports.blocking else asyncio.run(act(own))

    async def within() -> T:
        parts = url_parts(session.url, {"keys": session.keys, "namespace": session.namespace})
        async with OpenedStore(*parts, BlockingPorts() if blocking else AsyncPorts()) as store:
            return await act(store)

    return run_blocking(within()) if blocking else asyncio.run(within())


def is_blocking(function: Any) -> bool:
    """True if a durable function is a plain `def`."""
    return not is_async(function.__wrapped__)
