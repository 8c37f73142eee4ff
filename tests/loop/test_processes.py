"""Loops of real processes: killed with SIGKILL at every transition of ten steps with effects."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import LoopState, sync
from kinds import SHARED, open_store, url_of
from loop.workers import THREAD
from patience import GIVE_UP_SECONDS

SCRIPT = Path(__file__).with_name("workers.py")
STEPS = [f"step{number}" for number in range(10)]
MOMENTS = [
    "plan",
    *(f"{word} {step}" for step in STEPS for word in ("begin", "pay", "end", "observe")),
    *(f"reflect {number}" for number in range(1, 11)),
    *(f"mail {step}" for step in STEPS),
]
"""Every transition, every effect and every deferred effect of the loop."""
ORDINARY = {"plan", "pay step4", "end step4", "reflect 5", "mail step9"}


def driven(url: str, log: Path, fatal: str) -> str:
    command = [sys.executable, "-W", "error", str(SCRIPT), url, str(log), fatal]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == (-9 if fatal else 0), done.stderr
    return done.stdout.strip()


def check_log(lines: list[str], fatal: str) -> None:
    """Finished steps never ran again, the effect in flight at most once more with the same key, mails came last."""
    effects = Counter(line for line in lines if "|" in line)
    assert all(count == 1 or line.startswith(f"{fatal}|") for line, count in effects.items())
    assert len({line.split("|")[0] for line in effects}) == len(effects) == 20  # one key each, in both processes
    begun = [line.split()[1] for line in lines if line.startswith("begin")]
    assert list(dict.fromkeys(begun)) == STEPS
    repeated = [step for step, count in Counter(begun).items() if count > 1]
    in_flight = (
        fatal.rsplit(maxsplit=1)[-1] if fatal.split(maxsplit=1)[0] in {"begin", "pay", "end", "observe"} else None
    )
    assert repeated == ([in_flight] if in_flight else [])
    first_mail = next(number for number, line in enumerate(lines) if line.startswith("mail"))
    assert all(line.startswith("mail") for line in lines[first_mail:])


def test_a_loop_whose_process_was_killed_expires_before_its_lease_does(tmp_path: Path) -> None:
    """Its lease runs for 30 seconds, but nobody will renew it."""
    url, log = str(tmp_path / "loop.db"), tmp_path / "log"
    driven(url, log, "pay step0")
    with sync.open(url) as store:
        assert store.thread(THREAD).owner
        options: dict[str, Any] = {"plan": lambda _: [], "execute": lambda _, step: step}
        assert sync.Loop.resume(store, THREAD, **options, retention=sync.Retention(ttl=0.000001)) is None
        assert store.latest(THREAD) is None


@pytest.mark.processes
@pytest.mark.parametrize(
    "fatal", [pytest.param(each, marks=[] if each in ORDINARY else [pytest.mark.slow]) for each in MOMENTS]
)
def test_a_loop_that_is_killed_at_any_transition_ends_as_if_it_was_not(fatal: str, tmp_path: Path) -> None:
    log, url = tmp_path / "log", url_of("sqlite", tmp_path)
    assert driven(url, log, fatal) == ""
    assert driven(url, log, "") == "10 COMPLETE"
    check_log(log.read_text().splitlines(), fatal)
    with open_store("sqlite", tmp_path) as store:
        assert store.thread(THREAD).status == "complete"
        assert store.latest(THREAD).state["results"] == [f"{step} paid" for step in STEPS]  # type: ignore[union-attr]
        assert store.verify().ok


@pytest.mark.processes
@pytest.mark.parametrize("kind", SHARED)
def test_a_loop_is_recovered_on_every_store(kind: str, tmp_path: Path) -> None:
    log, url = tmp_path / "log", url_of(kind, tmp_path)
    for fatal in ("pay step3", "reflect 7", "mail step2"):
        assert driven(url, log, fatal) == ""
    with open_store(kind, tmp_path) as store:
        found = sync.Loop.resume(store, THREAD, drive=False)
        assert found is not None
        assert (found.state, found.cursor) == (LoopState.REFLECTING, 10)
    assert driven(url, log, "") == "10 COMPLETE"
    paid = Counter(line for line in log.read_text().splitlines() if "|" in line)
    assert {line.split("|")[0]: count for line, count in paid.items() if count > 1} == {
        "pay step3": 2,
        "mail step2": 2,
    }
