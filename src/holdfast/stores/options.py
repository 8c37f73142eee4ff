"""The keywords of stores, declared once: for awaitable and blocking stores, for their classes and for `open`."""

from datetime import timedelta
from typing import TypedDict

from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import Limits
from holdfast.records.retention import Retention
from holdfast.records.words import Durability, KeepInputs


class HandleOptions(TypedDict, total=False):
    """The keywords of a handle on any store: see `holdfast.open`."""

    keys: KeyRing | bytes | None
    compress: bool
    retention: Retention | None
    sweep: timedelta | float | None
    namespace: str
    inputs: KeepInputs
    limits: Limits | None
    engine: str | None


class LocalOptions(HandleOptions, total=False):
    """The keywords of stores in memory and in files, and of `open`."""

    durability: Durability | str | None
    inline: bool


class PostgresOptions(HandleOptions, total=False):
    """The keywords of a PostgreSQL store, except its schema: see `holdfast.PostgresStore`."""

    durability: Durability | str | None
    prepare_threshold: int | None
    connections: int
    patience: float


class RedisOptions(HandleOptions, total=False):
    """The keywords of a Redis store: see `holdfast.RedisStore`."""

    durability: Durability | str | None
    prefix: str | None
    assume: Durability | str | None
    replicas: int | None
    expire: bool
    connections: int
    patience: float


class BucketOptions(HandleOptions, total=False):
    """The keywords of a store in a bucket: see `holdfast.S3Store`."""

    durability: Durability | str | None
    endpoint: str | None
    region: str | None
    allow_http: bool
    parallel: int
    patience: float
    timeout: float
