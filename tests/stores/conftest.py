"""Fixtures for the tests of stores."""

import pytest


@pytest.fixture(params=[0, 200, 32768], ids=["no tail", "a short tail", "a long tail"])
def tails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many bytes of rows ride in the heads of object stores."""
    monkeypatch.setattr("stores.object_scenes.TAIL_BYTES", request.param)
