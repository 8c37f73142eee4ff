"""Tests of workflows are scenarios too: each is played in both worlds, over a store in memory and one on disk.

Those of the document are programs of the awaitable world alone: they have no `world`.
"""

import asyncio
from collections.abc import Generator
from inspect import iscoroutinefunction

import pytest

from runs.conftest import world_over
from runs.worlds import World

world = world_over("memory", "sqlite")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A scenario is played by its world; without one, in an event loop."""
    function, world = pyfuncitem.obj, pyfuncitem.funcargs.get("world")
    if iscoroutinefunction(function):
        play = world.play if isinstance(world, World) else asyncio.run
        pyfuncitem.obj = lambda **named: play(function(**named))
    return (yield)
