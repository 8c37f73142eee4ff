"""The classes that may be stored, by the name they are stored under. No other class is ever made from stored bytes.

A stored object has the registered name and version of its class, and its fields. A class that changes gets a new
version, and a migration for each older version turns its fields into those of the next.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from enum import EnumMeta
from typing import Any, Final, TypeVar, get_args, get_origin, overload

import msgspec
from msgspec import msgpack

from holdfast.codec import discovery
from holdfast.codec.containers import OPENERS
from holdfast.codec.discovery import Annotation
from holdfast.codec.shapes import (
    CustomShape,
    DataclassShape,
    EnumShape,
    ModelShape,
    NamedTupleShape,
    Shape,
    StructShape,
)
from holdfast.codec.types import leaf_writer
from holdfast.records.arguments import text_or_none
from holdfast.records.checkpoint import Change, Step
from holdfast.records.errors import CodecError, ConfigurationError, HoldfastError, IncompatibleCheckpoint, UnknownType
from holdfast.records.failure import AgentSummary, FailureType
from holdfast.records.loop import Deferred, LoopState, Snapshot
from holdfast.records.naming import importable_module
from holdfast.records.outcome import Outcome, Recovery
from holdfast.records.request import Answer, Request
from holdfast.records.turn import SessionSummary, Turn, TurnResult
from holdfast.records.usage import ModelPricing, UsageSnapshot
from holdfast.records.words import Cause, Durability, Phase, Status

T = TypeVar("T")
Fields = dict[str, Any]
Migration = Callable[[Fields], Fields]
MigrationT = TypeVar("MigrationT", bound=Migration)


class Entry(msgspec.Struct, frozen=True):
    """A registered class. `head` begins each of its encodings: an array of name, version, and the content to follow."""

    cls: type
    name: str
    version: int
    shape: Shape
    head: bytes
    adopted: bool
    """Registered with another class, or because a function returns it: the user may still name it."""


_by_class: Final[dict[type, Entry]] = {}
_by_name: Final[dict[str, Entry]] = {}
_aliases: Final[dict[str, Entry | None]] = {}
"""By default name, the classes that are stored under another name; None if several have this default name."""
_migrations: Final[dict[tuple[str, int], Migration]] = {}
_OWN_MODULES: Final = "holdfast.records."
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, bytearray, memoryview, list, dict, object, type})

_OWN: Final[tuple[type, ...]] = (
    *(AgentSummary, Answer, Cause, Change, Durability, FailureType, ModelPricing, Outcome, Phase, Recovery, Request),
    *(Deferred, LoopState, Snapshot),
    *(SessionSummary, Status, Step, Turn, TurnResult, UsageSnapshot),
)
"""Holdfast's own records that a result or a state may hold: registered when the first one is needed."""

stand_in: Final[ContextVar[Callable[[str, int, Any], Any] | None]] = ContextVar("stand_in", default=None)
"""Called for an object of an unregistered class with its name, version and content. None: refuse the object."""


def full_name(named: Any) -> str:
    """Return the module and qualified name of a class or function; Holdfast's own records have their public name.

    Type parameters of a pydantic model are named in full: pydantic itself calls both `Box[one.Item]` and
    `Box[two.Item]` "Box[Item]".
    """
    if named.__module__.startswith(_OWN_MODULES):
        return f"holdfast.{named.__qualname__}"
    generic = getattr(named, "__pydantic_generic_metadata__", None)
    if not generic or generic["origin"] is None:
        return _short_name(named)
    return f"{full_name(generic['origin'])}[{', '.join(map(_parameter, generic['args']))}]"


def _short_name(named: Any) -> str:
    """Return the module and qualified name in Python."""
    return f"{importable_module(named)}.{named.__qualname__}"


def _place(cls: type) -> tuple[str, str]:
    """Return where a class is defined. Two classes in one place are the same class, defined again by a reload."""
    return importable_module(cls), full_name(cls)


