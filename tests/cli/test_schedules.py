"""`holdfast schedules`: list, pause, resume and delete them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Call
from holdfast import sync


@pytest.fixture
def digest(place: Path) -> None:
    """A schedule of the default store."""
    with sync.open(place / "holdfast.db") as store:

        @sync.durable(store=store, name="app:report")
        def report() -> None: ...

        store.schedule("digest", report, cron="0 9 * * 1-5", tz="Europe/Berlin")


def test_a_store_without_schedules_says_so(call: Call) -> None:
    assert call("schedules").stdout == "no schedules\n"


@pytest.mark.usefixtures("digest")
def test_schedules_are_listed_with_their_next_tick(call: Call, document: Callable[..., Any]) -> None:
    said = call("schedules").stdout
    assert "digest  0 9 * * 1-5 Europe/Berlin" in said
    assert "never" in said
    (found,) = document("schedules")
    assert (found["name"], found["function"], found["paused"]) == ("digest", "app:report", False)
    assert found["next_at"] is not None


@pytest.mark.usefixtures("digest")
def test_a_schedule_is_paused_resumed_and_deleted(call: Call, document: Callable[..., Any]) -> None:
    assert "paused" in call("schedules", "--pause", "digest").stdout
    (found,) = document("schedules", "--resume", "digest")
    assert not found["paused"]
    assert document("schedules", "--delete", "digest") == []


@pytest.mark.usefixtures("digest")
def test_wrong_usage_changes_nothing(call: Call) -> None:
    call("schedules", "--pause", "digest", "--delete", "digest", code=2)
    for option in ("--pause", "--resume", "--delete"):
        call("schedules", option, "nothing", code=3)
    assert "digest" in call("schedules").stdout
