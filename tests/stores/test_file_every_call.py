"""A swap that is struck at any of its calls, by an error or by death, is made or not made: nothing between."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.records.errors import OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.records.rows import Drop, Swap
from holdfast.records.words import Durability
from holdfast.stores.file import FileBackend
from rounds import TIMES
from stores.file_scenes import THREAD, fail, opened, step

pytestmark = pytest.mark.faults

BROKEN = OSError(errno.EIO, "Input/output error")
CALLS = (
    *("open", "stat", "readlink", "lseek", "pread", "pwrite"),
    *("ftruncate", "fsync", "fdatasync", "rename", "unlink", "mkdir"),
)
STRIDE = 16 if TIMES == 1 else 1
"""Of the calls at which a process dies: each sixteenth in an ordinary run."""
FIRST = step(1)
NEXT = step(3, blobs={b"three": b"blob"})
DROP = step(3, drop=Drop(rows=((1, 2),)))


def strike(patch: pytest.MonkeyPatch, count: int, strike_now: Callable[[], None]) -> list[str]:
    """Let the call of that number, of all that reach the file system, be struck; the list tells which were made."""
    made: list[str] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def call(*given: Any, **named: Any) -> Any:
            made.append(name)
            if len(made) == count:
                strike_now()
            return real(*given, **named)

        patch.setattr(os, name, call)

    for name in CALLS:
        watch(name)
    return made


@pytest.mark.parametrize("swap", [FIRST, NEXT, DROP], ids=["first", "next", "drop"])
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("reserve_after", [0, 1, 9], ids=["reserving", "reserved", "unreserved"])
class TestEveryCall:
    @pytest.fixture(autouse=True)
    def reserving(self, monkeypatch: pytest.MonkeyPatch, reserve_after: int) -> None:
        monkeypatch.setattr("holdfast.stores.file.backend.RESERVE_AFTER", reserve_after)

    def scene(self, root: Path, swap: Swap, *, warm: bool) -> FileBackend:
        backend = opened(root, Durability.DURABLE)
        for seq in range(1, swap.rows[0].seq):
            backend.swap([step(seq)])
        if not warm:
            backend._pool.drop()
        return backend

    def check(self, root: Path, swap: Swap) -> bool:
        """True if the swap was made. All or nothing, and whoever comes next can make it."""
        backend = opened(root)
        before = list(range(1, swap.rows[0].seq))
        made = backend.heads([THREAD]) == [swap.replacement]
        assert made or backend.heads([THREAD]) == [swap.expected or None]
        after = [seq for seq in [*before, swap.rows[0].seq] if not (swap.drop.rows and seq == 1)]
        assert [found.seq for found in backend.index(THREAD, None, None)] == (after if made else before)[::-1]
        assert backend.swap([swap]) == [not made]
        assert backend.heads([THREAD]) == [swap.replacement]
        assert not list(root.rglob("*.new"))
        backend.close()
        return made

    def test_an_error_of_any_call_is_raised_and_the_log_is_the_old_or_the_new(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: Swap, warm: bool
    ) -> None:
        for count in range(1, 100):
            root = tmp_path / str(count)
            backend = self.scene(root, swap, warm=warm)
            with monkeypatch.context() as patch:
                calls = strike(patch, count, fail(BROKEN))
                try:
                    outcome: object = backend.swap([swap])
                except StoreError as error:
                    outcome = type(error)
            backend.close()
            made = self.check(root, swap)
            if len(calls) < count:
                assert outcome == [True]
                assert made
                break
            assert outcome is OutcomeUnknown or outcome == ([True] if made else StoreUnavailable)

    def test_a_death_before_any_call_leaves_the_old_or_the_new(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: Swap, warm: bool
    ) -> None:
        for count in range(1, 100, STRIDE):
            root = tmp_path / str(count)
            backend = self.scene(root, swap, warm=warm)
            process = os.fork()
            if not process:
                strike(monkeypatch, count, lambda: os._exit(9))
                os._exit(0 if backend.swap([swap]) == [True] else 1)
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            backend.close()
            made = self.check(root, swap)
            if code == 0:
                assert made
                break
            assert code == 9
