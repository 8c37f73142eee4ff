"""How often and how long an outage is retried, by all server stores."""

from itertools import pairwise

import pytest

from holdfast.stores.attempts import LONGEST_PAUSE, attempts


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, on a clock that they alone move."""
    slept: list[float] = []
    monkeypatch.setattr("holdfast.stores.attempts.monotonic", lambda: sum(slept))
    monkeypatch.setattr("holdfast.stores.attempts.sleep", slept.append)
    return slept


def test_without_patience_there_is_one_attempt_and_no_pause(pauses: list[float]) -> None:
    assert list(attempts(0)) == [True]
    assert pauses == []


@pytest.mark.parametrize("patience", [0.1, 1.0, 10.0])
def test_pauses_double_up_to_the_longest_and_stay_within_patience(pauses: list[float], patience: float) -> None:
    *earlier, last = attempts(patience)
    assert (set(earlier), last) == ({False}, True)
    assert len(earlier) == len(pauses) > 1
    assert all(later == min(2 * before, LONGEST_PAUSE) for before, later in pairwise(pauses))
    assert patience - LONGEST_PAUSE <= sum(pauses) < patience
