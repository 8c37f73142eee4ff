"""Values as text, where Python itself may refuse: an int of more than 4,300 digits has no decimal text."""

from typing import Any


def shown(value: Any) -> str:
    """The value as one would write it, in ASCII; hexadecimal if it is an int of too many digits for decimal."""
    try:
        return ascii(value)
    except ValueError:
        return hex(value) if isinstance(value, int) else f"<{type(value).__name__} with a number too long to show>"


def quoted(value: object) -> str:
    """The value as `repr` writes it; the start of `shown` where `repr` refuses."""
    try:
        return repr(value)
    except ValueError:
        return f"{shown(value):.60}…"
