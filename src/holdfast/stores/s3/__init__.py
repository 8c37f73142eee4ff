"""Threads in S3, and in services with the same interface: the object backend over obstore."""

from holdfast.stores.s3.backend import S3Backend

__all__ = ["S3Backend"]
