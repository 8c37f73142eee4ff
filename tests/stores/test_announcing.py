"""Announcements: a burst of them is few, none raises, and a listener comes back by itself."""

from time import monotonic
from typing import Any

from holdfast.records.errors import StoreUnavailable
from holdfast.stores.announcing import QUIET_SECONDS, Announcer, ServerListener
from patience import GIVE_UP_SECONDS


def test_a_burst_is_announced_at_its_beginning_and_after_its_end() -> None:
    sent: list[float] = []
    announcer = Announcer(lambda _: sent.append(monotonic()))
    for _ in range(50):
        announcer.announce(b"channel")
    for timer in list(announcer._timers.values()):
        timer.join(GIVE_UP_SECONDS)
    assert 2 <= len(sent) <= 10
    assert sent[1] - sent[0] >= QUIET_SECONDS / 2
    announcer.announce(b"another")
    assert len(sent) <= 11


def test_what_waits_is_sent_when_the_announcer_is_closed() -> None:
    sent: list[bytes] = []
    announcer = Announcer(sent.append)
    announcer.announce(b"channel")
    announcer.announce(b"channel")
    announcer.close()
    assert sent == [b"channel", b"channel"]


def test_a_failure_is_not_raised() -> None:
    def fail(_: bytes) -> None:
        raise StoreUnavailable("away")

    Announcer(fail).announce(b"channel")


class Listener(ServerListener):
    """Connects when it is told to, and hears what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts = 0
        self.is_reachable = False
        self.next: bool | None = False

    def connected(self) -> Any:
        self.attempts += 1
        return "connection" if self.is_reachable else None

    def hears(self, connection: Any, timeout: float) -> bool | None:
        return self.next

    def disconnect(self, connection: Any) -> None:
        """Nothing."""


def test_a_listener_tries_again_after_pauses_and_reports_that_it_is_back() -> None:
    listener = Listener()
    assert not listener.wait(0.3)
    assert 1 <= listener.attempts <= 3, "it does not spin"
    listener.is_reachable = True
    assert listener.wait(GIVE_UP_SECONDS)
    assert listener.is_connected
    listener.next = None
    assert listener.wait(GIVE_UP_SECONDS), "it was cut, and has connected again"
    listener.next = True
    assert listener.wait(GIVE_UP_SECONDS)
    listener.close()
    assert not listener.wait(GIVE_UP_SECONDS)
    assert listener._connection is None
