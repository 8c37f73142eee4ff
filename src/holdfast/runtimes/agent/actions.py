"""The actions a policy can choose after a failure."""

from typing import Any, ClassVar

import msgspec

from holdfast.records.errors import ConfigurationError
from holdfast.runs.options import seconds

_OPTIONS: dict[str, tuple[str, ...]] = {
    "retry": ("hint", "delay"),
    "replan": ("hint",),
    "rollback": ("checkpoint_id", "hint", "strict"),
    "resume": ("from_subgoal", "hint"),
    "escalate": ("message",),
    "suspend": ("message",),
    "abort": ("reason", "undo"),
}
_FLAGS, _TEXTS = ("strict", "undo"), ("hint", "from_subgoal", "message", "reason")


class RecoveryAction(msgspec.Struct, frozen=True, kw_only=True):
    """One of RETRY, REPLAN, ROLLBACK, RESUME, ESCALATE, SUSPEND, ABORT. Call one to set options: `RETRY(hint="…")`."""

    kind: str
    hint: str = ""
    delay: float = 0.0
    checkpoint_id: str | None = None
    strict: bool = False
    """Escalate if an undone step has no compensator and is not idempotent."""
    from_subgoal: str = ""
    message: str = ""
    reason: str = ""
    undo: bool = False
    """Compensate every step before aborting, and remove them from the state and the trajectory."""

    RETRY: ClassVar["RecoveryAction"]
    REPLAN: ClassVar["RecoveryAction"]
    ROLLBACK: ClassVar["RecoveryAction"]
    RESUME: ClassVar["RecoveryAction"]
    ESCALATE: ClassVar["RecoveryAction"]
    SUSPEND: ClassVar["RecoveryAction"]
    ABORT: ClassVar["RecoveryAction"]

    def __post_init__(self) -> None:
        if self.kind not in tuple(_OPTIONS):
            raise ConfigurationError(f"`kind` must be one of {', '.join(_OPTIONS)}, got {self.kind!r}")
        msgspec.structs.force_setattr(self, "delay", seconds(self.delay, "delay"))
        for name in _FLAGS:
            _check(getattr(self, name), name, bool)
        for name in _TEXTS:
            _check(getattr(self, name), name, str)
        if self.checkpoint_id is not None:
            _check(self.checkpoint_id, "checkpoint_id", str)

    def __call__(self, **options: Any) -> "RecoveryAction":
        """Return this action with options."""
        known = _OPTIONS[self.kind]
        if unknown := set(options) - set(known):
            raise ConfigurationError(
                f"{self.kind.upper()} has no option {min(unknown)}=; it takes {', '.join(f'{name}=' for name in known)}"
            )
        return msgspec.structs.replace(self, **options)

    def __repr__(self) -> str:
        given = [f"{name}={getattr(self, name)!r}" for name in _OPTIONS[self.kind] if getattr(self, name)]
        return f"RecoveryAction.{self.kind.upper()}({', '.join(given)})"

    @classmethod
    def named(cls, word: object, /, **options: Any) -> "RecoveryAction":
        """Return the action of that name; the case does not matter."""
        if not isinstance(word, str) or word.lower() not in _OPTIONS:
            raise ConfigurationError(f"an action must be one of {', '.join(_OPTIONS)}, got {word!r}")
        return cls(kind=word.lower())(**options)


def _check(value: object, name: str, kind: type) -> None:
    if not isinstance(value, kind):
        raise ConfigurationError(f"`{name}` must be a {kind.__name__}, got {value!r}")


for _kind in _OPTIONS:
    setattr(RecoveryAction, _kind.upper(), RecoveryAction(kind=_kind))
