"""Tests of runs are scenarios: each is played in both worlds, and over every embedded kind of store."""

from collections.abc import Generator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest

from kinds import EVERY_KIND, new_place, worlds_over
from runs.worlds import EVERY_WORLD, World


def world_over(*kinds: str) -> Any:
    """The fixture `world` over those kinds of store: a world over a new place."""

    @pytest.fixture(params=worlds_over(*kinds))
    def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
        name, _, kind = request.param.partition("-")
        return EVERY_WORLD[name](new_place(kind, tmp_path))

    return world


world = world_over(*EVERY_KIND)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A scenario is played by its world."""
    function, world = pyfuncitem.obj, pyfuncitem.funcargs.get("world")
    if iscoroutinefunction(function) and isinstance(world, World):
        pyfuncitem.obj = lambda **named: world.play(function(**named))
    return (yield)
