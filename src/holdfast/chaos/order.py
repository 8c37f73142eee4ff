"""What a user asks for, what the parent orders from a child process, and what the child writes down, line by line."""

import json
from typing import Any

import msgspec

THREAD = "chaos"
REPLAY = "chaos-replay"
WITH_KEY = "with key"
ORDER = "HOLDFAST_CHAOS_ORDER"
"""The environment variable that holds a child's order."""


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """What to kill, and how."""

    target: str
    """`module:function`."""
    arguments: tuple[Any, ...] = ()
    answers: dict[str, str] = {}
    store: str | None = None
    """None for a scratch store."""
    timeout: float = 60
    max_points: int | None = None


class Order(msgspec.Struct, kw_only=True, frozen=True):
    """One life of the function: on which store, in which namespace, and where it is killed."""

    plan: Plan
    directory: str
    """Where modules are looked for first."""
    store: str
    namespace: str
    report: str
    """The file to write to."""
    kill_at: int = 0
    """The number of the crash point to be killed at; 0 for none."""
    replay: bool = False
    """True to run a fork of the recorded thread, instead of resuming it."""


class Note(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One line of a child's report."""

    kind: str
    """`point`, `executes`, `replays`, `outside`, `recorded`, `returned`, `raised`, `unanswered` or `refused`."""
    what: str = ""
    thread: str = ""
    """The thread of a step."""
    key: str = ""
    """The idempotency key of a step that is executed."""
    value: str = ""
    """An encoded result, to compare; for a step that is executed, `WITH_KEY` if its function takes the key."""


def as_value(text: str) -> Any:
    """Parse a value from the command line: JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
