"""Checks at open: the format of the store, and that its conditional writes work. Without them two writers could win."""

from secrets import token_hex

from holdfast.records.errors import ConfigurationError, Corrupt, IncompatibleCheckpoint
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.names import FORMAT_NAME

FORMAT = 2
FORMAT_DIGITS = 9


def check_format(calls: Calls) -> None:
    """Write the format number into a new store; refuse a store of another format."""
    found = calls.get(FORMAT_NAME)
    if found is None:
        calls.put_if_absent(FORMAT_NAME, str(FORMAT).encode())
        return
    if not found[0].isdigit() or len(found[0]) > FORMAT_DIGITS:
        raise Corrupt("the object 'format' is damaged, or was not written by Holdfast", record=f"object {FORMAT_NAME}")
    number = int(found[0])
    if number > FORMAT:
        raise IncompatibleCheckpoint(f"a newer Holdfast wrote this object store (format {number}); upgrade holdfast")
    if number < FORMAT:
        raise IncompatibleCheckpoint(
            f"this object store has format {number}, and this version reads only format {FORMAT}: export its threads"
            " with the Holdfast that wrote them, and import them into a new prefix"
        )


def probe(calls: Calls) -> None:
    """Try the five calls on a scratch object; `ConfigurationError` if one does not do what `Objects` promises."""
    name = f"probe/{token_hex(16)}/object"
    try:
        fault = _fault(calls, name)
    finally:
        calls.delete(name)
    if fault:
        raise ConfigurationError(
            f"this object store {fault}: checkpoints would be lost there. Use one with conditional writes"
            " (If-None-Match and If-Match on S3), or correct its get, put_if_absent, put_if_match, list or delete"
        )


def _fault(calls: Calls, name: str) -> str:
    """Return what is wrong; empty if nothing is."""
    first = calls.put_if_absent(name, b"first")
    if first is None:
        return "refuses to create an object"
    if calls.put_if_absent(name, b"second") is not None:
        return "overwrites an object that was to be created only if absent"
    tag = calls.put_if_match(name, b"third", first)
    if tag is None:
        return "refuses to replace an object whose tag matches"
    if calls.put_if_match(name, b"fourth", first) is not None:
        return "replaces an object although its tag has changed"
    if calls.get(name) != (b"third", tag):
        return "does not return what was put last, with its tag"
    directory = name.removesuffix("object")
    if list(calls.names(directory)) != [name] or list(calls.names(directory, name)):
        return "does not list what is there"
    calls.delete(name)
    if calls.get(name) is not None or calls.put_if_match(name, b"fifth", tag) is not None:
        return "brings back an object that was deleted"
    return ""
