"""The interface to an engine, such as Temporal, that decides when and where the threads of a store run.

The store has all of their data. The engine is only told that there is something to do.
"""

import os
from importlib import import_module
from typing import Protocol

from holdfast.records.arguments import text_or_none

VARIABLE = "HOLDFAST_ENGINE"


class Engine(Protocol):
    """What a store needs of an engine."""

    def poke(self, thread_id: str, priority: int = 0) -> None:
        """Let the engine look at a thread soon. Blocking; never raises.

        If the engine cannot be reached, the poke is lost: the engine's workers look for threads that are overdue.
        """
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


def engine_of(url: str | None) -> Engine | None:
    """Return the engine that a URL names, or HOLDFAST_ENGINE; None without one."""
    text = text_or_none(url, "engine") or os.environ.get(VARIABLE)
    if not text:
        return None
    engine: Engine = import_module("holdfast.engines.urls").engine_at(text)
    return engine
