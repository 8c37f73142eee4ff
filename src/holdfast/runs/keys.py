r"""How keys are composed, so that no two things of a run ever share a key.

A key is a path of parts, such as `turn=draft/search:0f3c5a7e9b1d2468:1`. A part is text that a user chose, or a kind
with such text (`record=receipt`), or a name with a fingerprint and a number. In the text of users a backslash escapes
our separators. Keys without `/`, `=`, `~` and `\` stay as they are.
"""

import re
from collections.abc import Iterable
from typing import Final


def _marks(separators: str) -> dict[int, str]:
    return str.maketrans({each: f"\\{each}" for each in separators})


_BETWEEN_PARTS: Final = _marks("\\/")
_IN_PARTS: Final = _marks("\\/=~")
_ALL: Final = _marks("\\/=~:")
_NUMBERED: Final = re.compile(r":[0-9a-f]{16}:[0-9]+\Z")
"""The end of a decorated step's key: only there is a colon in the text of a user escaped."""
_LAST_PART: Final = re.compile(r"(?:[^\\/]|\\.)*\Z", re.DOTALL)


class Key(str):
    """A composed key, or the beginning of one. Text that is added to it becomes a part of it."""

    __slots__ = ()

    def __add__(self, text: str) -> "Key":
        return Key(f"{self}{part(text)}")


def part(text: str) -> Key:
    """Return text that a user chose as one part of a key; return a composed key as it is."""
    if isinstance(text, Key):
        return text
    return Key(text.translate(_ALL if _NUMBERED.search(text) else _IN_PARTS))


def kept(kind: str, text: str) -> Key:
    """Return the key of something of this kind that the user named: `record=receipt`."""
    return Key(f"{kind}={part(text)}")


def kind_at(kind: str, path: Iterable[str]) -> Key:
    """Return a kind that concerns one place in the state: `append:plan~steps`."""
    return Key(f"{kind}:{'~'.join(each.translate(_ALL) for each in path)}")


def prefix_of(key: str) -> Key:
    """Return how keys begin within a step or turn of this key."""
    return Key(f"{key if isinstance(key, Key) else key.translate(_BETWEEN_PARTS)}/")


def place_of(key: str) -> str:
    """Return the key of a decorated step or question without its arguments and number; empty for a user's key."""
    numbered = _NUMBERED.search(key)
    return key[: numbered.start()] if numbered else ""


def name_of(key: str) -> str:
    """Return the name of a decorated step, or the user's key, without the steps around it."""
    return (place_of(key) or key)[len(scope_of(key)) :]


def scope_of(key: str) -> str:
    """Return the beginning of a key that was made within a step or turn; empty for one of the run's own body."""
    last = _LAST_PART.search(key)
    return key[: last.start()] if last else ""
