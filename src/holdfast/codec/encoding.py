"""Values of any kind to bytes, exactly or not at all.

The whole value is packed in one C call, which calls back only for special values. What cannot be packed that way (a
lone surrogate, a dict with int keys, great depth, a value to refuse) is taken apart in Python one level at a time,
until the part at fault is found or encoded; all other parts still go through C.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, NoReturn

import ormsgpack
from ormsgpack import Fragment

from holdfast.codec import tags
from holdfast.codec.boxes import close_box, open_box
from holdfast.codec.limits import DEFAULT, MOST_PER_BYTE, Limits, refuse_excess
from holdfast.codec.pieces import container_header
from holdfast.codec.refusal import Refused
from holdfast.codec.types import leaf_writer, write_text
from holdfast.records.errors import LimitExceeded, SecretInState, UnstorableValue
from holdfast.records.secret import Secret
from holdfast.records.shown import shown


def encode(value: Any, *, path: str = "value", limits: Limits = DEFAULT) -> bytes:
    """Return the encoding of a value, from which `decode` makes an equal value of the same types.

    The same value always has the same encoding. bytearray and memoryview are stored as bytes, and ormsgpack's own `Ext`
    and `Fragment` as the bytes they hold; nothing else changes its type. Raises UnstorableValue, with the path below
    `path` to what cannot be stored exactly, and LimitExceeded beyond the limits.
    """
    encoder = _Encoder()
    try:
        data = encoder.packed(value, limits.depth, limits.depth // 8)
        if data is None:
            data = encoder.taken_apart(value, limits.depth, path)
    except RecursionError as error:
        raise LimitExceeded(f"{path} nests too deep for the stack that is left") from error
    if len(data) > limits.size or len(data) * MOST_PER_BYTE > limits.memory:
        refuse_excess([data], limits, path)
    return data


class _Encoder:
    """One call of `encode`. `room` is how many levels a value may nest."""

    _room = 0
    """How many levels the boxes may nest that the C encoder passes to `_special`."""
    _value: Any = None
    """The value being packed, which replaces `_PLACE` inside the lists."""
    _fatal: BaseException | None = None

    def packed(self, value: Any, room: int, for_boxes: int) -> bytes | None:
        """Pack in C, or return None. The depth at which C meets a box is unknown, so boxes get levels of their own.

        The C encoder stops at a fixed depth. To stop earlier, the value is put inside the lists that are left over, and
        their headers of one byte each are cut off again. So what passes is within the room; the rest is taken apart,
        which counts exactly.
        """
        spare = 0
        if type(value) in _CONTAINERS:
            parts = value.values() if type(value) is dict else value
            is_flat = room > 0 and len(value) <= _FEW and _CONTAINERS.isdisjoint(map(type, parts))
            spare = 0 if is_flat else len(_NESTS) - 1 - room + for_boxes
        before = self._room, self._value
        self._room, self._value = for_boxes, value
        try:
            packed = ormsgpack.packb(_NESTS[spare] if spare else value, default=self._special, option=_OPTIONS)
        except TypeError:
            if self._fatal is not None:
                raise self._fatal from None
            return None
        finally:
            self._room, self._value = before
        return packed[spare:] if spare else packed

    def _special(self, value: Any) -> Any:
        """Return what the C encoder writes for a value that is not plain. It turns any error into a TypeError."""
        if value is _PLACE:
            return self._value
        try:
            writer = leaf_writer(type(value))
            return Fragment(self._box(value) if writer is None else writer(value))
        except BaseException as error:
            if isinstance(error, _FATAL) or not isinstance(error, Exception):
                self._fatal = error
            raise

    def _box(self, value: Any) -> bytes:
        code, head, content = open_box(value)
        room = max(self._room - (code in tags.HEADED), 0)
        packed = self.packed(content, room, room // 2)
        if packed is None:
            raise Refused("to be taken apart")
        return close_box(code, head, packed)

    def taken_apart(self, value: Any, room: int, path: str) -> bytes:
        """Encode one level here, and each part of it in C if that is possible."""
        cls = type(value)
        if cls in _LONG and len(value) > _LONGEST:
            raise LimitExceeded(f"{path} has length {len(value)}; the longest that can be stored is {_LONGEST}")
        if cls is str:
            return write_text(value)
        if cls is Secret:
            raise SecretInState(f"{path} is a Secret, which is never stored; remove it from what is saved", path=path)
        if cls is memoryview:  # not contiguous
            return ormsgpack.packb(value.tobytes())
        if cls is list:
            return container_header("list", len(value)) + self._parts(value, room, path, _item)
        if cls is dict and _is_plain_map(value):
            return container_header("map", len(value)) + self._pairs(value, room, path, _key)
        try:
            writer = leaf_writer(cls)
            if writer is not None:
                return writer(value)
            code, head, content = open_box(value)
        except Exception as error:  # noqa: BLE001  the value's own code may raise anything
            _refuse(error, path)
        return close_box(code, head, self._content(code, content, room, path))

    def _content(self, code: int, content: Any, room: int, path: str) -> bytes:
        """Return the encoding of what a box holds."""
        room = max(room - (code in tags.HEADED), 0)
        packed = self.packed(content, room, room // 8)
        if packed is not None:
            return packed
        if code == tags.OBJECT:
            return self._fields(content, room, path)
        return container_header("list", len(content)) + self._parts(content, room, path, _LABELS[code])

    def _fields(self, content: Any, room: int, path: str) -> bytes:
        """Return the encoding of an object's fields, or of what a `take=` function returned."""
        if type(content) is dict and _is_plain_map(content):
            return container_header("map", len(content)) + self._pairs(content, room, path, _field)
        if room < 1:
            _refuse_depth(path)
        return self.taken_apart(content, room, path)

    def _pairs(self, pairs: dict[Any, Any], room: int, path: str, label: "_Label") -> bytes:
        return self._parts(list(chain.from_iterable(pairs.items())), room, path, label)

    def _parts(self, parts: Sequence[Any], room: int, path: str, label: "_Label") -> bytes:
        """Return the joined encodings of the parts of a container."""
        if room < 1:
            _refuse_depth(path)
        encodings = []
        for index, part in enumerate(parts):
            packed = self.packed(part, room - 1, room // 8)
            if packed is None:
                packed = self.taken_apart(part, room - 1, path + label(parts, index))
            encodings.append(packed)
        return b"".join(encodings)


_PLACE: Final = object()


def _nests() -> list[Any]:
    """Return `_PLACE` inside no list, one list, two nested lists, and so on: as many as this C encoder packs."""
    nests: list[Any] = [_PLACE]
    with suppress(TypeError):
        while len(nests) < 1024 and ormsgpack.packb(nests[-1], default=lambda _place: None):
            nests.append([nests[-1]])
    return nests[:-1]


_NESTS: Final = _nests()


def _is_plain_map(value: dict[Any, Any]) -> bool:
    """Return True if every key is a str that msgpack can hold, so that the dict is a msgpack map."""
    if not all(type(key) is str for key in value):
        return False
    try:
        "".join(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(error: Exception, path: str) -> NoReturn:
    """Raise an error that says where and why."""
    if isinstance(error, _FATAL):
        raise error
    if isinstance(error, LimitExceeded):
        raise LimitExceeded(f"{path}: {error}") from error
    if not isinstance(error, Refused):
        raise UnstorableValue(f"{path}: reading it failed: {error!r}", path=path) from error
    path += error.step
    raise UnstorableValue(f"{path}: {error}", path=path) from error.__cause__


def _refuse_depth(path: str) -> NoReturn:
    short = path if len(path) <= 80 else f"{path[:60]}…"
    raise LimitExceeded(f"{short} nests deeper than the limit; does it contain itself?")


# Labels: the step of a path from a container to the part at an index. Parts of dicts are alternating keys and values.
_Label = Callable[[Sequence[Any], int], str]


def _item(_parts: Sequence[Any], index: int) -> str:
    return f"[{index}]"


def _member(parts: Sequence[Any], index: int) -> str:
    return f"{{{_short(parts[index])}}}"


def _key(parts: Sequence[Any], index: int) -> str:
    if index % 2 == 0:
        return f".keys()[{index // 2}]"
    return f"[{_short(parts[index - 1])}]"


def _field(parts: Sequence[Any], index: int) -> str:
    return f".{parts[index - 1].lstrip(':')}"


def _short(value: Any) -> str:
    """Return a key as it would be written in code, cut if long; in double quotes, and without lone surrogates."""
    if type(value) is not str:
        text = shown(value) if leaf_writer(type(value)) or type(value) in _NAMED else type(value).__name__
        return text if len(text) <= 60 else f"{text[:57]}..."
    text = ascii(value[:60])[1:-1] if not value.isprintable() else value[:60]
    return '"' + text.replace('"', '\\"') + '"'


_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
"""Every type that ormsgpack would silently turn into another is passed to `_special`."""
_FEW: Final = 32
_FATAL: Final = (RecursionError, MemoryError)  # not about the value
_CONTAINERS: Final = frozenset({list, dict})
_LONG: Final = frozenset({str, bytes})
_LONGEST: Final = 2**30  # four bytes a character, and msgpack counts up to four gigabytes
_NAMED: Final = frozenset({int, float, bool, bytes, type(None)})
_LABELS: Final[dict[int, _Label]] = {
    tags.TUPLE: _item,
    tags.SET: _member,
    tags.FROZENSET: _member,
    tags.MAPPING: _key,
    tags.DEQUE: _item,
    tags.DEFAULTDICT: _key,
    tags.ORDERED_DICT: _key,
    tags.COUNTER: _key,
    tags.RANGE: _item,
}
