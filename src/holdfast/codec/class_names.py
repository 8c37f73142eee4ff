"""The names that classes are stored under unless they are given one."""

from typing import Any, get_args, get_origin

from holdfast.records.naming import importable_module

_OWN = "holdfast.records."


def full_name(named: Any) -> str:
    """Module and qualified name of a class or function; Holdfast's own records have their public name.

    A pydantic model with type parameters names them in full: pydantic itself calls both `Box[one.Item]` and
    `Box[two.Item]` "Box[Item]".
    """
    if named.__module__.startswith(_OWN):
        return f"holdfast.{named.__qualname__}"
    generic = getattr(named, "__pydantic_generic_metadata__", None)
    if not generic or generic["origin"] is None:
        return short_name(named)
    return f"{full_name(generic['origin'])}[{', '.join(map(_parameter, generic['args']))}]"


def short_name(named: Any) -> str:
    """Module and qualified name, as Python has them."""
    return f"{importable_module(named)}.{named.__qualname__}"


def place(cls: type) -> tuple[str, str]:
    """Where a class is defined. Two classes of one place are two versions of the same: its module was reloaded."""
    return importable_module(cls), full_name(cls)


def _parameter(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is not None:
        return f"{_parameter(origin)}[{', '.join(map(_parameter, get_args(hint)))}]"
    if not isinstance(hint, type):
        return repr(hint)
    return hint.__name__ if hint.__module__ == "builtins" else full_name(hint)
