"""Where threads are stored. `Backend` is the interface for stores that users write; drivers are loaded when used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.stores.backend import Backend, Busy, Listing

if TYPE_CHECKING:
    from holdfast.stores.objects import ObjectBackend, Objects


def __getattr__(name: str) -> Any:
    """Load the object backend at its first use: programs on other stores start without it."""
    if name not in {"ObjectBackend", "Objects"}:
        raise AttributeError(f"module 'holdfast.stores' has no attribute {name!r}")
    return getattr(import_module("holdfast.stores.objects"), name)


__all__ = ["Backend", "Busy", "Listing", "ObjectBackend", "Objects"]
