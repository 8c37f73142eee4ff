"""Effects that a durable function has outside of any step: they are repeated each time it is resumed.

Python's audit hooks report files opened for writing, requests sent and programs started. Only the body of the function
itself counts, not its steps, and not Holdfast. A request that is sent by C code is not seen.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import holdfast

EVENTS = {
    "open": "writing to",
    "os.remove": "removing",
    "os.rename": "renaming",
    "os.rmdir": "removing",
    "os.truncate": "truncating",
    "os.system": "starting",
    "os.posix_spawn": "starting",
    "subprocess.Popen": "starting",
    "http.client.send": "sending a request",
    "smtplib.send": "sending a mail",
    "socket.sendto": "sending to",
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
OURS = str(Path(holdfast.__file__).parent)
IMPORTING = "<frozen importlib"


def watch(function: Callable[..., Any], report: Callable[[str], None]) -> None:
    """Report every effect of this function's own code from now on. An audit hook cannot be removed."""
    body: CodeType | None = getattr(function, "__code__", None)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in EVENTS or (event == "open" and not _writes(args)):
            return
        line = _line_within(body, sys._getframe(1))  # noqa: SLF001  the only way to ask who called
        if line:
            report(f"{EVENTS[event]} {_object(event, args)}".strip() + f" in line {line}")

    sys.addaudithook(hook)


def _writes(args: tuple[Any, ...]) -> bool:
    _, mode, flags = args
    return bool(set(mode) & set("wax+")) if isinstance(mode, str) else bool(flags & WRITING)


def _object(event: str, args: tuple[Any, ...]) -> str:
    return "" if event in {"http.client.send", "smtplib.send"} else str(args[0])


def _line_within(body: CodeType | None, frame: FrameType | None) -> int:
    """Return the line of the body that does it; 0 if the body does not."""
    while frame is not None:
        if frame.f_code is body:
            return frame.f_lineno
        if frame.f_code.co_filename.startswith((OURS, IMPORTING)):
            return 0
        frame = frame.f_back
    return 0
