"""`holdfast submit`: work for a function whose code need not be here."""

import json

import pytest

from cli.conftest import Call
from holdfast import sync


def test_a_thread_is_queued_with_its_arguments(call: Call) -> None:
    said = call("submit", "app:refund", "r-1", "40", "plain text", '{"to": "ana"}', "--label", "tenant=acme").stdout
    assert said == "r-1 is queued on queue default\n"
    with sync.open("holdfast.db") as store:

        @sync.durable(store=store, name="app:refund")
        def refund(*arguments: object) -> object:
            return list(arguments)

        assert store.thread("r-1").labels == {"tenant": "acme"}
        assert refund.resume("r-1") == [40, "plain text", {"to": "ana"}]


def test_the_document_is_the_thread(call: Call) -> None:
    arguments = ("submit", "app:f", "t", "--queue", "slow", "--priority", "2", "--delay", "1h", "--json")
    document = json.loads(call(*arguments).stdout)
    found = {name: document[name] for name in ("thread_id", "status", "queue", "priority", "function", "version")}
    assert found == {
        "thread_id": "t", "status": "queued", "queue": "slow", "priority": 2, "function": "app:f", "version": 0
    }  # fmt: skip
    assert document["wake_at"] is not None


def test_the_same_again_is_the_same_thread_and_another_call_is_a_conflict(call: Call) -> None:
    for _ in range(2):
        assert call("submit", "app:f", "t", "1").exit_code == 0
    call("submit", "app:f", "t", "2", code=4)


@pytest.mark.parametrize("wrong", [["--priority", "3"], ["--delay", "soon"], ["--label", "x"], ["@none.json"]])
def test_wrong_options_write_nothing(call: Call, wrong: list[str]) -> None:
    call("submit", "app:f", "new", *wrong, code=2)
    with sync.open("holdfast.db") as store, pytest.raises(sync.NotFound):
        store.thread("new")


def test_show_says_where_a_thread_queues(call: Call) -> None:
    call("submit", "app:f", "t", "--queue", "slow", "--priority", "2")
    assert "queue    slow, priority 2, not begun\n" in call("show", "t").stdout
    call("submit", "app:f", "plain")
    assert "queue    default, not begun\n" in call("show", "plain").stdout
    with sync.open("holdfast.db") as store:

        @sync.durable(store=store, name="app:f", version=3)
        def function() -> None: ...

        function.resume("t")
        function.resume("plain")
    assert "queue    slow, priority 2, version 3\n" in call("show", "t").stdout
    assert "queue" not in call("show", "plain").stdout
