"""What a row keeps of a step's arguments: a short text for people, all of them, or nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from holdfast.codec import encode
from holdfast.records.errors import CodecError
from holdfast.records.secret import Secret, masked

LONGEST_BYTES: Final = 200
DEEPEST: Final = 6
LARGEST_BITS: Final = 256
MOST_SORTED: Final = 32
_CUT: Final = "…"


class Inputs(NamedTuple):
    """The arguments of one call as its row keeps them."""

    text: str = ""
    encoded: bytes = b""


def kept_inputs(keep: str, given: Mapping[str, Any] | Sequence[Any]) -> Inputs:
    """What to keep of arguments, given by name or by place."""
    if keep == "none" or not given:
        return Inputs()
    text = preview(given)
    if keep == "preview":
        return Inputs(text)
    with suppress(CodecError):
        return Inputs(text, encode(masked(dict(given) if isinstance(given, Mapping) else list(given))))
    return Inputs(text)


def preview(given: Mapping[str, Any] | Sequence[Any]) -> str:
    """Arguments as a text of at most 200 bytes: plain data as it is written, other objects by their class.

    It calls no code of those objects and looks at no more than it shows. The same arguments give the same text.
    """
    pairs = given.items() if isinstance(given, Mapping) else ((None, value) for value in given)
    text, room = "", LONGEST_BYTES
    try:
        for piece in _listed(pairs, _argument):
            text += piece
            if len(text) > room:
                break
    except Exception:  # noqa: BLE001  another thread may change a list or dict meanwhile
        text += _CUT
    return _cut(text, room)


def _cut(text: str, room: int) -> str:
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= room:
        return encoded.decode()
    return encoded[: room - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _argument(pair: tuple[str | None, Any]) -> Iterator[str]:
    name, value = pair
    if name is not None:
        yield f"{name}="
    yield from _pieces(value, 0)


def _listed(items: Iterable[Any], pieces_of: Callable[[Any], Iterator[str]]) -> Iterator[str]:
    for number, item in enumerate(items):
        if number:
            yield ", "
        yield from pieces_of(item)


def _pieces(value: Any, depth: int) -> Iterator[str]:
    """The text of a value in pieces, so that the reader can stop at any of them."""
    cls = type(value)
    if cls in _CONTAINERS:
        opening, closing = _CONTAINERS[cls]
        yield opening
        if depth >= DEEPEST and value:
            yield _CUT
        else:
            yield from _listed(*_items(value, depth + 1))
        yield ",)" if cls is tuple and len(value) == 1 else closing
    else:
        yield _word(value)


def _word(value: Any) -> str:
    """A single value; what is neither plain nor small, by its class."""
    cls = type(value)
    if cls in _SLICED:
        return repr(value[:LONGEST_BYTES])
    if cls is int and value.bit_length() > LARGEST_BITS:
        return f"<int of {value.bit_length()} bits>"
    return repr(value) if cls in _PLAIN else f"<{cls.__name__}>"


def _items(value: Any, depth: int) -> tuple[Iterable[Any], Callable[[Any], Iterator[str]]]:
    if type(value) is dict:
        return value.items(), lambda pair: _pair(pair, depth)
    if type(value) in {list, tuple}:
        return value, lambda item: _pieces(item, depth)
    if len(value) > MOST_SORTED:  # in no order of its own: too many to put them into one
        return (f"{len(value)} items",), lambda word: iter((word,))
    return sorted(map(_word, value)), lambda word: iter((word,))


def _pair(pair: tuple[Any, Any], depth: int) -> Iterator[str]:
    yield from _pieces(pair[0], depth)
    yield ": "
    yield from _pieces(pair[1], depth)


_CONTAINERS: Final[dict[type, tuple[str, str]]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
_SLICED: Final = frozenset({str, bytes})
_PLAIN: Final = frozenset({type(None), bool, int, float, Secret})
