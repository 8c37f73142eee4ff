"""What `prune` deletes, and what it freed."""

from datetime import timedelta

import msgspec

from holdfast.records.arguments import duration_us, sequence, whole_number
from holdfast.records.errors import ConfigurationError
from holdfast.records.words import Status


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What `prune` deletes. Each rule is off unless given; the newest checkpoint of a kept thread always stays.

    A whole thread is deleted if its status is in `delete_on`, or if nothing was written to it for `ttl`; never while a
    run holds it. In a kept thread, checkpoints beyond the newest `keep_last` are deleted, and those older than
    `max_age`. Pinned checkpoints, and the threads that have any, stay unless `keep_pinned=False`.
    """

    keep_last: int | None = None
    ttl: timedelta | float | None = None
    max_age: timedelta | float | None = None
    delete_on: tuple[str, ...] = ()
    keep_pinned: bool = True

    def __post_init__(self) -> None:
        if self.keep_last is not None:
            whole_number(self.keep_last, "keep_last", least=1)  # the newest checkpoint always stays
        for name in ("ttl", "max_age"):
            if getattr(self, name) is not None:
                duration_us(getattr(self, name), name)
        for word in sequence(self.delete_on, "delete_on"):
            if word not in set(Status):
                raise ConfigurationError(f"`delete_on` must name statuses ({', '.join(Status)}), got {word!r}")

    @property
    def ttl_us(self) -> int | None:
        """`ttl` in microseconds."""
        return None if self.ttl is None else microseconds(self.ttl)

    @property
    def max_age_us(self) -> int | None:
        """`max_age` in microseconds."""
        return None if self.max_age is None else microseconds(self.max_age)


def retention_or_none(value: object, name: str = "retention") -> Retention | None:
    """Return a retention, or None."""
    if value is not None and not isinstance(value, Retention):
        raise ConfigurationError(
            f"`{name}` must be a holdfast.Retention, such as Retention(keep_last=10), got {value!r}"
        )
    return value


def microseconds(duration: timedelta | float) -> int:
    """Return a duration, given as timedelta or seconds, in microseconds."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return round(seconds * 1_000_000)


class Freed(msgspec.Struct, frozen=True, kw_only=True):
    """What a prune deleted, or with `dry_run` would delete.

    `damaged` threads cannot be read and stay. `busy` ones were written repeatedly meanwhile: the next prune
    does the rest.
    """

    threads: int = 0
    checkpoints: int = 0
    blobs: int = 0
    bytes: int = 0
    damaged: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()

    def __add__(self, other: "Freed") -> "Freed":
        return Freed(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})
