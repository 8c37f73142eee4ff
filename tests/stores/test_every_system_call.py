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


def traced(url: str, *options: str, writer: str = "honest") -> subprocess.CompletedProcess[str]:
    """Run the save under strace; its standard error is the list of calls."""
    command = [str(STRACE), "-f", "-qq", "-e", f"trace={CALLS}", *options]
    return subprocess.run(
        [*command, sys.executable, struck.__file__, url, writer],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
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


def struck_everywhere(kind: str, strike: str, directory: Path, writer: str = "honest") -> set[str]:
    """Strike a save at each of its calls, one after the other; returns the outcomes it told of."""
    undisturbed = traced(prepared(kind, directory / "undisturbed"), writer=writer)
    assert undisturbed.stdout == "saved", undisturbed.stderr
    outcomes = set()
    for name, number in calls_of(undisturbed.stderr):
        place = directory / f"{name} {number}"
        ran = traced(prepared(kind, place), "-e", f"inject={name}:{strike}:when={number}", writer=writer)
        assert ran.stdout in {"", "saved", "StoreUnavailable", "OutcomeUnknown"}, ran.stdout + ran.stderr
        try:
            is_old_or_new(kind, place, ran.stdout)
        except AssertionError as error:
            raise AssertionError(f"{strike} at {name} {number}: {error}") from error
        outcomes.add(ran.stdout)
    return outcomes


def test_a_save_killed_at_any_call_is_made_or_not_made(disk_kind: str, tmp_path: Path) -> None:
    assert struck_everywhere(disk_kind, "signal=KILL", tmp_path) == {""}


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_save_that_meets_a_broken_disk_is_made_or_not_made(disk_kind: str, error: str, tmp_path: Path) -> None:
    outcomes = struck_everywhere(disk_kind, f"error={error}", tmp_path)
    assert outcomes & {"StoreUnavailable", "OutcomeUnknown"}, "no strike was felt"


def test_a_writer_that_acknowledges_before_it_saves_is_found_out(disk_kind: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="an acknowledged save is not there"):
        struck_everywhere(disk_kind, "signal=KILL", tmp_path, "boasting")
