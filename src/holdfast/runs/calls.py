"""The arguments of durable functions: as a thread records them, and what differs between two calls."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from holdfast.codec import container_header, decode, encode
from holdfast.records.errors import CodecError, SecretInState
from holdfast.records.signatures import Parameters, bound
from holdfast.runs.inputs import preview

MOST_SHOWN = 3
_MISSING = object()


def packed_call(
    function: Callable[..., Any], taken: Parameters, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> bytes:
    """The encoding of [arguments, named], as they are recorded; raises TypeError if it could not be called so.

    Defaults are recorded too: a resumed thread uses them, whatever a later version of the code says.
    """
    if named or not taken.by_place or len(arguments) != len(taken.names):
        given = bound(function, arguments, named)
        arguments, named = given.args, given.kwargs
        given.apply_defaults()
        with suppress(CodecError):  # a default that cannot be stored: then the call is recorded as it was made
            return _pair(given.args, given.kwargs)
    try:
        return _pair(arguments, named)
    except CodecError as error:
        raise _named(error, function, arguments, named) from None


def _named(
    error: CodecError, function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> CodecError:
    """The error that names the parameter whose value cannot be recorded."""
    for name, value in bound(function, arguments, named).arguments.items():
        try:
            encode(value)
        except SecretInState as secret:
            return SecretInState(
                f"parameter {name!r} of {function.__name__} is a Secret, and the arguments of a durable function are"
                " stored: take the secret from the environment inside the function",
                path=secret.path,
            )
        except CodecError:
            try:
                encode(value, path=f"parameter {name!r} of {function.__name__}")
            except CodecError as clearer:
                return clearer
    return error


def _pair(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
    parts = (encode(list(arguments), path="arguments[0]"), encode(dict(named), path="arguments[1]"))
    return container_header("list", len(parts)) + b"".join(parts)


def differences(function: Callable[..., Any], recorded: bytes, given: bytes) -> str:
    """Which arguments of two packed calls differ, with short texts of both: `amount was 40, is now 41`."""
    try:
        old, new = _by_name(function, recorded), _by_name(function, given)
    except (CodecError, TypeError):  # recorded by another version of the function, or with classes unknown here
        return "its parameters were others"
    lines = list(_different(old, new))
    more = f" and {len(lines) - MOST_SHOWN} more" if len(lines) > MOST_SHOWN else ""
    return ", ".join(lines[:MOST_SHOWN]) + more


def _by_name(function: Callable[..., Any], packed: bytes) -> dict[str, Any]:
    arguments, named = decode(packed)
    call = bound(function, tuple(arguments), named)
    call.apply_defaults()
    return dict(call.arguments)


def _different(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in {**old, **new}:
        values = old.get(name, _MISSING), new.get(name, _MISSING)
        if _encoded(values[0]) != _encoded(values[1]):
            was, now = ("not given" if value is _MISSING else preview([value]) for value in values)
            yield f"{name} was {was}, is now {now}"


def _encoded(value: Any) -> bytes:
    return b"" if value is _MISSING else encode(value)
