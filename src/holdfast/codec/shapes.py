"""How an object of a registered class is taken apart into fields, and made again from them.

No constructor, validator or `__post_init__` runs when an object is made: its fields are set directly, so `init=False`
fields, frozen and slotted classes are restored exactly. Only default factories run, for new fields.
"""

import dataclasses
import sys
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
    """The names of its fields; none for a class that is not stored by fields."""

    def take(self, value: Any) -> Any:
        """Return the content of an object, ready to be encoded; raises Refused if something would be lost."""

    def make(self, content: Any) -> Any:
        """Make the object with that content; raises CodecError if the class has other fields now."""

    def migrate(self, content: Any, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """Return the content of the next version."""


class Fields:
    """The base of the shapes with named fields."""

    def __init__(self, cls: type, names: Iterable[str]) -> None:
        self.cls = cls
        self.names = tuple(names)
        self.known = frozenset(self.names)
        self.hidden = tuple(name for name in _slots(cls) if name not in self.known)

    def take(self, value: Any) -> dict[str, Any]:
        """Return the fields by name; refuses an object that holds more, or less, than its fields."""
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
        """Refuse an object that holds something in slots that are not fields."""
        for name in self.hidden:
            if hasattr(value, name):
                raise Refused(f"{self.cls.__name__} has no field of this name, so it would be lost", step=f".{name}")

    def migrate(self, content: Any, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """Return the fields as the function returns them."""
        return function(content)

    def check(self, content: Any, optional: Collection[str]) -> None:
        """Raise CodecError if stored fields are not those of the class, apart from new ones that have a default."""
        unknown = content.keys() - self.known
        missing = [name for name in self.names if name not in content and name not in optional]
        if unknown or missing:
            what = f"no field {min(unknown)!r} now" if unknown else f"a new field {missing[0]!r} without a default"
            raise CodecError(f"{self.cls.__name__} has {what}; {_advice(self.cls)}")

    def complete(self, content: Any, defaults: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Return the fields in the order of the class, new ones with their defaults."""
        self.check(content, defaults)
        return {name: content[name] if name in content else defaults[name]() for name in self.names}


class DataclassShape(Fields):
    """Dataclasses, plain, frozen or slotted."""

    def __init__(self, cls: type) -> None:
        if not all(base is object or base.__flags__ & HEAP_TYPE for base in cls.__mro__):
            raise ConfigurationError(f"{cls.__qualname__} extends a built-in type, whose content would be lost")
        fields = dataclasses.fields(cls)
        super().__init__(cls, [field.name for field in fields])
        self.defaults: dict[str, Callable[[], Any]] = {}
        for field in fields:
            if field.default_factory is not dataclasses.MISSING:
                self.defaults[field.name] = field.default_factory
            elif field.default is not dataclasses.MISSING:
                self.defaults[field.name] = _always(field.default)

    def make(self, content: Any) -> Any:
        """Make the object without `__init__`, and without the `__setattr__` of a frozen class."""
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
        """Make the object. msgspec only has its constructor, so a subclass skips `__post_init__`."""
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
        """Return the items by field name, even if the class overrides attribute access."""
        self.refuse_others(value)
        return dict(zip(self.names, tuple.__iter__(value), strict=True))

    def make(self, content: Any) -> Any:
        """Make the tuple without the `__new__` of its class."""
        return tuple.__new__(self.cls, self.complete(content, self.defaults).values())


class EnumShape:
    """Enums, by the name of the member, so that values may change; flags by value, since they combine."""

    names: tuple[str, ...] = ()

    def __init__(self, cls: EnumMeta) -> None:
        self.cls = cls
        self.is_flag = issubclass(cls, Flag)
        self.key = "value" if self.is_flag else "name"

    def take(self, value: Any) -> Any:
        """Return the member's name, or the flag's value."""
        return value._value_ if self.is_flag else value._name_

    def make(self, content: Any) -> Any:
        """Return the member; raises CodecError if it does not exist now."""
        try:
            return self.cls(content) if self.is_flag else self.cls.__members__[content]
        except (KeyError, TypeError, ValueError) as error:
            raise CodecError(f"{self.cls.__name__} has no member {content!r} now; {_advice(self.cls)}") from error

    def migrate(self, content: Any, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """Call the function with the one field `name`, or `value` for a flag."""
        return function({self.key: content})[self.key]


class CustomShape:
    """Classes of any kind, with a `take` and a `make` function of the user."""

    names: tuple[str, ...] = ()

    def __init__(self, cls: type, take: Callable[[Any], Any] | None, make: Callable[[Any], Any] | None) -> None:
        if not callable(take) or not callable(make):
            raise ConfigurationError(
                f"register({cls.__qualname__}) needs both take= and make=, got take={take!r} and make={make!r}; "
                "take turns an object into a value that can be stored, make turns that value into an object"
            )
        self.cls = cls
        self._take = take
        self._make = make

    def take(self, value: Any) -> Any:
        """Return what the user's function returns for the object; raises Refused if it fails."""
        try:
            taken = self._take(value)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise Refused(f"the take= function of {self.cls.__qualname__} failed: {error!r}") from error
        if type(taken) is self.cls:
            raise Refused(f"the take= function of {self.cls.__qualname__} returned the same class; return its parts")
        return taken

    def make(self, content: Any) -> Any:
        """Make the object with the user's function; raises CodecError if it fails or returns something else."""
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
        """Call the function with what `take` returned."""
        return function(content)


# Stored with the fields, under names that no field can have, and only if needed.
_SET: Final = ":set"
_EXTRA: Final = ":extra"
_PRIVATE: Final = ":private"
_OTHER: Final = ":other"


class ModelShape(Fields):
    """Models of pydantic 2: fields, which of them were set, extra and private attributes.

    Other attributes have names that begin with an underscore: SDKs put the id of the request there.
    """

    def __init__(self, cls: Any) -> None:
        super().__init__(cls, cls.model_fields)
        self.hidden = tuple(name for name in self.hidden if not name.startswith("__pydantic_"))
        self.defaults = {name: _default(field) for name, field in cls.model_fields.items() if _has_default(field)}
        self.takes_extra = cls.model_config.get("extra") == "allow"
        self.private = dict(cls.__private_attributes__)

    def take(self, value: Any) -> dict[str, Any]:
        """Return the fields, and what else the model holds."""
        self.refuse_hidden(value)
        content = self._fields(value)
        if value.__pydantic_fields_set__ != self.known:
            content[_SET] = sorted(value.__pydantic_fields_set__)
        if value.__pydantic_extra__ != self._no_extra():
            content[_EXTRA] = value.__pydantic_extra__
        if self.private or value.__pydantic_private__ is not None:
            content[_PRIVATE] = value.__pydantic_private__
        others = {name: value.__dict__[name] for name in value.__dict__ if self._is_other(name)}
        return {**content, _OTHER: others} if others else content

    def _fields(self, value: Any) -> dict[str, Any]:
        try:
            return {name: value.__dict__[name] for name in self.names}
        except KeyError as error:
            raise Refused(f"the field {error} of this {self.cls.__name__} is not set") from error

    def _no_extra(self) -> dict[str, Any] | None:
        """Return the value of `__pydantic_extra__` without extra attributes."""
        return {} if self.takes_extra else None

    def _is_other(self, name: str) -> bool:
        return name not in self.known and not is_derived(self.cls, name)

    def make(self, content: Any) -> Any:
        """Make the model without validation."""
        fields = {name: field for name, field in content.items() if not name.startswith(":")}
        value: Any = object.__new__(self.cls)
        object.__setattr__(value, "__dict__", self.complete(fields, self.defaults) | content.get(_OTHER, {}))
        _put(value, "__pydantic_fields_set__", set(content.get(_SET, fields)))
        _put(value, "__pydantic_extra__", content.get(_EXTRA, self._no_extra()))
        _put(value, "__pydantic_private__", content[_PRIVATE] if _PRIVATE in content else self._fresh_private())
        return value

    def migrate(self, content: Any, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """Migrate only the fields. A field counts as set if it was set, or if the migration added it."""
        beside = {name: content[name] for name in (_SET, _EXTRA, _PRIVATE, _OTHER) if name in content}
        before = {name: field for name, field in content.items() if name not in beside}
        after = function(dict(before))
        if _SET in beside:
            was_set = set(beside[_SET])
            unset = before.keys() - was_set
            beside[_SET] = sorted((after.keys() - unset) | (was_set - before.keys()))  # the latter are extra attributes
        return after | beside

    def _fresh_private(self) -> dict[str, Any] | None:
        """Return private attributes for a model that had none when it was stored."""
        if not self.private:
            return None
        undefined = sys.modules["pydantic_core"].PydanticUndefined
        fresh = {name: (each.default_factory or each.get_default)() for name, each in self.private.items()}
        return {name: value for name, value in fresh.items() if value is not undefined}


def _put(value: Any, name: str, content: Any) -> None:
    """Fill a slot of a model. A RootModel has no such slot where the class says it is None."""
    if content is not None or getattr(value, name, ...) is not None:
        object.__setattr__(value, name, content)


def _has_default(field: Any) -> bool:
    """True unless the field is required, or its default depends on other fields."""
    return not field.is_required() and not getattr(field, "default_factory_takes_validated_data", False)


def _default(field: Any) -> Callable[[], Any]:
    return lambda: field.get_default(call_default_factory=True)


def _advice(cls: type) -> str:
    return f"raise its version and register @holdfast.migration({cls.__name__}, from_=...)"


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _slots(cls: type) -> list[str]:
    """Return the names of the attributes that instances keep in slots."""
    found = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            mangled = slot.startswith("__") and not slot.endswith("__")
            found.append(f"_{base.__name__.lstrip('_')}{slot}" if mangled else slot)
    return [name for name in found if name not in {"__dict__", "__weakref__"}]


def is_derived(cls: type, name: str) -> bool:
    """True for an attribute that can be left out: a cached property, or `__orig_class__` of typing."""
    return name == "__orig_class__" or isinstance(getattr(cls, name, None), cached_property)
