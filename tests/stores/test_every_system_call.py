"""A save struck at any of its system calls, by death, a full disk or a broken one: old or new, nothing between."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import sync
from kinds import open_store, url_of
from patience import GIVE_UP_SECONDS
from rounds import TIMES
from stores import struck
from stores.struck import SECOND

CALLS = "write,pwrite64,fsync,fdatasync,ftruncate,rename,unlink"
SAMPLES = 3
STRACE = shutil.which("strace")
# A measured child writes its own data file, and a first import its bytecode: neither is a call of the save.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
ENVIRONMENT["PYTHONDONTWRITEBYTECODE"] = "1"


def traced(url: str, *options: str, writer: str = "honest") -> subprocess.CompletedProcess[str]:
    """Run the save under strace; its standard error is the list of calls."""
    command = [str(STRACE), "-f", "-qq", "-e", f"trace={CALLS}", *options]
    return subprocess.run(
        [*command, sys.executable, struck.__file__, url, writer],
        capture_output=True,
        text=True,
        check=False,
        timeout=GIVE_UP_SECONDS,
        env=ENVIRONMENT,
    )


def calls_of(trace: str) -> list[tuple[str, int]]:
    """Each call that was made, by its name and its number among those of that name; without the word to us."""
    made = re.findall(r"^(?:\[pid +\d+\] )?(\w+)\((1, )?", trace, re.MULTILINE)
    names = [name for name, _ in made]
    return [(name, names[: at + 1].count(name)) for at, (name, is_word) in enumerate(made) if not is_word]


pytestmark = pytest.mark.servers


@pytest.fixture(scope="module", autouse=True)
def strace() -> None:
    """A test that cannot run is no test: without strace, and leave to use it, these fail."""
    assert STRACE, "strace is not there: apt-get install strace"
    ran = subprocess.run([STRACE, "-f", "-qq", "true"], capture_output=True, text=True, check=False)
    assert not ran.returncode, f"strace may not trace here: {ran.stderr}"


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


def chosen(calls: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Some of the calls, from the first to the last; all of them where many rounds are asked for."""
    step = 1 if TIMES > 1 else len(calls) // SAMPLES + 1
    return list(dict.fromkeys([*calls[::step], calls[-1]]))


def struck_everywhere(kind: str, strike: str, directory: Path, writer: str = "honest") -> set[str]:
    """Strike a save at each of its calls, one after the other; returns the outcomes it told of."""
    undisturbed = traced(prepared(kind, directory / "undisturbed"), writer=writer)
    assert undisturbed.stdout == "saved", undisturbed.stderr
    calls = calls_of(undisturbed.stderr)
    assert {name for name, _ in calls} & {"fsync", "fdatasync"}, "a durable save syncs"
    outcomes = set()
    for name, number in calls if writer == "boasting" else chosen(calls):
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


def test_a_store_killed_at_any_call_of_its_close_is_whole(disk_kind: str, tmp_path: Path) -> None:
    """SQLite moves its log into the file then: with the log at hand, no half of that is taken for damage."""
    assert struck_everywhere(disk_kind, "signal=KILL", tmp_path, "closing") == {""}


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_save_that_meets_a_broken_disk_is_made_or_not_made(disk_kind: str, error: str, tmp_path: Path) -> None:
    outcomes = struck_everywhere(disk_kind, f"error={error}", tmp_path)
    assert outcomes & {"StoreUnavailable", "OutcomeUnknown"}, "no strike was felt"


def test_a_writer_that_acknowledges_before_it_saves_is_found_out(disk_kind: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="an acknowledged save is not there"):
        struck_everywhere(disk_kind, "signal=KILL", tmp_path, "boasting")
