"""Text for a terminal: ids and values come from anywhere, so nothing but printable characters gets there."""

from unicodedata import category, east_asian_width

HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
"""Categories that a terminal would obey, or that nobody would see."""


def printable(text: str) -> str:
    """The text with control characters, invisible ones and lone surrogates written as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if category(char) in HIDDEN else char for char in text)


def _escaped(char: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    if named is not None:
        return named
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def width_of(text: str) -> int:
    """How many columns a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if category(char) in {"Mn", "Me"}:
        return 0
    return 2 if east_asian_width(char) in {"W", "F"} else 1


def padded(text: str, width: int) -> str:
    """The text with spaces up to that many columns."""
    return text + " " * (width - width_of(text))


def cut(text: str, width: int) -> str:
    """The text, shortened with an ellipsis to that many columns."""
    if width_of(text) <= width:
        return text
    kept, taken = [], 0
    for char in text:
        taken += _columns(char)
        if taken > width - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"
