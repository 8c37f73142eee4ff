"""Several processes take from one agenda, and are woken: each entry goes to one of them, within the limits."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from multiprocessing import get_context
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from holdfast.stores.agenda import HIDE, Announcing, Listener
from holdfast.stores.redis import RedisBackend
from holdfast.stores.redis.announcements import channel_of
from holdfast.testing.conformance.agendas import PREFIX, queued
from holdfast.testing.conformance.samples import Line, key, rows
from patience import GIVE_UP_SECONDS
from servers.proxy import Proxy
from servers.redis import RedisServer, new_prefix, shared_server
from stores.redis.scenes import KINDS, backend_in, url_in
from stores.redis.takers import take_all, work_off

PROCESSES = 4


def fill(kind: str, prefix: str, count: int, lanes: int = 1) -> None:
    with closing(backend_in(kind, prefix)) as backend:
        backend.open()
        lines = [Line(backend, key(f"{number:04}")) for number in range(count)]
        lane = [b"" if lanes == 1 else b"%d" % (number % lanes) for number in range(count)]
        backend.swap([line.swap(queued(lane=lane[at]), rows(1)) for at, line in enumerate(lines)])


def in_processes(function: Any, *arguments: Any) -> list[Any]:
    with get_context("spawn").Pool(PROCESSES) as pool:
        return pool.starmap(function, [arguments] * PROCESSES)


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
def test_processes_take_disjoint_threads(kind: str) -> None:
    prefix = new_prefix()
    fill(kind, prefix, 200)
    taken = defaultdict(list)
    for thread, at in sorted(each for found in in_processes(take_all, url_in(kind, prefix)) for each in found):
        taken[thread].append(at)
    assert len(taken) == 200
    for times in taken.values():
        assert all(later - sooner > HIDE // 2 for sooner, later in pairwise(times))


@pytest.mark.processes
def test_limits_hold_among_processes() -> None:
    prefix = new_prefix()
    fill("server", prefix, 60, lanes=3)
    found = in_processes(work_off, url_in("server", prefix), (3, 1), 60)
    assert max(most for most, _ in found) <= 3
    assert max(most for _, most in found) == 1


@pytest.mark.processes
def test_without_limits_more_are_at_work_at_once() -> None:
    """The test above can fail."""
    prefix = new_prefix()
    fill("server", prefix, 60, lanes=3)
    assert max(most for _, most in in_processes(work_off, url_in("server", prefix), None, 60)) > 1


# Announcements


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A line to the shared server that can be cut."""
    made = Proxy(shared_server().port)
    yield made
    made.close()


def hears(listener: Listener) -> bool:
    """True if a wake-up comes, before all patience is lost."""
    return listener.wait(GIVE_UP_SECONDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_announcement_wakes_listeners_of_its_namespace(kind: str) -> None:
    prefix = new_prefix()
    with closing(backend_in(kind, prefix)) as one, closing(backend_in(kind, prefix)) as two:
        assert isinstance(one, Announcing)
        with closing(two.listener(PREFIX)) as listener, closing(two.listener(b"\5other")) as other:
            assert hears(listener), "it is connected"
            assert hears(other)
            one.announce(PREFIX)
            assert hears(listener)
            assert not other.wait(0.1)
            assert not listener.wait(0)


def test_a_listener_that_was_cut_off_comes_back_with_a_wake_up(proxy: Proxy) -> None:
    prefix = new_prefix()
    cut, other = RedisBackend(shared_server().url(prefix, proxy.port)), backend_in("server", prefix)
    with closing(cut), closing(other), closing(cut.listener(PREFIX)) as listener:
        assert hears(listener), "it is connected"
        proxy.drop_all()
        assert hears(listener), "it says that it may have missed something"
        other.announce(PREFIX)
        assert hears(listener)


def test_a_listener_outlives_its_server() -> None:
    server = RedisServer(appendfsync="everysec")
    with closing(RedisBackend(server.url("woken"))) as backend, closing(backend.listener(PREFIX)) as listener:
        assert hears(listener), "it is connected"
        server.kill()
        began = monotonic()
        assert not listener.wait(0.3)
        assert monotonic() - began >= 0.25, "it does not spin"
        backend.announce(PREFIX)
        server.start()
        assert hears(listener)
        with server.client() as client:
            client.publish(channel_of(backend.keys, PREFIX), b"q")
        assert hears(listener)
    server.remove()


def test_a_silent_connection_is_asked_for_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.stores.redis.announcements.PATIENCE", 0.1)
    with closing(backend_in("server", new_prefix())) as backend, closing(backend.listener(PREFIX)) as listener:
        assert hears(listener), "it is connected"
        assert not listener.wait(0.5), "a sign of life is no wake-up, and no cut"
        backend.announce(PREFIX)
        assert hears(listener)


def test_a_listener_that_is_closed_returns() -> None:
    with closing(backend_in("server", new_prefix())) as backend:
        listener, heard = backend.listener(PREFIX), list[bool]()
        assert hears(listener), "it is connected"
        waiting = Thread(target=lambda: heard.append(listener.wait(GIVE_UP_SECONDS)))
        waiting.start()
        listener.close()
        waiting.join(GIVE_UP_SECONDS)
        assert heard == [False]
