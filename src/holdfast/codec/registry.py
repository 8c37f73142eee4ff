"""The classes that may be stored, by the name they are stored under. Only what is registered here is ever made again.

A stored object carries its registered name, the version of its class and its fields. A class that changes raises its
version, and a migration for each older version turns the old fields into the next ones.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from enum import EnumMeta
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import msgpack

from holdfast.codec import discovery
from holdfast.codec.class_names import full_name, place, short_name
from holdfast.codec.containers import OPENERS
from holdfast.codec.discovery import Annotation
from holdfast.codec.models import ModelShape
from holdfast.codec.shapes import CustomShape, DataclassShape, EnumShape, NamedTupleShape, Shape, StructShape
from holdfast.codec.types import leaf_writer
from holdfast.records.arguments import text_or_none
from holdfast.records.checkpoint import Change, Step
from holdfast.records.errors import CodecError, ConfigurationError, HoldfastError, IncompatibleCheckpoint, UnknownType
from holdfast.records.failure import AgentSummary, FailureType
from holdfast.records.loop import Deferred, LoopState, Snapshot
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
    """A registered class. `head` is the beginning of each of its encodings: [name, version, and the content to come."""

    cls: type
    name: str
    version: int
    shape: Shape
    head: bytes
    adopted: bool
    """Registered with another class, or because a function returns it, so its user may still give it a name."""


_by_class: Final[dict[type, Entry]] = {}
_by_name: Final[dict[str, Entry]] = {}
_aliases: Final[dict[str, Entry | None]] = {}
"""By their default names, the classes that are stored under another one; None if several have this default name."""
_migrations: Final[dict[tuple[str, int], Migration]] = {}
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, bytearray, memoryview, list, dict, object, type})

_OWN: Final[tuple[type, ...]] = (
    *(AgentSummary, Answer, Cause, Change, Durability, FailureType, ModelPricing, Outcome, Phase, Recovery, Request),
    *(Deferred, LoopState, Snapshot),
    *(SessionSummary, Status, Step, Turn, TurnResult, UsageSnapshot),
)
"""Holdfast's own records that a result or a state may hold: registered when the first of them is met."""

stand_in: Final[ContextVar[Callable[[str, int, Any], Any] | None]] = ContextVar("stand_in", default=None)
"""What to make of an object whose class is not registered: its name, version and content. None: refuse it."""


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
    name are registered with it. Any other class needs two functions: `take(value)` returns a value that can be stored,
    `make(stored)` the object again.

    It is stored under `name`, by default its module and qualified name: give it a name if the class may move. Its
    subclasses are not registered with it. Raises ConfigurationError for a name that another class has.
    """
    shape = _shape(cls) if take is None and make is None else _custom_shape(cls, take, make)
    name = str(text_or_none(name, "name") or full_name(cls))
    if type(version) is not int or not 1 <= version < 2**63:
        raise ConfigurationError(f"the version of {name} must be an int from 1 up, not {version!r}")
    _refuse_clash(cls, name)
    _add(cls, name, version, shape)
    local = discovery.caller_names() if "<locals>" in cls.__qualname__ else {}
    adopt_named(_field_annotations(cls, shape, local), evaluate=True)
    return cls


def adopt_named(annotations: Iterable[Annotation], *, evaluate: bool) -> None:
    """Register the classes that annotations name, and the classes that their fields name, unless they are already.

    A class that cannot be registered is left out. What is not defined yet is looked up when a class is not found.
    `evaluate` says whether annotations that are texts may be evaluated.
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
    """Register one class if that can be done; returns the annotations of its fields, or of the items of a TypedDict."""
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

    It takes the old fields as a dict and returns the new ones. Migrations are chained up to the class's own version.
    """
    name = cls_or_name if isinstance(cls_or_name, str) else name_of(cls_or_name)

    def remember(function: MigrationT) -> MigrationT:
        known = _migrations.get((name, from_))
        if known is not None and full_name(known) != full_name(function):
            raise ConfigurationError(f"{name} has a migration from version {from_} already: {full_name(known)}")
        _migrations[name, from_] = function
        return function

    return remember


def name_of(cls: type) -> str:
    """The name a class is, or would be, stored under."""
    entry = _by_class.get(cls)
    return full_name(cls) if entry is None else entry.name


def entry_of(cls: type) -> Entry | None:
    """The entry of exactly this class, never of a parent."""
    entry = _by_class.get(cls)
    if entry is None:
        _look_again(cls.__module__, evaluate=True)
        entry = _by_class.get(cls)
    return entry


def is_replaced(cls: type) -> bool:
    """True if a class of the same module and name was registered after this one."""
    return full_name(cls) in _by_name and cls not in _by_class


def restore(name: str, version: int, content: Any) -> Any:
    """The object stored under a registered name; migrates it if it was stored by an older version of its class."""
    entry = _entry_named(name)
    if entry is None:
        return _stand_in_for(name, version, content)
    if version > entry.version:
        raise IncompatibleCheckpoint(
            f"stored by version {version} of {name}, and this program has version {entry.version}; update the program"
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
    """The class that is registered under a name; `UnknownType` if there is none."""
    entry = _entry_named(name)
    if entry is None:
        raise UnknownType(_unknown(name), name=name)
    return entry.cls


def _look_again(name: str, *, evaluate: bool) -> None:
    """Before a class is refused: look at the annotations again that named something not defined then.

    Holdfast's own classes are registered here too, when the first of them is met.
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
    for alias in {full_name(cls), short_name(cls)} - {name}:
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
        f"{cls!r} cannot be registered: only dataclasses, pydantic models, Structs, enums and NamedTuples can, "
        "and other classes with take= and make="
    )


def _custom_shape(cls: Any, take: Callable[[Any], Any] | None, make: Callable[[Any], Any] | None) -> Shape:
    if not isinstance(cls, type) or cls in _PLAIN or cls in OPENERS or leaf_writer(cls):
        raise ConfigurationError(f"{cls!r} cannot be registered: it is no class, or its values are stored as they are")
    return CustomShape(cls, take, make)


def _refuse_clash(cls: type, name: str) -> None:
    """One name per class and one class per name. A class that is defined again (a reload) replaces the former one."""
    taken, known = _by_name.get(name), _by_class.get(cls)
    if taken is not None and place(taken.cls) != place(cls):
        raise ConfigurationError(
            f"the name {name!r} is taken by {full_name(taken.cls)}; give {full_name(cls)} another one: "
            f"holdfast.register({cls.__name__}, name=...)"
        )
    if known is not None and known.name != name and not known.adopted:
        raise ConfigurationError(f"{full_name(cls)} is registered already, as {known.name!r}")
