"""Classes of any kind, stored by two functions of the user's: one takes an object apart, the other makes it again."""

from collections.abc import Callable
from typing import Any

from holdfast.codec.refusal import Refused
from holdfast.records.errors import CodecError, ConfigurationError, HoldfastError


class CustomShape:
    """A class with a `take` and a `make` function."""

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
