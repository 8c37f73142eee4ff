"""Finds the classes that an annotation names: those that a value of this type may hold.

An annotation that is still text is evaluated in the place where it was written. While stored bytes are decoded nothing
is evaluated: the names in the text are looked up instead. A name that is not defined yet is skipped and reported, so
that the caller can ask again later. Nothing here registers a class.
"""

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial, reduce
from re import compile as compile_pattern
from typing import Annotated, Any, Final, ForwardRef, Literal, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

_OPAQUE: Final[tuple[Any, ...]] = (type, Callable)
"""Values of these types are classes and functions. They cannot be stored, so their parameters do not matter."""
_NAMES: Final = compile_pattern(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


class Annotation(Struct, frozen=True, eq=False):
    """An annotation and where it was written: the names of the module, the class around it, the local names."""

    hint: Any
    module: Mapping[str, Any]
    owner: Any = None
    local: Mapping[str, Any] = {}

    def at(self, hint: Any) -> "Annotation":
        """Return another annotation, written in the same place."""
        return Annotation(hint, self.module, self.owner, self.local)

    def evaluated(self) -> Any:
        """Return the type that a text means; raises any error, NameError if a name is not defined yet."""
        holder = type("Holder", (), {"__annotations__": {"hint": self.hint}})
        inner = {**_names_of(self.owner), **self.local}
        # The module's names come first: a field often has the same name as the class of its value.
        return get_type_hints(holder, inner, dict(self.module), include_extras=True)["hint"]

    def lookup(self, dotted: str) -> Any:
        """Return what a name means in that place; raises LookupError if it is not defined yet."""
        first, *rest = dotted.split(".")
        for names in (self.local, self.module, vars(builtins), _names_of(self.owner)):
            if first in names:
                try:
                    return reduce(getattr, rest, names[first])
                except AttributeError as error:
                    raise LookupError(dotted) from error
        raise LookupError(dotted)


_remembered: Final[dict[tuple[str, str], Annotation]] = {}


def remember(annotation: Annotation) -> None:
    """Keep an annotation with a name that is not defined yet. Local names are dropped: they would be kept alive."""
    kept = Annotation(annotation.hint, annotation.module, annotation.owner)
    _remembered[repr(annotation.hint), str(annotation.module.get("__name__"))] = kept


def take_remembered() -> list[Annotation]:
    """Return the annotations to check again, and forget them. The caller remembers those that are still incomplete."""
    found = list(_remembered.values())
    _remembered.clear()
    return found


def return_annotation(function: Any) -> list[Annotation]:
    """Return the return annotation of a function, if it has one."""
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    hint = getattr(function, "__annotations__", {}).get("return")
    return [] if hint is None else [Annotation(hint, getattr(function, "__globals__", {}), None, caller_names())]


def field_annotations(cls: Any, names: Iterable[str], local: Mapping[str, Any]) -> Iterator[Annotation]:
    """Yield the annotations of a class's fields. A pydantic model knows them with its type parameters filled in."""
    models = getattr(cls, "model_fields", None) if hasattr(cls, "__pydantic_fields_set__") else None
    if models is None:
        yield from _written(cls, names, local)
        return
    for field in models.values():
        yield Annotation(field.annotation, _module_names(cls), cls, local)
    yield from _written(cls, [*cls.__private_attributes__, "__pydantic_extra__"], local)


def item_annotations(cls: Any, local: Mapping[str, Any]) -> Iterator[Annotation]:
    """Yield the annotations of the items of a TypedDict; none for any other class."""
    if hasattr(cls, "__required_keys__") and hasattr(cls, "__total__"):
        yield from _written(cls, _annotations_of(cls), local)


def _written(cls: type, names: Iterable[str], local: Mapping[str, Any]) -> Iterator[Annotation]:
    """Yield the annotations of these attributes in the class and its bases."""
    wanted = frozenset(names)
    for base in cls.__mro__:
        hints = _annotations_of(base)
        for name in hints.keys() & wanted:
            yield Annotation(hints[name], _module_names(base), base, local)


def classes_in(annotation: Annotation, *, evaluate: bool = True) -> tuple[list[type], bool]:
    """Return the classes that an annotation names at any depth, and whether all of its names are defined."""
    found: list[type] = []
    unknown: list[str] = []
    seen: dict[tuple[int, int], Any] = {}
    waiting = [annotation]
    while waiting:
        each = waiting.pop()
        identity = (id(each.hint), id(each.module))
        if identity in seen:
            continue
        seen[identity] = each.hint  # kept, so that no other object gets its id
        if isinstance(each.hint, type):
            found.append(each.hint)
        if isinstance(each.hint, str | ForwardRef):
            waiting.extend(_meanings(each, unknown, evaluate=evaluate))
        else:
            waiting.extend(_parts(each))
    return found, not unknown


def _meanings(text: Annotation, unknown: list[str], *, evaluate: bool) -> Iterator[Annotation]:
    """Yield what a text means; if it cannot be evaluated, what the names in it mean."""
    if evaluate:
        try:
            yield text.at(text.evaluated())
        except Exception:  # noqa: BLE001, S110  evaluating it runs user code
            pass
        else:
            return
    hint = text.hint.__forward_arg__ if isinstance(text.hint, ForwardRef) else text.hint
    for name in _NAMES.findall(hint):
        try:
            yield text.at(text.lookup(name))
        except LookupError:
            unknown.append(name)


def _parts(whole: Annotation) -> Iterator[Annotation]:
    """Yield the types that a type is made of."""
    hint = whole.hint
    if type(hint).__name__ == "TypeAliasType":
        whole = Annotation(hint, _module_names(hint))
        hints = [hint.__value__]
    elif isinstance(hint, TypeVar):
        hints = [hint.__bound__, *hint.__constraints__]
    elif isinstance(hint, Enum):
        hints = [type(hint)]
    else:
        hints = [getattr(hint, "__supertype__", None), *_arguments(hint)]
    return (whole.at(part) for part in hints if part is not None)


def _arguments(hint: Any) -> list[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None or origin in _OPAQUE:
        return []
    if origin is Annotated:
        return [arguments[0]]
    if origin is Literal:
        return [type(value) for value in arguments]
    return [origin, *arguments]


def _annotations_of(cls: Any) -> dict[str, Any]:
    try:
        return dict(getattr(cls, "__annotations__", {}))  # a class has its own, never those of a parent
    except NameError:  # since Python 3.14 they are evaluated here, all or none
        return {}


def _module_names(named: Any) -> Mapping[str, Any]:
    return getattr(sys.modules.get(named.__module__), "__dict__", {})


def _names_of(owner: Any) -> dict[str, Any]:
    """Return the names that a class knows: its attributes, its type parameters and itself."""
    if owner is None:
        return {}
    parameters = {parameter.__name__: parameter for parameter in getattr(owner, "__type_params__", ())}
    return {**vars(owner), **parameters, owner.__name__: owner}


def caller_names() -> Mapping[str, Any]:
    """Return the local names where the program called Holdfast: a decorated function may return a local class."""
    frame = sys._getframe()  # noqa: SLF001  the inspect module takes long to load
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "holdfast":
        frame = frame.f_back
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)
