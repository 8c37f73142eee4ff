"""Where threads are kept. `Backend` is the interface to write a store of one's own; drivers are loaded when used."""

from holdfast.stores.backend import Backend, Busy, Listing
from holdfast.stores.objects import ObjectBackend, Objects
from holdfast.stores.store import Store

__all__ = ["Backend", "Busy", "Listing", "ObjectBackend", "Objects", "Store"]
