"""Tests of agents are scenarios too: each is played in both worlds, over a store in memory and one on disk."""

from runs.conftest import pytest_pyfunc_call, world_over

__all__ = ["pytest_pyfunc_call", "world"]

world = world_over("memory", "sqlite")
