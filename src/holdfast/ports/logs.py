"""The logger `holdfast`, fetched at its first use: a program without logging does not import `logging`."""

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

INFO = 20
WARNING = 30
"""As in `logging`, which shows records from this level on without configuration."""


@cache
def logger() -> "Logger":
    """Return the logger of the package."""
    import logging

    return logging.getLogger("holdfast")


def is_heard(level: int) -> bool:
    """True if a record of this level would be handled."""
    if level < WARNING and "logging" not in sys.modules:
        return False
    return logger().isEnabledFor(level)
