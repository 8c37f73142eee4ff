"""Tests of runs are scenarios: each is played in both worlds, over every embedded kind of store."""

from collections.abc import Generator
from inspect import iscoroutinefunction
from pathlib import Path

import pytest

from kinds import EVERY_KIND, new_place, worlds_and_kinds
from runs.worlds import EVERY_WORLD, World

NAMES = [f"{world}-{kind}" for world in EVERY_WORLD for kind in EVERY_KIND]


@pytest.fixture(params=worlds_and_kinds(*NAMES, quick={"awaitable-memory", "blocking-sqlite"}))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A world over a new place."""
    name, _, kind = request.param.partition("-")
    return EVERY_WORLD[name](new_place(kind, tmp_path))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A scenario is played by its world."""
    function, world = pyfuncitem.obj, pyfuncitem.funcargs.get("world")
    if iscoroutinefunction(function) and isinstance(world, World):
        pyfuncitem.obj = lambda **named: world.play(function(**named))
    return (yield)
