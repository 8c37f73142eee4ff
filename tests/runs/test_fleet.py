"""The fleet of examples/fleet: workers are killed and started again, and each step is recorded once."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import sync
from patience import GIVE_UP_SECONDS

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet"


def fleet(place: Path, *options: str) -> list[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLE / "fleet.py"), "--threads", "24", "--every", "0.6", *options]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check_report(lines: list[str]) -> None:
    *_, last, recorded, executed, verdict = lines
    assert re.fullmatch(r"threads: 24 complete; steps executed: \d+; kills: [1-9]\d*", last)
    assert recorded == "recorded: 96 steps, 4 in each of 24 threads, none twice"
    assert re.fullmatch(r"executed: 96 steps, and \d+ again, which \d+ killed workers had begun", executed)
    assert verdict == "each step once"


@pytest.mark.processes
def test_the_fleet_is_killed_on_sqlite_and_each_step_is_recorded_once(tmp_path: Path) -> None:
    check_report(fleet(tmp_path, "--store", "fleet.db"))


@pytest.mark.servers
def test_the_fleet_starts_a_postgresql_server_if_no_store_is_given(tmp_path: Path) -> None:
    (said, *lines) = fleet(tmp_path)
    assert said == "store: a private PostgreSQL server, removed at the end"
    assert said in (EXAMPLE / "README.md").read_text()
    check_report(lines)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def program() -> Any:
    """The example as a module."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(EXAMPLE)
        spec = importlib.util.spec_from_file_location("fleet", EXAMPLE / "fleet.py")
        assert spec is not None
        assert spec.loader is not None
        module: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def test_only_a_step_that_a_killed_worker_had_begun_may_be_executed_again(program: Any) -> None:
    begun = [("report-1", "0", 7), ("report-1", "1", 7), ("report-1", "1", 8), ("report-2", "0", 8)]
    assert program.check_executed(begun, {7}) == 1
    for killed in (set[int](), {8}):
        with pytest.raises(SystemExit, match="1 steps of process 7 were executed again"):
            program.check_executed(begun, killed)


def test_a_killed_worker_leaves_no_more_steps_than_it_runs_at_once(program: Any) -> None:
    begun = [(f"report-{number}", "0", process) for process in (7, 8) for number in range(program.CONCURRENCY + 1)]
    with pytest.raises(SystemExit, match="6 steps of process 7"):
        program.check_executed(begun, {7})


def test_a_thread_that_lacks_a_step_is_found(program: Any) -> None:
    with sync.open("memory:") as store:
        with store.run("report-1") as run:
            run.step("research", str.upper, "kelp")
            run.complete("short")
        with pytest.raises(SystemExit, match=r"report-1 is complete, and has the steps .*research"):
            program.check_recorded(store, ["report-1"])
