"""An int of more than 4,300 digits has no decimal text in Python: errors and comparisons name it all the same."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from holdfast import Limits
from holdfast.records import arguments
from holdfast.records.errors import ConfigurationError, HoldfastError
from holdfast.records.event import Event
from holdfast.records.shown import quoted
from holdfast.telemetry.spans import _content
from holdfast.testing.exact import difference

LONG = 10**5000


@pytest.mark.parametrize(
    "check",
    [
        lambda: arguments.whole_number(-LONG, "limit"),
        lambda: arguments.duration_us(LONG, "lease"),
        lambda: arguments.amount(LONG, "budget_usd"),
        lambda: arguments.count(LONG, "tokens"),
        lambda: arguments.text_or_none(LONG, "name"),
        lambda: arguments.mapping_or_none([LONG], "labels"),
        lambda: arguments.function_or_none(LONG, "progress"),
        lambda: arguments.path_of_keys(LONG),
        lambda: arguments.sequence(LONG, "choices"),
        lambda: arguments.check_metadata({LONG: 1}),
        lambda: arguments.check_labels({LONG: LONG}),
        lambda: arguments.check_idempotency_key(LONG),
        lambda: arguments.plain_word({}, LONG, "status"),
        lambda: Limits(memory=-LONG),
        lambda: Limits(depth=LONG),
    ],
)
def test_a_wrong_argument_with_a_long_number_is_refused_in_our_words(check: Callable[[], Any]) -> None:
    with pytest.raises(HoldfastError) as refused:
        check()
    assert len(str(refused.value)) < 300


def test_a_long_number_is_named_by_its_first_digits() -> None:
    with pytest.raises(ConfigurationError, match=r"^`limit` must be an int of at least 0, got -0x[0-9a-f]{57}…$"):
        arguments.whole_number(-LONG, "limit")
    assert quoted("plain") == "'plain'"


def test_values_with_long_numbers_are_compared() -> None:
    pairs: list[tuple[Any, Any]] = [(LONG, LONG + 1), (LONG, "1"), ({LONG: 1}, {LONG: 2}), ({LONG: 1}, {})]
    for expected, actual in [*pairs, ({LONG}, {1}), ([LONG], [1.0])]:
        assert difference(expected, expected) is None
        assert difference(expected, actual)


def test_a_long_number_within_a_number_is_compared() -> None:
    assert difference(Fraction(LONG, 3), Fraction(LONG, 3)) is None


def test_a_span_takes_a_result_that_is_a_long_number() -> None:
    event = Event(kind="step_done", thread_id="t", content={"result": LONG})
    assert _content(event)["holdfast.step.result"].startswith("0x")
