"""Threads in S3, and in what speaks like it: the object backend over obstore."""

from holdfast.stores.s3.backend import S3Backend

__all__ = ["S3Backend"]
