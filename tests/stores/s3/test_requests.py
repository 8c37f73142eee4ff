"""What a store in a bucket costs in requests, counted on the wire."""

from collections.abc import Iterator

import pytest

from holdfast import sync
from servers.proxy import Proxy
from servers.s3 import new_prefix
from stores.s3.scenes import seaweed


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy(seaweed().port)
    yield made
    made.close()


def opened(proxy: Proxy, prefix: str) -> sync.Store:
    return sync.S3Store(seaweed().url(prefix, proxy.port))


def blob_count(prefix: str) -> int:
    return sum("/blobs/" in name for name in seaweed().names(prefix))


def test_no_append_takes_more_than_two_requests_and_one_for_each_blob_it_writes(proxy: Proxy) -> None:
    prefix, taken, blobs = new_prefix(), list[int](), 0
    with opened(proxy, prefix) as store:
        store.save("t", {"messages": []})
        for number in range(200):
            before = proxy.turns
            store.append("t", "messages", {"role": "user", "text": f"message {number} " * 20})
            taken.append(proxy.turns - before)
            if taken[-1] > 1:
                old, blobs = blobs, blob_count(prefix)
                assert taken[-1] <= 2 + blobs - old
    assert taken[:20] == [1] * 20
    assert max(taken) > 1, "rows left the head"
    assert sum(taken) <= 1.1 * 200


def test_an_older_checkpoint_is_few_requests(proxy: Proxy) -> None:
    prefix = new_prefix()
    with sync.S3Store(seaweed().url(prefix)) as store:
        store.save("t", {"messages": []})
        for number in range(90):
            store.append("t", "messages", f"message {number}")
    blobs = blob_count(prefix)
    with opened(proxy, prefix) as store:
        found = store.history("t", limit=100).items[60]
        before = proxy.turns
        assert len(store.load(found.id).state["messages"]) == found.seq - 1
        head, listing, rows = 1, 1, 1
        assert proxy.turns - before <= head + listing + rows + blobs


def test_a_save_of_a_new_thread_is_few_requests(proxy: Proxy) -> None:
    with opened(proxy, new_prefix()) as store:
        store.guarantee()
        store.save("first", 1)
        before = proxy.turns
        store.save("second", {"messages": ["hello"]})
        assert proxy.turns - before <= 4


def test_a_restore_of_a_thousand_steps_is_two_requests_and_parallel_gets(proxy: Proxy) -> None:
    prefix = new_prefix()
    with sync.S3Store(seaweed().url(prefix)) as store:
        store.save("t", {"messages": []})
        for number in range(1000):
            store.append("t", "messages", f"message {number}")
    with opened(proxy, prefix) as store:
        store.guarantee()
        store.latest("no such thread")
        before = proxy.turns
        latest = store.latest("t")
    assert latest is not None
    assert len(latest.state["messages"]) == 1000
    sequential, parallel = 1, 31
    assert proxy.turns - before <= sequential + parallel
