"""The logger `holdfast`, fetched when there is something to say: a program without logging starts without `logging`."""

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

INFO = 20
WARNING = 30
"""As in `logging`, which shows from here on what nobody has configured."""


@cache
def logger() -> "Logger":
    """The logger all rooms share."""
    import logging

    return logging.getLogger("holdfast")


def is_heard(level: int) -> bool:
    """True if a record of this level would be kept by somebody."""
    if level < WARNING and "logging" not in sys.modules:
        return False
    return logger().isEnabledFor(level)
