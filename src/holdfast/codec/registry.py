"""The classes that may be stored, by the name they are stored under. Only what is registered here is ever made again.

A stored object carries its registered name, the version of its class and its fields. A class that changes raises its
version, and a migration for each older version turns the old fields into the next ones.
"""

import sys
from collections.abc import Callable
from contextvars import ContextVar
from enum import EnumMeta
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import msgpack

from holdfast.codec.models import ModelShape
from holdfast.codec.shapes import DataclassShape, EnumShape, NamedTupleShape, Shape, StructShape
from holdfast.records.arguments import text_or_none
from holdfast.records.errors import CodecError, ConfigurationError, HoldfastError, IncompatibleCheckpoint, UnknownType
from holdfast.records.naming import importable_module
from holdfast.records.usage import UsageSnapshot

T = TypeVar("T")
Fields = dict[str, Any]
Migration = Callable[[Fields], Fields]
MigrationT = TypeVar("MigrationT", bound=Migration)


class Entry(msgspec.Struct, frozen=True):
    """A registered class. `head` is the beginning of each of its encodings: [name, version, and the content to come."""

    cls: type
    name: str
    version: int
    shape: Shape
    head: bytes


_by_class: Final[dict[type, Entry]] = {}
_by_name: Final[dict[str, Entry]] = {}
_migrations: Final[dict[tuple[str, int], Migration]] = {}

stand_in: Final[ContextVar[Callable[[str, int, Any], Any] | None]] = ContextVar("stand_in", default=None)
"""What to make of an object whose class is not registered: its name, version and content. None: refuse it."""


def register(cls: type[T], *, name: str | None = None, version: int = 1) -> type[T]:
    """Make a dataclass, pydantic model, Struct, enum or NamedTuple storable, and return it.

    It is stored under `name`, by default its module and qualified name: give a name of your own if the class may move.
    Subclasses are not registered with it. Raises ConfigurationError for any other class, and for a name already taken.
    """
    shape = _shape(cls)
    name = str(text_or_none(name, "name") or _full_name(cls))
    if type(version) is not int or not 1 <= version < 2**63:
        raise ConfigurationError(f"the version of {name} must be an int from 1 up, not {version!r}")
    _refuse_clash(cls, name)
    head = b"\x93" + msgpack.encode(name) + msgpack.encode(version)
    entry = Entry(cls, name, version, shape, head)
    previous = _by_name.get(name)
    if previous is not None and previous.cls.__module__ == cls.__module__:
        _by_class.pop(previous.cls, None)
    _by_class[cls] = _by_name[name] = entry
    return cls


@overload
def storable(cls: type[T], /) -> type[T]: ...
@overload
def storable(*, name: str | None = None, version: int = 1) -> Callable[[type[T]], type[T]]: ...
def storable(cls: type[T] | None = None, /, *, name: str | None = None, version: int = 1) -> Any:
    """Register the class below: `@storable`, or `@storable(name=..., version=2)`."""
    if cls is not None:
        return register(cls)
    return lambda decorated: register(decorated, name=name, version=version)


def migration(cls_or_name: type | str, *, from_: int = 1) -> Callable[[MigrationT], MigrationT]:
    """Register the function below to turn the fields of version `from_` into those of the next version.

    It takes the old fields as a dict and returns the new ones. Migrations are chained up to the class's own version.
    """
    name = cls_or_name if isinstance(cls_or_name, str) else name_of(cls_or_name)

    def remember(function: MigrationT) -> MigrationT:
        known = _migrations.get((name, from_))
        if known is not None and _full_name(known) != _full_name(function):
            raise ConfigurationError(f"{name} has a migration from version {from_} already: {_full_name(known)}")
        _migrations[name, from_] = function
        return function

    return remember


def name_of(cls: type) -> str:
    """The name a class is, or would be, stored under."""
    entry = _by_class.get(cls)
    return _full_name(cls) if entry is None else entry.name


def entry_of(cls: type) -> Entry | None:
    """The entry of exactly this class, never of a parent."""
    return _by_class.get(cls)


def restore(name: str, version: int, content: Any) -> Any:
    """The object stored under a registered name; migrates it if it was stored by an older version of its class."""
    entry = _by_name.get(name)
    if entry is None:
        return _stand_in_for(name, version, content)
    if version > entry.version:
        raise IncompatibleCheckpoint(
            f"stored by version {version} of {name}, and this program has version {entry.version}; update the program"
        )
    for step in range(version, entry.version):
        content = _migrate(entry, step, content)
    return entry.shape.make(content)


def _stand_in_for(name: str, version: int, content: Any) -> Any:
    make = stand_in.get()
    if make is not None:
        return make(name, version, content)
    raise UnknownType(
        f"stored as {name!r}, which is not registered in this program; import the module that registers it, "
        f"or call holdfast.register(cls, name={name!r})",
        name=name,
    )


def is_registrable(cls: type) -> bool:
    """True if `register` would take the class."""
    try:
        return _shape(cls) is not None
    except ConfigurationError:
        return False


def _migrate(entry: Entry, version: int, content: Any) -> Any:
    function = _migrations.get((entry.name, version))
    if function is None:
        raise IncompatibleCheckpoint(
            f"stored by version {version} of {entry.name}, which is at version {entry.version}; register a function "
            f"with @holdfast.migration({entry.cls.__name__}, from_={version})"
        )
    try:
        return entry.shape.migrate(content, function)
    except HoldfastError:
        raise
    except Exception as error:
        raise CodecError(f"the migration of {entry.name} from version {version} failed: {error!r}") from error


def _shape(cls: Any) -> Shape:
    if isinstance(cls, EnumMeta):
        return EnumShape(cls)
    pydantic = sys.modules.get("pydantic.main")
    if isinstance(cls, type):
        if issubclass(cls, msgspec.Struct):
            return StructShape(cls)
        if pydantic is not None and issubclass(cls, pydantic.BaseModel):
            return ModelShape(cls)
        if hasattr(cls, "__dataclass_fields__"):
            return DataclassShape(cls)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return NamedTupleShape(cls)
    raise ConfigurationError(
        f"{cls!r} cannot be registered: only dataclasses, pydantic models, Structs, enums and NamedTuples can"
    )


def _refuse_clash(cls: type, name: str) -> None:
    """One name per class and one class per name; a reloaded module may register its classes anew."""
    taken, known = _by_name.get(name), _by_class.get(cls)
    if taken is not None and _full_name(taken.cls) != _full_name(cls):
        raise ConfigurationError(
            f"the name {name!r} is taken by {_full_name(taken.cls)}; give {_full_name(cls)} another"
        )
    if known is not None and known.name != name:
        raise ConfigurationError(f"{_full_name(cls)} is registered already, as {known.name!r}")


def _full_name(named: Any) -> str:
    return f"{importable_module(named)}.{named.__qualname__}"


register(UsageSnapshot, name="holdfast.UsageSnapshot")  # models' functions return it, so results may hold it
