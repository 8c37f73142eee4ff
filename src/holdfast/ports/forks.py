"""Forks: what holds locks or threads is at rest when a child is made, and is reset in it."""

import os
from threading import Lock
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What holds locks or threads, which a forked child has no use for."""

    def after_fork(self) -> None:
        """Reset its locks and threads, in the child."""
        ...


_forkables: "WeakSet[Forkable]" = WeakSet()


def reset_after_fork(forkable: Forkable) -> None:
    """Have this reset in every forked child, before anything else runs there."""
    _forkables.add(forkable)


class Guard(Protocol):
    """A lock."""

    def acquire(self) -> bool:
        """Take it."""
        ...

    def release(self) -> None:
        """Release it."""
        ...


_guards: "WeakSet[Guard]" = WeakSet()
_guarding: list[Guard] = []
_forking = Lock()
"""One fork at a time: the guards in hand are those of one."""


def hold_during_fork(guard: Guard) -> None:
    """Take this lock before any fork and release it after: what it guards is at rest when the child is made."""
    _guards.add(guard)


def _before_fork() -> None:
    _forking.acquire()
    for guard in list(_guards):
        guard.acquire()
        _guarding.append(guard)


def _after_fork_in_parent() -> None:
    while _guarding:
        _guarding.pop().release()
    _forking.release()


def _after_fork() -> None:
    global _forking  # noqa: PLW0603  the child must not wait for a lock that is never released
    _forking = Lock()
    _guarding.clear()
    for forkable in list(_forkables):
        forkable.after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)
