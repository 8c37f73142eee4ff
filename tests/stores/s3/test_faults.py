"""A server that dies in mid-write, and replies that are lost: no acknowledged save is lost, and none is doubled."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from harness.broken_backends import Deaf
from holdfast import sync
from holdfast.records.errors import OutcomeUnknown, StoreUnavailable
from holdfast.stores.s3 import S3Backend
from holdfast.stores.s3.client import Client
from holdfast.stores.s3.places import place_of
from patience import GIVE_UP_SECONDS
from rounds import TIMES, rounds
from servers.proxy import Proxy
from servers.s3 import SeaweedServer, new_prefix
from stores.s3.scenes import seaweed, store_at

RESTARTS = 1 if TIMES == 1 else 20

pytestmark = pytest.mark.faults


# A server that is full


def state_of(store: sync.Store, thread: str) -> Any:
    newest = store.latest(thread)
    assert newest is not None
    return newest.state


def fill_up(store: sync.Store) -> int:
    """Save until the store refuses; how often it did not."""
    for saved in range(120):
        try:
            store.save("t", {"n": saved, "file": Random(saved).randbytes(100_000)})
        except (StoreUnavailable, OutcomeUnknown):
            return saved
    raise AssertionError("the server never was full")


def survive_a_full_disk(server: SeaweedServer, store: sync.Store) -> None:
    store.save("t", {"n": "first"})
    server.limit_files(1 << 20)
    saved = fill_up(store)
    assert saved > 3
    last = {"n": saved - 1, "file": Random(saved - 1).randbytes(100_000)}
    assert state_of(store, "t") == last
    server.limit_files(None)
    assert store.save("t", {"n": "fits again"}).seq >= saved + 2
    with sync.S3Store(server.url("full")) as reader:
        assert reader.get("t", saved + 1).state == last
        assert state_of(reader, "t") == {"n": "fits again"}
        assert reader.verify().ok


def test_a_server_out_of_disk_is_unavailable_and_loses_nothing() -> None:
    server = SeaweedServer()
    with sync.S3Store(server.url("full"), patience=0.5) as store:
        survive_a_full_disk(server, store)
    server.remove()


def test_a_store_that_does_not_hear_its_server_is_found_out_when_the_disk_is_full() -> None:
    server = SeaweedServer()
    with (
        sync.Store(Deaf(S3Backend(server.url("full"), patience=0.1))) as store,
        pytest.raises(AssertionError, match="never was full"),
    ):
        survive_a_full_disk(server, store)
    server.remove()


def test_more_threads_than_requests_at_a_time_wait_for_their_turn() -> None:
    with sync.S3Store(seaweed().url(new_prefix()), parallel=2) as store:

        def work(number: int) -> int:
            for turn in range(5):
                store.save(f"t{number}", {"turn": turn})
            return int(state_of(store, f"t{number}")["turn"])

        with ThreadPoolExecutor(12) as pool:
            assert list(pool.map(work, range(12))) == [4] * 12


# A server that dies


class Writer(Thread):
    """Appends numbers to a list until it is told to stop, and keeps those that were acknowledged."""

    def __init__(self, store: sync.Store) -> None:
        super().__init__()
        self.store = store
        self.acknowledged: list[int] = []
        self.in_doubt: list[int] = []
        self.written = Event()
        self.is_over = False

    def run(self) -> None:
        for number in count():
            if self.is_over:
                return
            try:
                self.store.append("t", "list", number)
            except OutcomeUnknown:
                self.in_doubt.append(number)
            except StoreUnavailable:
                continue
            else:
                self.acknowledged.append(number)
                self.written.set()

    def wait(self) -> None:
        """Until one more was acknowledged."""
        self.written.clear()
        assert self.written.wait(GIVE_UP_SECONDS)


def test_a_server_killed_and_restarted_in_mid_write_loses_nothing_that_was_acknowledged() -> None:
    server, random = SeaweedServer(), Random(3)
    try:
        with sync.S3Store(server.url("p"), patience=GIVE_UP_SECONDS) as store:
            store.save("t", {"list": []})
            writer = Writer(store)
            writer.start()
            for _ in range(RESTARTS):
                for _ in range(random.randrange(1, 20)):
                    writer.wait()
                server.kill()
                server.start()
            writer.wait()
            writer.is_over = True
            writer.join()
        with sync.S3Store(server.url("p")) as store:
            latest = store.latest("t")
            assert store.verify().ok
    finally:
        server.remove()
    assert latest is not None
    found = latest.state["list"]
    assert found == sorted(set(found)), "in order, and none twice"
    assert set(writer.acknowledged) <= set(found) <= {*writer.acknowledged, *writer.in_doubt}


# Replies that are lost


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy(seaweed().port)
    yield made
    made.close()


def is_put_of(part: bytes) -> Any:
    return lambda request: request.startswith(b"PUT") and part in request.partition(b"\r\n")[0]


@pytest.mark.parametrize("part", [b"/head", b"/rows/", b"/blobs/"])
def test_a_put_whose_reply_is_lost_is_made_once(proxy: Proxy, part: bytes) -> None:
    prefix = new_prefix()
    with sync.S3Store(seaweed().url(prefix, proxy.port)) as store:
        store.save("t", {"list": []})
        for number in range(6):
            proxy.swallow_reply(is_put_of(part))
            store.save("t", {"list": list(range(number + 1)), "page": str(number) * 100_000})
    with store_at(prefix) as store:
        assert [info.seq for info in store.history("t")] == [7, 6, 5, 4, 3, 2, 1]
        assert store.get("t", 7).state["list"] == [0, 1, 2, 3, 4, 5]
        assert store.verify().ok


def test_a_line_that_is_cut_anywhere_leaves_all_or_nothing(proxy: Proxy) -> None:
    prefix, random = new_prefix(), Random(5)
    with sync.S3Store(seaweed().url(prefix, proxy.port)) as store:
        store.save("t", {"list": []})
        for number in range(rounds(8, 15)):
            proxy.drop_after(random.randrange(1, 4000))
            store.append("t", "list", number)
        latest = store.latest("t")
    assert latest is not None
    assert latest.state["list"] == list(range(rounds(8, 15)))


class Lossy:
    """A bucket in memory that makes a put, and loses the reply; `after` is what happens before the next attempt."""

    def __init__(self, after: Any = None, *, made: bool = True) -> None:
        self.bucket: Any = MemoryStore()
        self.after = after
        self.made = made
        self.is_lossy = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bucket, name)

    def put(self, *arguments: Any, **options: Any) -> Any:
        if not self.is_lossy:
            return self.bucket.put(*arguments, **options)
        self.is_lossy = False
        if self.made:
            self.bucket.put(*arguments, **options)
        if self.after:
            self.after(self.bucket)
        raise GenericError("HTTP error: error sending request: kind: Request")


def client_of(lossy: Lossy) -> Client:
    place = place_of(MemoryStore(), endpoint=None, region=None, allow_http=False)
    client = Client(place._replace(bucket=lossy), 1.0)  # type: ignore[arg-type]
    assert client.put_if_absent("first", b"it answers")
    lossy.is_lossy = True
    return client


@pytest.mark.parametrize("made", [True, False])
def test_a_put_in_doubt_is_settled_by_the_object_itself(made: bool) -> None:
    client = client_of(Lossy(made=made))
    tag = client.put_if_absent("x", b"ours")
    assert client.get("x") == (b"ours", tag)
    assert client.put_if_absent("x", b"ours") is None, "a plain refusal stays one"


def test_a_put_in_doubt_that_another_has_replaced_is_an_unknown_outcome() -> None:
    client = client_of(Lossy(lambda bucket: bucket.put("x", b"theirs")))
    with pytest.raises(OutcomeUnknown):
        client.put_if_absent("x", b"ours")


def test_a_put_that_was_never_sent_is_no_doubt() -> None:
    class Unreachable(Lossy):
        def put(self, *arguments: Any, **options: Any) -> Any:
            if self.is_lossy:
                raise GenericError("HTTP error: error sending request: kind: Connect")
            return super().put(*arguments, **options)

    with pytest.raises(StoreUnavailable, match="no connection"):
        client_of(Unreachable()).put_if_absent("x", b"ours")
