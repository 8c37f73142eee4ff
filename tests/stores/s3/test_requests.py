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


def test_an_append_is_one_request_and_two_with_what_its_row_costs_later(proxy: Proxy) -> None:
    with opened(proxy, new_prefix()) as store:
        store.save("t", {"messages": []})
        before = proxy.turns
        for number in range(20):
            store.append("t", "messages", {"role": "user", "text": f"message {number} " * 20})
        assert proxy.turns - before == 20
        for number in range(20, 200):
            store.append("t", "messages", {"role": "user", "text": f"message {number} " * 20})
        assert proxy.turns - before <= 2.1 * 200


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
