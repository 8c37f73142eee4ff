"""Requests in a program that lists and answers them: it needs none of their classes, and no thread hides another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import HoldfastWarning, Limits, sync
from holdfast.codec.limits import refuse_excess
from holdfast.codec.opaque import Opaque
from holdfast.history import journal
from kinds import open_store
from unregistered import forget


@holdfast.storable(name="app.Refund")
@dataclass
class Refund:
    amount: int


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Store]:
    with sync.MemoryStore() if request.param == "memory" else open_store(request.param, tmp_path) as store:
        yield store


def ask(store: sync.Store, thread_id: str, payload: Any, **terms: Any) -> None:
    with pytest.raises(sync.Suspended), store.run(thread_id) as run:
        run.ask("refund", payload, **terms)


def test_a_request_whose_payload_has_an_unknown_class_is_listed(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(store, "known", {"amount": 1})
    ask(store, "unknown", [Refund(2)])
    forget(Refund, monkeypatch)
    payloads = {request.thread_id: request.payload for request in store.requests()}
    (opaque,) = payloads.pop("unknown")
    assert payloads == {"known": {"amount": 1}}
    assert isinstance(opaque, Opaque)
    assert (opaque.name, opaque.content) == ("app.Refund", {"amount": 2})


def test_a_request_whose_payload_has_an_unknown_class_can_be_answered(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(store, "t", Refund(2), choices=["approve"])
    forget(Refund, monkeypatch)
    (request,) = store.requests()
    assert isinstance(store.answer(request.id, "approve", by="ana").payload, Opaque)
    holdfast.register(Refund, name="app.Refund")
    with store.run("t") as run:
        assert run.ask("refund", Refund(2), choices=["approve"]).choice == "approve"


def test_an_answer_of_an_unknown_class_is_listed_but_not_given_to_a_run(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(store, "t", "how much?")
    store.answer(next(iter(store.requests())).id, value=Refund(3))
    forget(Refund, monkeypatch)
    (request,) = store.requests(status="answered")
    assert isinstance(request.answer.value, Opaque) if request.answer else False
    with pytest.raises(holdfast.UnknownType), store.run("t") as run:
        run.ask("refund", "how much?")


def test_a_thread_whose_requests_exceed_the_limits_is_named_and_the_others_are_listed(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_early(encodings: Sequence[bytes], _limits: Limits, what: str) -> None:
        refuse_excess(encodings, Limits(memory=10_000), what)

    ask(store, "large", [[]] * 500)
    ask(store, "small", 1)
    monkeypatch.setattr(journal, "refuse_together", refuse_early)
    for status in (None, "open"):
        with pytest.warns(HoldfastWarning, match="thread 'large', and perhaps others, cannot be read: the list"):
            assert [request.thread_id for request in store.requests(status=status)] == ["small"]
