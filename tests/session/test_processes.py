"""Sessions of real processes: killed in the middle of a turn, and several at once with one key."""

from functools import partial
from pathlib import Path

import pytest

from kinds import open_store, url_of
from scripts import ended, start
from session.speakers import THREAD

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("speakers.py")


started = partial(start, SCRIPT)


def test_of_three_processes_with_one_key_one_calls_the_function(disk_kind: str, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    speakers = [started(url_of(disk_kind, tmp_path), "one", log) for _ in range(3)]
    assert [ended(speaker) for speaker in speakers] == ["answer to the only call"] * 3
    assert log.read_text() == "the only call\n"


def test_a_session_that_is_killed_within_a_turn_goes_on_with_that_turn(disk_kind: str, tmp_path: Path) -> None:
    log, url = tmp_path / "calls", url_of(disk_kind, tmp_path)
    assert ended(started(url, "many", log, 12, 5), -9) == ""
    assert ended(started(url, "many", log, 12, 9), -9) == ""
    summary = ended(started(url, "many", log, 12, 99))
    assert summary == "12 turns, 12 tokens, at an unknown price"  # its limits are kept to the last turn and token
    calls = [*range(6), *range(5, 10), *range(9, 12)]  # the turns that were under way, and no other, a second time
    assert log.read_text().split() == list(map(str, calls))
    with open_store(disk_kind, tmp_path) as store:
        assert len(store.history(THREAD)) == 12
        assert store.verify().ok
