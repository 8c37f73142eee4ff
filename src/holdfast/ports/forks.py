"""Forks: locks are held while the process forks, and objects with locks or threads are reset in the child."""

import os
from threading import Lock
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """An object with locks or threads, which a forked child cannot use."""

    def after_fork(self) -> None:
        """Reset its locks and threads in the child."""
        ...


_forkables: "WeakSet[Forkable]" = WeakSet()


def reset_after_fork(forkable: Forkable) -> None:
    """Reset this object in every forked child, before anything else runs there."""
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
"""One fork at a time: `_guarding` holds the locks of one fork."""


def hold_during_fork(guard: Guard) -> None:
    """Hold this lock during every fork, so that what it protects is consistent in the child."""
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
    global _forking  # noqa: PLW0603  in the child the lock would never be released
    _forking = Lock()
    _guarding.clear()
    for forkable in list(_forkables):
        forkable.after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)
