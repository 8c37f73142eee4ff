"""Threads in an object store, over five calls: the base of the S3 store, and of stores that users write."""

from holdfast.stores.objects.backend import ObjectBackend
from holdfast.stores.objects.calls import Objects

__all__ = ["ObjectBackend", "Objects"]
