"""Threads in Redis or Valkey: plain servers, Sentinel and Cluster, without modules. redis-py is imported only here."""

from holdfast.stores.redis.backend import RedisBackend

__all__ = ["RedisBackend"]
