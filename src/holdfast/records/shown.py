"""Values as text in messages, also where Python refuses: it does not print an int of more than 4,300 digits."""

from typing import Any


def shown(value: Any) -> str:
    """Return the value as ASCII text; in hexadecimal if it is an int with too many digits."""
    try:
        return ascii(value)
    except ValueError:
        return hex(value) if isinstance(value, int) else f"<{type(value).__name__} with a number too long to show>"


def quoted(value: object) -> str:
    """Return the `repr` of a value; the start of `shown` if `repr` fails."""
    try:
        return repr(value)
    except ValueError:
        return f"{shown(value):.60}…"


def with_article(name: str) -> str:
    """Return a noun, such as the name of a class, after `a` or `an`."""
    return f"an {name}" if name[:1].lower() in {*"aeiou"} else f"a {name}"


def kind_of(value: object) -> str:
    """Name the class of a value in a sentence: `an int`."""
    return with_article(type(value).__name__)
