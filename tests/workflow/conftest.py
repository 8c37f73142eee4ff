"""Tests of workflows are scenarios too: each is played in both worlds, over stores in memory and on disk.

Those of the document are programs of the awaitable world alone: they have no `world`.
"""

import asyncio
from collections.abc import Generator
from inspect import iscoroutinefunction
from pathlib import Path

import pytest

from kinds import new_place, worlds_and_kinds
from runs.worlds import EVERY_WORLD, World

NAMES = ["awaitable-memory", "awaitable-file", "blocking-memory", "blocking-sqlite"]


@pytest.fixture(params=worlds_and_kinds(*NAMES, quick={"awaitable-memory", "blocking-sqlite"}))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A world over a new place."""
    name, _, kind = request.param.partition("-")
    return EVERY_WORLD[name](new_place(kind, tmp_path))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A scenario is played by its world; without one, in an event loop."""
    function, world = pyfuncitem.obj, pyfuncitem.funcargs.get("world")
    if iscoroutinefunction(function):
        play = world.play if isinstance(world, World) else asyncio.run
        pyfuncitem.obj = lambda **named: play(function(**named))
    return (yield)
