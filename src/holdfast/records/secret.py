"""Values that a program needs and that must never be stored, such as passwords and tokens."""

from typing import Any, Final, Generic, NoReturn, TypeVar, final

from holdfast.records.errors import SecretInState

T = TypeVar("T")

MASK: Final = "Secret(***)"
DEEPEST: Final = 200


@final
class Secret(Generic[T]):
    """Holds a value that is never stored and never shown. `reveal()` returns it.

    As an argument of a step it is not part of the key, so the same thread can be resumed with another token. Anywhere
    else in what would be stored it raises `SecretInState`.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def reveal(self) -> T:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __format__(self, _spec: str) -> str:
        return MASK

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Secret[T]":
        return self

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise SecretInState("a Secret cannot be pickled; pickle the value of reveal() if you must")


def masked(value: Any, depth: int = 0) -> Any:
    """Return the value with each secret in its lists, tuples and dicts replaced by `Secret(***)`."""
    cls = type(value)
    if cls is Secret:
        return MASK
    if depth > DEEPEST:  # perhaps it contains itself
        return value
    if cls is dict:
        return {key: masked(item, depth + 1) for key, item in value.items()}
    return cls(masked(item, depth + 1) for item in value) if cls in {list, tuple} else value
