"""Values of any kind to bytes, exactly or not at all.

First everything is handed to the C encoder, which asks back only for special values. What it cannot pack that way (a
lone surrogate, a dict with int keys, great depth, a value to refuse) is taken apart in Python one level at a time,
until the part at fault is found or encoded; all other parts still go through C.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import ormsgpack
from ormsgpack import Fragment

from holdfast.codec import packing, raw, tags
from holdfast.codec.boxes import close_box, open_box
from holdfast.codec.encoding import is_flat
from holdfast.codec.limits import DEFAULT, Limits
from holdfast.codec.pieces import container_header
from holdfast.codec.refusal import Refused
from holdfast.codec.scan import refuse_excess
from holdfast.codec.types import leaf_writer, write_text
from holdfast.records.errors import LimitExceeded, SecretInState, UnstorableValue
from holdfast.records.secret import Secret
from holdfast.records.shown import shown


def encode_exactly(value: Any, path: str, limits: Limits) -> bytes:
    """The encoding of any value: what `encode` promises, for what it did not encode itself."""
    is_suspicious = raw.may_exist()
    if limits is DEFAULT and not is_suspicious:
        short = packing.pack_short(value, limits.depth)
        if short is not None:
            return short
    try:
        data = _Encoder(is_suspicious).encode(value, limits.depth, path)
    except RecursionError as error:
        raise LimitExceeded(f"{path} nests too deep for the stack that is left") from error
    refuse_excess([data], limits, path)
    return data


class _Encoder:
    """One call of `encode`. `room` is how deep the boxes met by the C encoder may still nest."""

    __slots__ = ("_fatal", "_room", "_suspicious")

    def __init__(self, suspicious: bool) -> None:
        self._suspicious = suspicious
        self._room = 0
        self._fatal: BaseException | None = None

    def encode(self, value: Any, room: int, path: str) -> bytes:
        """The encoding of a value that nests at most `room` levels."""
        packed = self._fast(value, room, room // 8)
        return self._slow(value, room, path) if packed is None else packed

    def _fast(self, value: Any, room: int, reserve: int) -> bytes | None:
        """Pack in C, or not at all. How deep a box is met there is unknown, so some room is kept in reserve for boxes.

        What passes is within the room, therefore; the rest goes the slow way, which counts.
        """
        before, self._room = self._room, reserve
        try:
            if self._suspicious:
                raw.refuse_raw(value)
            if is_flat(value) and (room > 0 or type(value) not in _CONTAINERS):
                return ormsgpack.packb(value, default=self._special, option=packing.OPTIONS)
            return packing.pack(value, room - reserve, self._special)
        except (TypeError, Refused):
            if self._fatal is not None:
                raise self._fatal from None
            return None
        finally:
            self._room = before

    def _special(self, value: Any) -> Fragment:
        """What the C encoder is to write for a value that is not plain. It reports any error as a TypeError."""
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
        packed = self._fast(content, room, room // 2)
        if packed is None:
            raise Refused("left to the slow way")
        return close_box(code, head, packed)

    def _slow(self, value: Any, room: int, path: str) -> bytes:
        """Encode one level here, and each part of it in C if that can be done."""
        cls = type(value)
        if cls in _LONG and len(value) > _LONGEST:
            raise LimitExceeded(f"{path} is {len(value)} long; nothing longer than {_LONGEST} can be stored")
        if cls is str:
            return write_text(value)
        if cls is Secret:
            raise SecretInState(f"{path} is a Secret, which is never stored; keep it out of what is saved", path=path)
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
        except Exception as error:  # noqa: BLE001  the value's own code may raise anything; it is told with its path
            _refuse(error, path)
        return close_box(code, head, self._content(code, content, room, path))

    def _content(self, code: int, content: Any, room: int, path: str) -> bytes:
        """The encoding of what a box holds."""
        room = max(room - (code in tags.HEADED), 0)
        packed = self._fast(content, room, room // 8)
        if packed is not None:
            return packed
        if code == tags.OBJECT:
            return self._fields(content, room, path)
        return container_header("list", len(content)) + self._parts(content, room, path, _LABELS[code])

    def _fields(self, content: Any, room: int, path: str) -> bytes:
        """The encoding of an object's fields, or of anything else that a `take=` function returned."""
        if type(content) is dict and _is_plain_map(content):
            return container_header("map", len(content)) + self._pairs(content, room, path, _field)
        if room < 1:
            raise LimitExceeded(f"{_cut(path)} nests deeper than the limit; does it hold itself?")
        return self._slow(content, room, path)

    def _pairs(self, pairs: dict[Any, Any], room: int, path: str, label: "_Label") -> bytes:
        return self._parts([part for pair in pairs.items() for part in pair], room, path, label)

    def _parts(self, parts: Sequence[Any], room: int, path: str, label: "_Label") -> bytes:
        """The encodings of the parts of a container, one after the other."""
        if room < 1:
            raise LimitExceeded(f"{_cut(path)} nests deeper than the limit; does it hold itself?")
        encodings = []
        for index, part in enumerate(parts):
            packed = self._fast(part, room - 1, room // 8)
            encodings.append(self._slow(part, room - 1, path + label(parts, index)) if packed is None else packed)
        return b"".join(encodings)


def _is_plain_map(value: dict[Any, Any]) -> bool:
    """True if every key is a str that msgpack can hold, so that the dict is a msgpack map."""
    if not all(type(key) is str for key in value):
        return False
    try:
        "".join(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(error: Exception, path: str) -> NoReturn:
    """Raise the error that tells the user where and why. An error of the value's own code is told as well."""
    if isinstance(error, _FATAL):
        raise error
    if isinstance(error, LimitExceeded):
        raise LimitExceeded(f"{path}: {error}") from error
    if not isinstance(error, Refused):
        raise UnstorableValue(f"{path}: reading it failed: {error!r}", path=path) from error
    path += error.step
    raise UnstorableValue(f"{path}: {error}", path=path) from error.__cause__


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


def _cut(path: str) -> str:
    """The beginning of a path that may be very long."""
    return path if len(path) <= 80 else f"{path[:60]}…"


def _short(value: Any) -> str:
    """A key as one would write it, cut if long; with double quotes, and never with a lone surrogate."""
    if type(value) is not str:
        text = shown(value) if leaf_writer(type(value)) or type(value) in _NAMED else type(value).__name__
        return text if len(text) <= 60 else f"{text[:57]}..."
    text = ascii(value[:60])[1:-1] if not value.isprintable() else value[:60]
    return '"' + text.replace('"', '\\"') + '"'


_FATAL: Final = (RecursionError, MemoryError)  # says nothing about the value
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
