"""Threads in a directory: one append-only log file per thread."""

from holdfast.stores.file.backend import FileBackend

__all__ = ["FileBackend"]
