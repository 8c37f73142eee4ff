"""Tests of sessions are scenarios too: each is played in both worlds, over every embedded kind of store."""

from runs.conftest import pytest_pyfunc_call, world

__all__ = ["pytest_pyfunc_call", "world"]
