"""Parts that are loaded at their first use: a process starts sooner, and may never need them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from holdfast.records.errors import HoldfastError

guard: AbstractContextManager[Any] = nullcontext()
"""Held while a part is loaded. Whoever knows of threads and forks puts a lock here."""


@contextmanager
def loading() -> Iterator[None]:
    """Around such an import. What goes wrong there (no files left, no stack left) says nothing about any value."""
    try:
        with guard:
            yield
    except (HoldfastError, MemoryError):
        raise
    except Exception as error:
        raise HoldfastError(f"a part of Holdfast could not be loaded: {error!r}; the data is not at fault") from error