def _parameter(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is not None:
        return f"{_parameter(origin)}[{', '.join(map(_parameter, get_args(hint)))}]"
    if not isinstance(hint, type):
        return repr(hint)
    return hint.__name__ if hint.__module__ == "builtins" else full_name(hint)


def register(
    cls: type[T],
    *,
    name: str | None = None,
    version: int = 1,
    take: Callable[[T], Any] | None = None,
    make: Callable[[Any], T] | None = None,
) -> type[T]:
    """Make a class storable, and return it.

    A dataclass, pydantic model, Struct, enum or NamedTuple is stored by its fields, and the classes that its fields
    name are registered too. Any other class needs two functions: `take(value)` returns a value that can be stored,
    `make(stored)` makes the object from it.

    It is stored under `name`, by default its module and qualified name: set a name if the class may move. Subclasses
    are not registered. Raises ConfigurationError if another class has this name.
    """
    shape = _shape(cls) if take is None and make is None else _custom_shape(cls, take, make)
    name = str(text_or_none(name, "name") or full_name(cls))
    if type(version) is not int or not 1 <= version < 2**63:
        raise ConfigurationError(f"`version` of {name} must be an int of at least 1, got {version!r}")
    _refuse_clash(cls, name)
    _add(cls, name, version, shape)
    local = discovery.caller_names() if "<locals>" in cls.__qualname__ else {}
    adopt_named(_field_annotations(cls, shape, local), evaluate=True)
    return cls


def adopt_named(annotations: Iterable[Annotation], *, evaluate: bool) -> None:
    """Register the classes that annotations name, and those that their fields name.

    A class that cannot be registered is skipped. A name that is not defined yet is looked up again when a class is
    missing. `evaluate` allows evaluating annotations that are text.
    """
    waiting, seen = list(annotations), set[type]()
    while waiting:
        annotation = waiting.pop()
        classes, is_complete = discovery.classes_in(annotation, evaluate=evaluate)
        if not is_complete:
            discovery.remember(annotation)
        for cls in classes:
            if cls not in seen and cls not in _by_class:
                seen.add(cls)
                waiting.extend(_adopt(cls, annotation.local))


def _adopt(cls: type, local: Mapping[str, Any]) -> list[Annotation]:
    """Register a class if possible; return the annotations of its fields, or of the items of a TypedDict."""
    if not is_registrable(cls):
        return list(discovery.item_annotations(cls, local))
    name, shape = full_name(cls), _shape(cls)
    _refuse_clash(cls, name)
    _add(cls, name, 1, shape, adopted=True)
    return _field_annotations(cls, shape, local)


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

    It takes the old fields as a dict and returns the new ones. Migrations are chained up to the class's version.
    """
    name = cls_or_name if isinstance(cls_or_name, str) else name_of(cls_or_name)

    def remember(function: MigrationT) -> MigrationT:
        known = _migrations.get((name, from_))
        if known is not None and full_name(known) != full_name(function):
            raise ConfigurationError(f"{name} already has a migration from version {from_}: {full_name(known)}")
        _migrations[name, from_] = function
        return function

    return remember


def name_of(cls: type) -> str:
    """Return the name that a class is, or would be, stored under."""
    entry = _by_class.get(cls)
    return full_name(cls) if entry is None else entry.name


def entry_of(cls: type) -> Entry | None:
    """Return the entry of exactly this class, never of a parent."""
    entry = _by_class.get(cls)
    if entry is None:
        _look_again(cls.__module__, evaluate=True)
        entry = _by_class.get(cls)
    return entry


def is_replaced(cls: type) -> bool:
    """True if a class of the same module and name was registered after this one."""
    return full_name(cls) in _by_name and cls not in _by_class


def restore(name: str, version: int, content: Any) -> Any:
    """Make the object stored under a registered name, migrating it from an older version of its class."""
    entry = _entry_named(name)
    if entry is None:
        return _stand_in_for(name, version, content)
    if version > entry.version:
        raise IncompatibleCheckpoint(
            f"stored by version {version} of {name}, but this program has version {entry.version}; update the program"
        )
    for step in range(version, entry.version):
        content = _migrate(entry, step, content)
    return entry.shape.make(content)


def _entry_named(name: str) -> Entry | None:
    entry = _by_name.get(name) or _aliases.get(name)
    if entry is None:
        _look_again(name, evaluate=False)  # stored bytes never make anything run
        entry = _by_name.get(name) or _aliases.get(name)
    return entry


def class_named(name: str) -> type:
    """Return the class registered under a name; raise `UnknownType` if there is none."""
    entry = _entry_named(name)
    if entry is None:
        raise UnknownType(_unknown(name), name=name)
    return entry.cls


def _look_again(name: str, *, evaluate: bool) -> None:
    """Before refusing a class, check incomplete annotations again: their names may be defined by now.

    Holdfast's own classes are registered here too, when the first one is needed.
    """
    if name.startswith("holdfast."):
        adopt_named([Annotation(own, {}) for own in _OWN], evaluate=evaluate)
    adopt_named(discovery.take_remembered(), evaluate=evaluate)


def _add(cls: type, name: str, version: int, shape: Shape, *, adopted: bool = False) -> None:
    head = b"\x93" + msgpack.encode(name) + msgpack.encode(version)
    entry = Entry(cls, name, version, shape, head, adopted)
    known, previous = _by_class.get(cls), _by_name.get(name)
    if known is not None and known.name != name:
        _by_name.pop(known.name, None)
    if previous is not None and previous.cls is not cls and previous.cls.__module__ == cls.__module__:
        _by_class.pop(previous.cls, None)
    _by_class[cls] = _by_name[name] = entry
    for alias in {full_name(cls), _short_name(cls)} - {name}:
        other = _aliases.get(alias, entry)
        _aliases[alias] = entry if other is not None and other.name in {name, known and known.name} else None


def _field_annotations(cls: type, shape: Shape, local: Mapping[str, Any]) -> list[Annotation]:
    is_by_fields = not isinstance(shape, EnumShape | CustomShape)
    return list(discovery.field_annotations(cls, shape.names, local)) if is_by_fields else []


def _stand_in_for(name: str, version: int, content: Any) -> Any:
    make = stand_in.get()
    if make is not None:
        return make(name, version, content)
    raise UnknownType(f"stored as {_unknown(name)}", name=name)


def _unknown(name: str) -> str:
    return (
        f"{name!r}, which is not registered in this program; import the module that registers it, "
        f"or call holdfast.register(cls, name={name!r})"
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
        if pydantic is not None and issubclass(cls, pydantic.BaseModel) and cls is not pydantic.BaseModel:
            return ModelShape(cls)
        if hasattr(cls, "__dataclass_fields__"):
            return DataclassShape(cls)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return NamedTupleShape(cls)
    raise ConfigurationError(
        f"{cls!r} cannot be registered without take= and make=: it is not a dataclass, pydantic model, Struct, enum "
        "or NamedTuple"
    )


def _custom_shape(cls: Any, take: Callable[[Any], Any] | None, make: Callable[[Any], Any] | None) -> Shape:
    if not isinstance(cls, type) or cls in _PLAIN or cls in OPENERS or leaf_writer(cls):
        raise ConfigurationError(
            f"{cls!r} cannot be registered: it is not a class, or its values can be stored without"
        )
    return CustomShape(cls, take, make)


def _refuse_clash(cls: type, name: str) -> None:
    """Enforce one name per class and one class per name. A class that is defined again replaces the old one."""
    taken, known = _by_name.get(name), _by_class.get(cls)
    if taken is not None and _place(taken.cls) != _place(cls):
        raise ConfigurationError(
            f"the name {name!r} is taken by {full_name(taken.cls)}; choose another one for {full_name(cls)}: "
            f"holdfast.register({cls.__name__}, name=...)"
        )
    if known is not None and known.name != name and not known.adopted:
        raise ConfigurationError(f"{full_name(cls)} is already registered as {known.name!r}")
