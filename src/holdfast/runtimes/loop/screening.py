"""What must never be written: secrets, and values under names that the program forbids."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast.records.errors import ConfigurationError, SecretInState
from holdfast.records.secret import DEEPEST, MASK, Secret

OnSecret: TypeAlias = Literal["refuse", "redact"]
_SEQUENCES: Final = frozenset({list, tuple, set, frozenset})
_CONTAINERS: Final = (list, tuple, set, frozenset, deque)


class Screen(msgspec.Struct, frozen=True):
    """Refuses or replaces what must never be written."""

    names: frozenset[str] = frozenset()
    redacts: bool = False
    """True to replace what must not be written, and not refuse it."""
    hides_objects: bool = False
    """True to replace objects with forbidden fields as a whole: for what is shown, and never read again."""

    @classmethod
    def of(cls, names: Iterable[str], policy: str) -> "Screen":
        """Return what `never_store` and `on_secret` say."""
        if policy not in {"refuse", "redact"}:
            raise ConfigurationError(f"on_secret must be 'refuse' or 'redact', got {policy!r}")
        return cls(frozenset(names), policy == "redact")

    def screened(self, value: Any, path: str, depth: int = 0) -> Any:
        """Return a copy that may be written; raise `SecretInState` with the path of what may not."""
        cls = type(value)
        if cls is Secret:
            return self._withheld(path, "a Secret")
        if depth > DEEPEST:  # perhaps it contains itself: encoding it says so
            return value
        if cls is dict:
            return {key: self._entry(key, item, f"{path}[{key!r}]", depth) for key, item in value.items()}
        if cls in _SEQUENCES:
            return cls(self.screened(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value))
        if self.hides_objects and self.names.intersection(_field_names(value)):
            return MASK
        self._check_parts(value, path, depth)
        return value

    def masked(self, value: Any) -> Any:
        """Return a copy with all of it replaced, for what is only shown."""
        return Screen(self.names, redacts=True, hides_objects=True).screened(value, "arguments")

    def hides(self, value: Any) -> bool:
        """Return True if any of it must not be written."""
        try:
            Screen(self.names).screened(value, "arguments")
        except SecretInState:
            return True
        return False

    def _check_parts(self, value: Any, path: str, depth: int) -> None:
        """Refuse what must not be written within a value of another kind: it is not copied with a part replaced."""
        refusing, fields = Screen(self.names), _field_names(value)
        for name in fields:
            at = f"{path}.{name}"
            if name in self.names:
                raise SecretInState(_refusal(at, "a field named in never_store"), path=at)
            refusing.screened(getattr(value, name, None), at, depth + 1)
        if isinstance(value, Mapping):
            refusing.screened(dict(value), path, depth)
        elif isinstance(value, _CONTAINERS) and not fields:
            refusing.screened(list(value), path, depth)

    def _entry(self, key: Any, value: Any, path: str, depth: int) -> Any:
        if key in self.names:
            return self._withheld(path, "a key named in never_store")
        return self.screened(value, path, depth + 1)

    def _withheld(self, path: str, what: str) -> str:
        if self.redacts:
            return MASK
        raise SecretInState(_refusal(path, what), path=path)


def with_secrets(kept: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a context that was loaded, with what was redacted in it taken from the one that the program gives."""
    return {key: given.get(key, value) if value == MASK else value for key, value in kept.items()}


def copied(value: Any) -> Any:
    """Return a copy of plain data; objects of other kinds, such as secrets, are shared."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return type(value)(map(copied, value)) if type(value) in _SEQUENCES else value


def _refusal(path: str, what: str) -> str:
    return f"{path} is {what} and must not be written; remove it, or give on_secret='redact' for plain data"


def _field_names(value: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass, a Struct, a pydantic model or a NamedTuple."""
    cls = type(value)
    for attribute in ("__struct_fields__", "__dataclass_fields__", "model_fields", "_fields"):
        names = getattr(cls, attribute, None)
        if isinstance(names, tuple | Mapping):
            return tuple(names)
    return ()
