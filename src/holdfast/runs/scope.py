"""Where in a run a call is made: which keys it may use, and which run and step it belongs to.

Keys that the user does not choose are made of names, fingerprints of arguments and an ordinal among equals. They do not
depend on the order in which parallel branches get to their calls.
"""

from collections.abc import Callable
from contextvars import ContextVar
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.codec import encode
from holdfast.ports import Ticket
from holdfast.records.errors import SecretInState, UnstorableValue
from holdfast.records.secret import masked
from holdfast.runs.keys import Key, prefix_of

if TYPE_CHECKING:
    from holdfast.runs.run import Run

FINGERPRINT_BYTES = 8
NO_KEY = Key()


class Scope(msgspec.Struct, eq=False):
    """One level of a run: its body, or one step's function. Counts what was called by which name."""

    prefix: Key = NO_KEY
    """How the keys of this level begin: `scope.prefix + key` is the key of what the user calls `key` here."""
    branch: int = 0
    _counts: dict[str, "count[int]"] = {}

    def key(self, name: str, fingerprint: bytes) -> str:
        """A key for a call with these arguments."""
        return self._numbered(f"{self.prefix + name}:{fingerprint.hex()}")

    def ordinal(self, kind: str, fingerprint: bytes, branch: int) -> str:
        """A key for the next thing of this kind; in a parallel branch, for the next with this content."""
        content = "" if branch == self.branch else f":{fingerprint.hex()}"
        return self._numbered(f"{self.prefix + kind}{content}")

    def _numbered(self, name: str) -> str:
        return f"{name}:{next(self._counts.setdefault(name, count(1)))}"


class Frame(msgspec.Struct, frozen=True):
    """What the code that runs now belongs to."""

    run: "Run"
    scope: Scope
    make_key: Callable[[], str] = str
    """Makes its idempotency key, if that is asked for."""
    effect: bool = False
    """True within a step that was given `effect=True`."""
    within: tuple[str, ...] = ()
    """The keys of the steps that this code is part of."""

    @property
    def idempotency_key(self) -> str:
        """That of the step or turn; empty in the run's own body."""
        return self.make_key()


def inner_frame(run: "Run", key: str, make_key: Callable[[], str], *, effect: bool = False) -> Frame:
    """The frame of a step or turn that is called here; what is called within it has keys that begin with its key."""
    outer = current_frame.get()
    within = (key,) if outer is None else (*outer.within, key)
    return Frame(run, Scope(prefix_of(key)), make_key, effect, within)


current_frame: ContextVar[Frame | None] = ContextVar("holdfast_frame", default=None)


held: ContextVar[tuple[Ticket, ...]] = ContextVar("holdfast_held", default=())
"""The steps that this code is at, or is part of, as the tickets that others wait for."""


def digest_of(arguments: Any) -> bytes:
    """A digest of arguments, whatever secrets are among them; `UnstorableValue` if they cannot be compared."""
    try:
        encoded = encode(arguments, path="arguments")
    except SecretInState:
        encoded = encode(masked(arguments), path="arguments")
    return sha256(encoded).digest()[:FINGERPRINT_BYTES]


def fingerprint_of(arguments: Any, what: str, advice: str) -> bytes:
    """A digest of arguments; a clear refusal of what cannot be compared."""
    try:
        return digest_of(arguments)
    except UnstorableValue as error:
        raise UnstorableValue(f"{what}: {error}; {advice}", path=error.path) from error
