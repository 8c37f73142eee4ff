"""A save struck at any of its system calls, by death, a full disk or a broken one: old or new, nothing between."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import sync
from kinds import open_store, url_of
from stores import struck

CALLS = "write,pwrite64,fsync,fdatasync,ftruncate,rename,unlink"
SECOND = {"n": 2, "text": "x" * 9000}
STRACE = shutil.which("strace")


def traced(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the save under strace; its standard error is the list of calls."""
    command = [str(STRACE), "-f", "-qq", "-e", f"trace={CALLS}", *options]
    return subprocess.run(
        [*command, sys.executable, struck.__file__, url], capture_output=True, text=True, check=False, timeout=60
    )


def calls_of(trace: str) -> list[tuple[str, int]]:
    """Each call that was made, by its name and its number among those of that name; without our last word."""
    names = re.findall(r"^(?:\[pid +\d+\] )?(\w+)\(", trace, re.MULTILINE)[:-1]
    return [(name, names[: at + 1].count(name)) for at, name in enumerate(names)]


def can_trace() -> bool:
    if STRACE is None:
        return False
    return subprocess.run([STRACE, "-f", "-qq", "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(not can_trace(), reason="needs strace, and leave to use it"),
    pytest.mark.timeout(300),
]


def prepared(kind: str, directory: Path) -> str:
    """A store with one checkpoint, closed."""
    directory.mkdir()
    with sync.open(url_of(kind, directory), durability="durable") as store:
        store.save("t", {"n": 1})
    return url_of(kind, directory)


def is_old_or_new(kind: str, directory: Path, outcome: str) -> None:
    """What was said to be saved is there; what was said not to be is not; and the store goes on."""
    with open_store(kind, directory) as store:
        latest = store.latest("t")
        assert latest is not None
        assert latest.state in ({"n": 1}, SECOND), "something between"
        if outcome == "saved":
            assert latest.state == SECOND, "an acknowledged save is not there"
        if outcome == "StoreUnavailable":
            assert latest.state == {"n": 1}, "nothing was written, it said"
        report = store.verify()
        assert report.ok, report.problems
        assert store.save("t", {"n": 3}).seq == latest.seq + 1


@pytest.mark.parametrize("strike", ["signal=KILL", "error=ENOSPC", "error=EIO"])
def test_a_save_struck_at_any_call_is_made_or_not_made(disk_kind: str, strike: str, tmp_path: Path) -> None:
    undisturbed = traced(prepared(disk_kind, tmp_path / "undisturbed"))
    assert undisturbed.stdout == "saved", undisturbed.stderr
    calls = calls_of(undisturbed.stderr)
    assert len(calls) >= 3
    outcomes = set()
    for name, number in calls:
        directory = tmp_path / f"{name} {number}"
        ran = traced(prepared(disk_kind, directory), "-e", f"inject={name}:{strike}:when={number}")
        assert ran.stdout in {"", "saved", "StoreUnavailable", "OutcomeUnknown"}, ran.stdout + ran.stderr
        try:
            is_old_or_new(disk_kind, directory, ran.stdout)
        except AssertionError as error:
            raise AssertionError(f"{strike} at {name} {number}: {error}") from error
        outcomes.add(ran.stdout)
    if strike == "signal=KILL":
        assert outcomes == {""}
    else:
        assert outcomes & {"StoreUnavailable", "OutcomeUnknown"}, "no strike was felt"
