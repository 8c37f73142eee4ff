"""What a listing and a check see of one log, also if it is damaged, or something else is in its place.

The name of a log is the hash of its thread's key. So a key that is found anywhere in a damaged log proves itself.
"""

import os
import re
from hashlib import sha256

from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.head import LOST_HEAD
from holdfast.records.identity import shown_id_of
from holdfast.stores.file_log import SCAN_AHEAD, Index, end_of_data, last_frame
from holdfast.stores.file_pool import OpenLog
from holdfast.stores.private_files import NotRegular

LOG_NAME = re.compile("[0-9a-f]{64}[.]log")
UNREADABLE = (Corrupt, IncompatibleCheckpoint, NotRegular)
_PACKED_BYTES = re.compile(rb"\xc4(?=(.))|\xc5(?=(..))", re.DOTALL)
"""How MessagePack begins bytes: with the length, in one byte or two."""


def head_in(log: OpenLog, prefix: bytes) -> tuple[bytes, bytes] | None:
    """The thread of a log, and its head; `LOST_HEAD` if the log is damaged. None if there is no head yet, or no log.

    A thread whose key cannot be found is named after the file, in the namespace that is asked for.
    """
    try:
        index = _glance(log)
    except FileNotFoundError:
        return None
    except UNREADABLE:
        return log.index.thread or _key_in(log) or nameless(log.owner, prefix), LOST_HEAD
    return (index.thread, index.head) if index.head else None


def _glance(log: OpenLog) -> Index:
    """The index of the last frame alone, or of everything if the file does not end with a whole frame."""
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
    """The key of a damaged log's thread, if it can still be found near its start; else nothing."""
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


def nameless(owner: bytes, prefix: bytes) -> bytes:
    """The key that stands for a thread whose own key is lost."""
    return (prefix or b"\0") + f"{owner.hex()}.log".encode()


def nameless_owner(thread: bytes) -> bytes | None:
    """The hash in a key that `nameless` made; None for any other."""
    name = shown_id_of(thread)
    return bytes.fromhex(name[:-4]) if LOG_NAME.fullmatch(name) else None


def problem_of(log: OpenLog) -> str:
    """What is wrong with a log; empty if nothing is."""
    try:
        log.adopt(log.open_file(os.O_RDONLY))
        log.catch_up()
    except FileNotFoundError:
        return ""
    except NotRegular as error:
        return str(log.planted(error))
    except (Corrupt, IncompatibleCheckpoint) as error:
        key = log.index.thread or _key_in(log)
        return f"thread {shown_id_of(key)!r}: {error}" if key else str(error)
    finally:
        log.shut()
    return ""
