"""What a listing and a check read of one log, even if it is damaged, or something else is in its place.

A log is named after the hash of its thread's key. So the hash proves a key that is found anywhere in a damaged log.
"""

import os
import re
from hashlib import sha256

from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.head import LOST_HEAD
from holdfast.records.identity import shown_id_of
from holdfast.stores.file.frames import SCAN_AHEAD, Index, end_of_data, last_frame
from holdfast.stores.file.logs import OpenLog
from holdfast.stores.private_files import NotRegular

LOG_NAME = re.compile("[0-9a-f]{64}[.]log")
UNREADABLE = (Corrupt, IncompatibleCheckpoint, NotRegular)
_PACKED_BYTES = re.compile(rb"\xc4(?=(.))|\xc5(?=(..))", re.DOTALL)
"""How bytes begin in MessagePack: with their length, in one byte or two."""


def head_in(log: OpenLog, prefix: bytes) -> tuple[bytes, bytes] | None:
    """Return the thread of a log, and its head; `LOST_HEAD` if the log is damaged; None without a head or a log.

    A thread whose key cannot be found is named after the file, in the namespace that is listed.
    """
    try:
        index = _last_index(log)
    except FileNotFoundError:
        return None
    except UNREADABLE:
        return log.index.thread or _key_in(log) or placeholder_key(log.owner, prefix), LOST_HEAD
    return (index.thread, index.head) if index.head else None


def _last_index(log: OpenLog) -> Index:
    """Return the index of the last frame alone, or of everything if the file does not end with a whole frame."""
    log.adopt(log.open_file(os.O_RDONLY))
    try:
        size = log.file_size()
        if not any(last_frame(log.index, log.read, end) for end in (size, end_of_data(log.read, size))):
            log.forget()
            log.catch_up()
        return log.index
    finally:
        log.shut()


def _key_in(log: OpenLog) -> bytes:
    """Return the key of a damaged log's thread if it can be found near the start of the file; else nothing."""
    try:
        log.adopt(log.open_file(os.O_RDONLY))
    except OSError:
        return b""
    data = log.read(0, SCAN_AHEAD)
    log.shut()
    for found in _PACKED_BYTES.finditer(data):
        length = found[1] or found[2]
        start = found.end() + len(length)
        key = data[start : start + int.from_bytes(length, "big")]
        if sha256(key).digest() == log.owner:
            return key
    return b""


def placeholder_key(owner: bytes, prefix: bytes) -> bytes:
    """Return a key under which to list a thread whose own key is lost."""
    return (prefix or b"\0") + f"{owner.hex()}.log".encode()


def placeholder_owner(thread: bytes) -> bytes | None:
    """Return the hash in a key that `placeholder_key` made; None for any other."""
    name = shown_id_of(thread)
    return bytes.fromhex(name[:-4]) if LOG_NAME.fullmatch(name) else None


def problem_of(log: OpenLog) -> str:
    """Return what is wrong with a log; empty if nothing is."""
    try:
        log.adopt(log.open_file(os.O_RDONLY))
        log.catch_up()
    except FileNotFoundError:
        return ""
    except NotRegular as error:
        return str(log.irregular(error))
    except (Corrupt, IncompatibleCheckpoint) as error:
        key = log.index.thread or _key_in(log)
        return f"thread {shown_id_of(key)!r}: {error}" if key else str(error)
    finally:
        log.shut()
    return ""
