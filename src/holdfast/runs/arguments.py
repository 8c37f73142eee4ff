"""The arguments of steps and durable functions: how they are recorded, compared, and shown to people."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

from holdfast.codec import container_header, decode, encode
from holdfast.records.errors import CodecError, SecretInState, UnstorableValue
from holdfast.records.secret import Secret, masked
from holdfast.records.signatures import Parameters, bound

FINGERPRINT_BYTES: Final = 8
LONGEST_BYTES: Final = 200
DEEPEST: Final = 6
LARGEST_BITS: Final = 256
MOST_SORTED: Final = 32
MOST_DIFFERENCES: Final = 3
_CUT: Final = "…"
_MISSING: Final = object()


def fingerprint_of(arguments: Any, what: str, advice: str = "") -> bytes:
    """Return a digest of arguments, with secrets masked.

    Raises `UnstorableValue`, which starts with `what` and ends with `advice`, for arguments that cannot be compared.
    """
    try:
        try:
            encoded = encode(arguments, path="arguments")
        except SecretInState:
            encoded = encode(masked(arguments), path="arguments")
    except UnstorableValue as error:
        raise UnstorableValue(f"{what}: {error}" + (f"; {advice}" if advice else ""), path=error.path) from error
    return sha256(encoded).digest()[:FINGERPRINT_BYTES]


# The call of a durable function


def packed_call(
    function: Callable[..., Any], taken: Parameters, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> bytes:
    """Encode a call as [arguments, named]; raise TypeError if the function does not accept these arguments.

    Defaults are recorded too: a resumed thread uses them, even if a later version of the code has others.
    """
    if named or not taken.by_place or len(arguments) != len(taken.names):
        given = bound(function, arguments, named)
        arguments, named = given.args, given.kwargs
        given.apply_defaults()
        with suppress(CodecError):  # a default cannot be stored: record the call as it was made
            return packed_pair(given.args, given.kwargs)
    try:
        return packed_pair(arguments, named)
    except CodecError as error:
        raise _naming_the_parameter(error, function, arguments, named) from None


def _naming_the_parameter(
    error: CodecError, function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> CodecError:
    for name, value in bound(function, arguments, named).arguments.items():
        try:
            encode(value, path=f"parameter {name!r} of {function.__name__}")
        except SecretInState as secret:
            return SecretInState(
                f"parameter {name!r} of {function.__name__} is a Secret, and the arguments of a durable function are"
                " stored: read the secret from the environment inside the function",
                path=secret.path,
            )
        except CodecError as clearer:
            return clearer
    return error


def packed_pair(arguments: Sequence[Any], named: Mapping[str, Any]) -> bytes:
    """Encode a call as [arguments, named], as it was made."""
    parts = (encode(list(arguments), path="arguments[0]"), encode(dict(named), path="arguments[1]"))
    return container_header("list", len(parts)) + b"".join(parts)


def differences(function: Callable[..., Any], recorded: bytes, given: bytes) -> str:
    """Describe which arguments of two packed calls differ: `amount was 40, is now 41`."""
    try:
        old, new = _by_name(function, recorded), _by_name(function, given)
    except (CodecError, TypeError):  # recorded by another version of the function, or with classes unknown here
        return "its parameters were different"
    lines = list(_different(old, new))
    more = f" and {len(lines) - MOST_DIFFERENCES} more" if len(lines) > MOST_DIFFERENCES else ""
    return ", ".join(lines[:MOST_DIFFERENCES]) + more


def _by_name(function: Callable[..., Any], packed: bytes) -> dict[str, Any]:
    arguments, named = decode(packed)
    call = bound(function, tuple(arguments), named)
    call.apply_defaults()
    return dict(call.arguments)


def _different(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in {**old, **new}:
        values = old.get(name, _MISSING), new.get(name, _MISSING)
        encoded = [b"" if value is _MISSING else encode(value) for value in values]
        if encoded[0] != encoded[1]:
            was, now = ("not given" if value is _MISSING else preview([value]) for value in values)
            yield f"{name} was {was}, is now {now}"


# What a step's row keeps of its arguments


class Inputs(NamedTuple):
    """The arguments of one call as its row keeps them."""

    text: str = ""
    encoded: bytes = b""


def kept_inputs(keep: str, given: Mapping[str, Any] | Sequence[Any]) -> Inputs:
    """Return what to keep of arguments: nothing (`none`), a short text (`preview`), or all of them too (`full`)."""
    if keep == "none" or not given:
        return Inputs()
    text = preview(given)
    if keep == "preview":
        return Inputs(text)
    with suppress(CodecError):
        return Inputs(text, encode(masked(dict(given) if isinstance(given, Mapping) else list(given))))
    return Inputs(text)


def preview(given: Mapping[str, Any] | Sequence[Any]) -> str:
    """Describe arguments in up to 200 bytes: plain data as it is written, other objects by their class.

    It calls no code of those objects and looks at no more than it shows. The same arguments give the same text.
    """
    try:
        if isinstance(given, Mapping):
            text = _joined(f"{name}={_text(value)}" for name, value in given.items())
        else:
            text = _joined(map(_text, given))
    except Exception:  # noqa: BLE001  another thread may change a list or dict meanwhile
        text = _CUT
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= LONGEST_BYTES:
        return encoded.decode()
    return encoded[: LONGEST_BYTES - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _joined(texts: Iterable[str]) -> str:
    """Join texts until they fill a preview."""
    joined = ""
    for text in texts:
        joined += f", {text}" if joined else text
        if len(joined) > LONGEST_BYTES:
            break
    return joined


def _text(value: Any, depth: int = 0) -> str:
    cls = type(value)
    if cls not in _CONTAINERS:
        return _word(value)
    opening, closing = _CONTAINERS[cls]
    if depth >= DEEPEST and value:
        inner = _CUT
    elif cls is dict:
        inner = _joined(f"{_text(key, depth + 1)}: {_text(item, depth + 1)}" for key, item in value.items())
    elif cls in {list, tuple}:
        inner = _joined(_text(item, depth + 1) for item in value)
    else:  # a set has no order: sort a small one, count a large one
        inner = f"{len(value)} items" if len(value) > MOST_SORTED else _joined(sorted(map(_word, value)))
    return f"{opening}{inner}{',)' if cls is tuple and len(value) == 1 else closing}"


def _word(value: Any) -> str:
    """Describe a single value; one that is neither plain nor small, by its class."""
    cls = type(value)
    if cls in {str, bytes}:
        return repr(value[:LONGEST_BYTES])
    if cls is int and value.bit_length() > LARGEST_BITS:
        return f"<int of {value.bit_length()} bits>"
    return repr(value) if cls in _PLAIN else f"<{cls.__name__}>"


_CONTAINERS: Final[dict[type, tuple[str, str]]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    dict: ("{", "}"),
    set: ("{", "}"),
    frozenset: ("frozenset({", "})"),
}
_PLAIN: Final = frozenset({type(None), bool, int, float, Secret})
