"""Keep secrets out of the store: `Secret` values, and values under the names in `never_store`."""

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
    """Refuses or masks values that must never be stored."""

    names: frozenset[str] = frozenset()
    redacts: bool = False
    """True to mask such values, False to raise."""
    hides_objects: bool = False
    """True to mask whole objects with forbidden fields: only for text that is shown, not read back."""

    @classmethod
    def of(cls, names: Iterable[str], policy: str) -> "Screen":
        """Return the screen for `never_store` and `on_secret`."""
        if policy not in {"refuse", "redact"}:
            raise ConfigurationError(f"`on_secret` must be 'refuse' or 'redact', got {policy!r}")
        return cls(frozenset(names), policy == "redact")

    def screened(self, value: Any, path: str, depth: int = 0) -> Any:
        """Return a copy without secrets. `SecretInState`, with the path, for one that cannot be masked."""
        cls = type(value)
        if cls is Secret:
            return self._masked_or_refused(path, "a Secret")
        if depth > DEEPEST:  # it may contain itself: encoding it raises a clear error
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
        """Return a copy with every secret masked, to show it."""
        return Screen(self.names, redacts=True, hides_objects=True).screened(value, "arguments")

    def hides(self, value: Any) -> bool:
        """True if a value contains anything that must not be stored."""
        try:
            Screen(self.names).screened(value, "arguments")
        except SecretInState:
            return True
        return False

    def _check_parts(self, value: Any, path: str, depth: int) -> None:
        """Raise for a secret inside an object or another container: a copy with a masked part is not possible."""
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
            return self._masked_or_refused(path, "a key named in never_store")
        return self.screened(value, path, depth + 1)

    def _masked_or_refused(self, path: str, what: str) -> str:
        if self.redacts:
            return MASK
        raise SecretInState(_refusal(path, what), path=path)


def with_secrets(kept: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a loaded context with its masked values replaced by those of the program's context."""
    return {key: given.get(key, value) if value == MASK else value for key, value in kept.items()}


def copied(value: Any) -> Any:
    """Return a copy of plain data. Other objects, such as secrets, are shared."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return type(value)(map(copied, value)) if type(value) in _SEQUENCES else value


def _refusal(path: str, what: str) -> str:
    return f"{path} is {what} and must not be stored; remove it, or pass on_secret='redact' for plain data"


def _field_names(value: Any) -> tuple[str, ...]:
    """Return the field names of a dataclass, a Struct, a pydantic model or a NamedTuple."""
    cls = type(value)
    for attribute in ("__struct_fields__", "__dataclass_fields__", "model_fields", "_fields"):
        names = getattr(cls, attribute, None)
        if isinstance(names, tuple | Mapping):
            return tuple(names)
    return ()
