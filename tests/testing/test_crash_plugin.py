"""The fixtures for pytest: there for every project that has Holdfast; nothing is loaded before they are asked for."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parent.parent.parent
TESTS = """
import asyncio
import sys

import holdfast
from holdfast import sync


@sync.durable
def agent(text):
    return sync.current().step("shout", str.upper, text)


def test_the_awaitable_store(holdfast_store):
    async def saved():
        await holdfast_store.save("t", 1)
        return (await holdfast_store.latest("t")).state

    assert asyncio.run(saved()) == 1


def test_the_blocking_store(holdfast_sync_store):
    assert holdfast_sync_store.latest("t") is None
    assert holdfast_sync_store.save("t", 1).seq == 1


def test_an_agent_ends_the_same_wherever_it_dies(crash_everywhere):
    assert crash_everywhere(agent, "hi", pairs=5).result == "HI"


def test_an_agent_that_does_not(crash_everywhere):
    calls = []
    crash_everywhere(lambda store: calls.append(1) or len(calls), pairs=0)
    crash_everywhere(lambda store: store.save("t", calls.append(1) or len(calls)).seq, pairs=0)
"""


def pytest_in(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTEST_"))}
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:randomly", *arguments]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def test_the_fixtures_are_there(tmp_path: Path) -> None:
    (tmp_path / "test_agent.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    ran = pytest_in(tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 3 passed" in ran.stdout
    assert "cases, first at " in ran.stdout


def test_pytest_is_told_of_the_plugin() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert declared == {"holdfast": "holdfast.testing.plugin"}
    assert [entry.value for entry in entry_points(group="pytest11", name="holdfast")] == ["holdfast.testing.plugin"]


def test_the_plugin_loads_next_to_nothing() -> None:
    code = (
        "import sys, pytest; bare = set(sys.modules); import holdfast.testing.plugin; print(*set(sys.modules) - bare)"
    )
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "holdfast.testing.plugin" in loaded
    assert not loaded & {"holdfast.testing.crash", "holdfast.runs", "hypothesis", "pytest_asyncio", "sqlite3"}
