"""What the parent asks of a child, and what the child writes down while it lives: one line of JSON for each thing."""

import json
from typing import Any

import msgspec

THREAD = "chaos"
REPLAY = "chaos-replay"
HANDED = "handed"
ORDER = "HOLDFAST_CHAOS_ORDER"
"""The variable that a child finds its order in."""


class Order(msgspec.Struct, kw_only=True, frozen=True):
    """One life of the function: on which store, in which namespace, and where it ends."""

    target: str
    """`module:function`."""
    arguments: tuple[Any, ...] = ()
    directory: str
    """Modules are looked for here first."""
    store: str
    namespace: str
    report: str
    """The file to write to."""
    kill_at: int = 0
    """The number of the point to die at; 0 for none."""
    replay: bool = False
    """True to run a fork of what is recorded, instead of going on with it."""
    answers: dict[str, str] = {}


class Note(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One line of a report."""

    kind: str
    """`point`, `executes`, `replays`, `outside`, `recorded`, `returned`, `raised`, `unanswered` or `refused`."""
    what: str = ""
    key: str = ""
    """The idempotency key of a step that is executed."""
    value: str = ""
    """A result, in an encoding that can be compared; of a step that is executed, whether it was handed its key."""


def as_value(text: str) -> Any:
    """What is typed on a command line: JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
