"""`--limits`: the limits of the store that a command opens."""

from collections.abc import Callable
from typing import Any

import pytest

from cli.conftest import Call
from holdfast import Limits, sync
from holdfast.cli.arguments import parse_limits
from holdfast.cli.session import blocking_handle
from holdfast.records.errors import ConfigurationError


def test_limits_are_typed_with_units_or_without() -> None:
    assert parse_limits(None) is None
    assert parse_limits("memory=1GiB, size=2MiB,depth=100,expansion_floor=3KiB") == Limits(
        memory=2**30, size=2 * 2**20, depth=100, expansion_floor=3 * 2**10
    )


@pytest.mark.parametrize(
    "text", ["", "memory", "memory=", "memory=1GB", "memory=-1", "items=5", "memory=1" + "0" * 5000]
)
def test_limits_that_are_none_are_refused_with_what_to_type(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--limits: .* memory=1GiB,size=512MiB$"):
        parse_limits(text)


def test_a_store_is_read_under_the_limits_that_were_given(call: Call, document: Callable[..., Any]) -> None:
    with sync.open("holdfast.db") as store:
        store.save("t", {"rows": [[]] * 5000})
    refused = document("--limits", "memory=64KiB", "state", "t", code=1)
    assert refused["error"] == "LimitExceeded"
    assert refused["message"].endswith("(here: --limits, as in --limits memory=1GiB)")
    assert len(document("state", "t", "--limits", "memory=1MiB")["state"]["rows"]) == 5000
    assert "is not a limit" in call("threads", "--limits", "memory=much", code=2).stderr


def test_the_store_of_an_application_keeps_its_limits() -> None:
    limits = Limits(memory=10)
    with sync.open("memory:", limits=limits) as store:
        assert blocking_handle(store._store)._store._limits == limits
