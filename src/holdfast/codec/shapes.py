"""How an object of a registered class is taken apart into fields, and made again from them.

No constructor, validator or `__post_init__` runs when an object is made again: its fields are put back as they were, so
`init=False` fields, frozen and slotted classes come back exactly. Only default factories run, for fields that are new.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import EnumMeta, Flag
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec

from holdfast.codec.refusal import Refused
from holdfast.records.errors import CodecError, ConfigurationError, HoldfastError

HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, so its instances hold no hidden C data


class Shape(Protocol):
    """One kind of class: dataclass, pydantic model, Struct, NamedTuple, enum, or any with `take=` and `make=`."""

    names: tuple[str, ...]
    """Its fields; none for a class that is not stored by its fields."""

    def take(self, value: Any) -> Any:
        """The content of an object, ready to be encoded; raises Refused if that would not be all of it."""

    def make(self, content: Any) -> Any:
        """The object with that content; raises CodecError if the class has other fields now."""

    def migrate(self, content: Any, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """The content of the next version."""


class Fields:
    """What the shapes with named fields share."""

    def __init__(self, cls: type, names: Iterable[str]) -> None:
        self.cls = cls
        self.names = tuple(names)
        self.known = frozenset(self.names)
        self.hidden = tuple(name for name in _slots(cls) if name not in self.known)

    def take(self, value: Any) -> dict[str, Any]:
        """Every field by name; refuses an object that holds more, or less, than its fields."""
        self.refuse_others(value)
        try:
            return {name: getattr(value, name) for name in self.names}
        except AttributeError as error:
            raise Refused(f"a field of this {self.cls.__name__} is not set: {error}") from error

    def refuse_others(self, value: Any) -> None:
        """Refuse an object with attributes that are not fields: they would be lost."""
        held = getattr(value, "__dict__", None) or ()
        for name in held:
            if name not in self.known and not is_derived(self.cls, name):
                raise Refused(f"{self.cls.__name__} has no field of this name, so it would be lost", step=f".{name}")
        self.refuse_hidden(value)

    def refuse_hidden(self, value: Any) -> None:
        """Refuse an object with slots that are not fields, once they hold something."""
        for name in self.hidden:
            if hasattr(value, name):
                raise Refused(f"{self.cls.__name__} has no field of this name, so it would be lost", step=f".{name}")

    def migrate(self, content: Any, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """The fields as the function returns them."""
        return function(content)

    def check(self, content: Any, optional: Collection[str]) -> None:
        """Raise CodecError if stored fields are not those of the class, apart from new ones that have a default."""
        unknown = content.keys() - self.known
        missing = [name for name in self.names if name not in content and name not in optional]
        if unknown or missing:
            what = f"no field {min(unknown)!r} now" if unknown else f"a new field {missing[0]!r} without a default"
            raise CodecError(f"{self.cls.__name__} has {what}; {_advice(self.cls)}")

    def complete(self, content: Any, defaults: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """The fields in the order of the class, new ones with their defaults."""
        self.check(content, defaults)
        return {name: content[name] if name in content else defaults[name]() for name in self.names}


class DataclassShape(Fields):
    """Dataclasses, plain, frozen or slotted."""

    def __init__(self, cls: type) -> None:
        if not all(base is object or base.__flags__ & HEAP_TYPE for base in cls.__mro__):
            raise ConfigurationError(f"{cls.__qualname__} extends a built-in type, whose own content would be lost")
        fields = dataclasses.fields(cls)
        super().__init__(cls, [field.name for field in fields])
        self.defaults: dict[str, Callable[[], Any]] = {}
        for field in fields:
            if field.default_factory is not dataclasses.MISSING:
                self.defaults[field.name] = field.default_factory
            elif field.default is not dataclasses.MISSING:
                self.defaults[field.name] = _always(field.default)

    def make(self, content: Any) -> Any:
        """The object, made without `__init__`; a frozen one by going round its `__setattr__`."""
        value: Any = object.__new__(self.cls)
        for name, field in self.complete(content, self.defaults).items():
            object.__setattr__(value, name, field)
        return value


class StructShape(Fields):
    """Structs of msgspec."""

    def __init__(self, cls: type[msgspec.Struct]) -> None:
        names = cls.__struct_fields__
        super().__init__(cls, names)
        defaults = dict(zip(reversed(names), reversed(cls.__struct_defaults__), strict=False))
        self.optional = {name for name, default in defaults.items() if default is not msgspec.NODEFAULT}
        self.blank: type | None = None

    def make(self, content: Any) -> Any:
        """The object. msgspec makes one only by its constructor, so a class without `__post_init__` stands in."""
        self.check(content, self.optional)
        value = self._constructor()(**content)
        if type(value) is not self.cls:
            msgspec.structs.force_setattr(value, "__class__", self.cls)
        return value

    def _constructor(self) -> type:
        if not hasattr(self.cls, "__post_init__"):
            return self.cls
        if self.blank is None:
            silent = {"__post_init__": lambda _self: None}
            self.blank = msgspec.defstruct(self.cls.__name__, (), bases=(self.cls,), namespace=silent)
        return self.blank


class NamedTupleShape(Fields):
    """Named tuples, of `typing` or of `collections`."""

    def __init__(self, cls: Any) -> None:
        super().__init__(cls, cls._fields)
        self.defaults = {name: _always(default) for name, default in cls._field_defaults.items()}

    def take(self, value: Any) -> dict[str, Any]:
        """The items by the names of their fields, whatever the class made of attribute access."""
        self.refuse_others(value)
        return dict(zip(self.names, tuple.__iter__(value), strict=True))

    def make(self, content: Any) -> Any:
        """The tuple, made without a `__new__` of its own."""
        return tuple.__new__(self.cls, self.complete(content, self.defaults).values())


class EnumShape:
    """Enums by the name of the member, so that values may change; flags by value, as they combine."""

    names: tuple[str, ...] = ()

    def __init__(self, cls: EnumMeta) -> None:
        self.cls = cls
        self.is_flag = issubclass(cls, Flag)
        self.key = "value" if self.is_flag else "name"

    def take(self, value: Any) -> Any:
        """The member's name, or the flag's value."""
        return value._value_ if self.is_flag else value._name_

    def make(self, content: Any) -> Any:
        """The member; raises CodecError if there is none of that name or value now."""
        try:
            return self.cls(content) if self.is_flag else self.cls.__members__[content]
        except (KeyError, TypeError, ValueError) as error:
            raise CodecError(f"{self.cls.__name__} has no member {content!r} now; {_advice(self.cls)}") from error

    def migrate(self, content: Any, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """Migrations see the one field `name`, or `value` for a flag."""
        return function({self.key: content})[self.key]


class CustomShape:
    """Classes of any kind, with a `take` and a `make` function of the user's."""

    names: tuple[str, ...] = ()

    def __init__(self, cls: type, take: Callable[[Any], Any] | None, make: Callable[[Any], Any] | None) -> None:
        if not callable(take) or not callable(make):
            raise ConfigurationError(
                f"register({cls.__qualname__}) needs both take= and make=, got take={take!r} and make={make!r}; "
                "take turns an object into a value that can be stored, make turns this value into an object again"
            )
        self.cls = cls
        self._take = take
        self._make = make

    def take(self, value: Any) -> Any:
        """What the user's function makes of the object; raises Refused if it fails."""
        try:
            taken = self._take(value)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise Refused(f"the take= function of {self.cls.__qualname__} failed: {error!r}") from error
        if type(taken) is self.cls:
            raise Refused(f"the take= function of {self.cls.__qualname__} returned another one; return its parts")
        return taken

    def make(self, content: Any) -> Any:
        """The object that the user's function makes of it; raises CodecError if it fails or makes something else."""
        try:
            value = self._make(content)
        except (HoldfastError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise CodecError(f"the make= function of {self.cls.__qualname__} failed: {error!r}") from error
        if type(value) is not self.cls:
            raise CodecError(f"the make= function of {self.cls.__qualname__} returned a {type(value).__qualname__}")
        return value

    def migrate(self, content: Any, function: Callable[[Any], Any]) -> Any:
        """Migrations see what `take` returned."""
        return function(content)


def _advice(cls: type) -> str:
    return f"raise its version and register @holdfast.migration({cls.__name__}, from_=...)"


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _slots(cls: type) -> list[str]:
    """The attributes that instances keep in slots, by the names they have on the class."""
    found = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            mangled = slot.startswith("__") and not slot.endswith("__")
            found.append(f"_{base.__name__.lstrip('_')}{slot}" if mangled else slot)
    return [name for name in found if name not in {"__dict__", "__weakref__"}]


def is_derived(cls: type, name: str) -> bool:
    """True for an attribute that can be left out: a cached property, or typing's note of the type parameters."""
    return name == "__orig_class__" or isinstance(getattr(cls, name, None), cached_property)
