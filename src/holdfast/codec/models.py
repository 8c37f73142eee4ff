"""How a pydantic model is taken apart and made again, without validation. pydantic itself is never imported here."""

import sys
from collections.abc import Callable
from typing import Any, Final

from holdfast.codec.refusal import Refused
from holdfast.codec.shapes import Fields, is_derived

# Kept beside the fields, under names that no field can have, and only where they say something.
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
        """The fields as the model holds them, and what else it knows."""
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
        """What a model without extra attributes has in their place."""
        return {} if self.takes_extra else None

    def _is_other(self, name: str) -> bool:
        return name not in self.known and not is_derived(self.cls, name)

    def make(self, content: Any) -> Any:
        """The model, made without validation."""
        fields = {name: field for name, field in content.items() if not name.startswith(":")}
        value: Any = object.__new__(self.cls)
        object.__setattr__(value, "__dict__", self.complete(fields, self.defaults) | content.get(_OTHER, {}))
        _put(value, "__pydantic_fields_set__", set(content.get(_SET, fields)))
        _put(value, "__pydantic_extra__", content.get(_EXTRA, self._no_extra()))
        _put(value, "__pydantic_private__", content[_PRIVATE] if _PRIVATE in content else self._fresh_private())
        return value

    def migrate(self, content: Any, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """Migrations see the fields alone; a field counts as set if it was, or if the migration made it."""
        beside = {name: content[name] for name in (_SET, _EXTRA, _PRIVATE, _OTHER) if name in content}
        before = {name: field for name, field in content.items() if name not in beside}
        after = function(dict(before))
        if _SET in beside:
            was_set = set(beside[_SET])
            unset = before.keys() - was_set
            beside[_SET] = sorted((after.keys() - unset) | (was_set - before.keys()))  # the latter are extra attributes
        return after | beside

    def _fresh_private(self) -> dict[str, Any] | None:
        """The private attributes of a model that had none when it was stored."""
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
