"""The time of a server costs its callers nothing, and an outage does not stop it."""

from threading import Event
from typing import Any

import pytest

from holdfast.ports import awaitable_ports
from holdfast.records.errors import StoreUnavailable
from holdfast.runs.store import Store
from holdfast.stores import server_clock
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.server_clock import ASK_AGAIN, SLOW, ServerClock
from patience import GIVE_UP_SECONDS


class Host:
    """The steady clock of a host, moved by hand; and a server that can be away, slow, or set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ticks, self.server, self.latency = 5_000, 1_000_000, 0
        self.is_away = False
        self.asked = Event()
        monkeypatch.setattr("holdfast.stores.server_clock.time.clock_gettime_ns", lambda _: self.ticks)
        monkeypatch.setattr(server_clock, "Thread", Inline)

    def ask(self) -> int:
        self.asked.set()
        self.ticks += self.latency
        if self.is_away:
            raise StoreUnavailable("away")
        return self.server


class Inline:
    """Runs what a thread would run, when it is started."""

    def __init__(self, target: Any, **_: object) -> None:
        self.start = target


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def test_the_time_goes_on_between_two_answers_of_the_server(host: Host) -> None:
    clock = ServerClock(host.ask)
    assert clock.now() == 1_000_000
    host.asked.clear()
    host.ticks += 7_000
    assert clock.now() == 1_000_007
    assert not host.asked.is_set()


def test_the_server_is_asked_again_now_and_then(host: Host) -> None:
    clock = ServerClock(host.ask)
    clock.now()
    host.ticks += ASK_AGAIN + 1
    host.server = 99
    assert clock.now() == 99


def test_only_the_first_call_fails_if_the_server_is_away(host: Host) -> None:
    host.is_away = True
    clock = ServerClock(host.ask)
    with pytest.raises(StoreUnavailable):
        clock.now()
    host.is_away = False
    clock.now()
    host.is_away = True
    host.ticks += ASK_AGAIN + 1000
    assert clock.now() == 1_000_000 + ASK_AGAIN // 1000 + 1


def test_an_answer_that_took_long_says_nothing(host: Host) -> None:
    clock = ServerClock(host.ask)
    clock.now()
    host.latency, host.server = SLOW, 5
    host.ticks += ASK_AGAIN + 1000
    assert clock.now() == 1_000_000 + (ASK_AGAIN + SLOW) // 1000 + 1


def test_a_call_does_not_wait_for_the_answer() -> None:
    answers, may_answer = iter([1_000_000, 5]), Event()

    def ask() -> int:
        assert may_answer.wait(GIVE_UP_SECONDS)
        return next(answers)

    clock = ServerClock(ask)
    may_answer.set()
    clock.now()
    may_answer.clear()
    clock._asked_at -= ASK_AGAIN
    assert clock.now() >= 1_000_000, "the thread that asks again still waits"
    may_answer.set()


def test_all_ports_of_a_store_use_its_clock() -> None:
    backend = MemoryBackend()
    backend.now = lambda: 42  # type: ignore[method-assign]
    ports = awaitable_ports()
    Store(backend, ports=ports)
    assert ports.now() == ports.for_plain_code().now() == 42
