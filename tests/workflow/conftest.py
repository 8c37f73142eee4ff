"""Tests of workflows are scenarios too: each is played in both worlds, over stores in memory and on disk."""

from pathlib import Path

import pytest

from kinds import new_place, worlds_and_kinds
from runs.conftest import pytest_pyfunc_call
from runs.worlds import EVERY_WORLD, World

__all__ = ["pytest_pyfunc_call", "world"]


NAMES = ["awaitable-memory", "awaitable-file", "blocking-memory", "blocking-sqlite"]


@pytest.fixture(params=worlds_and_kinds(*NAMES, quick={"awaitable-memory", "blocking-sqlite"}))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A world over a new place."""
    name, _, kind = request.param.partition("-")
    return EVERY_WORLD[name](new_place(kind, tmp_path))
