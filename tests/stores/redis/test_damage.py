"""Bit flips anywhere in what Redis keeps: the right data or an error, never wrong data, never "not there"."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from holdfast import sync
from holdfast.stores.redis.keys import shard_of
from holdfast.stores.redis.repair import Repair
from holdfast.testing.conformance.samples import Line, head, key, rows
from rounds import rounds
from servers.redis import new_prefix, shared_server
from stores.damage_scenes import answers, fill, judge
from stores.redis.scenes import backend_in, store_in

FLIPS = rounds(12, 80)
FLIPS_OF_A_HEAD = rounds(5, 20)

pytestmark = pytest.mark.faults


@pytest.fixture
def client() -> Iterator[Any]:
    with shared_server().client() as opened:
        yield opened


@pytest.fixture
def prefix() -> str:
    name = new_prefix()
    with store_in("server", name) as store:
        fill(store)
    return name


def flipped(data: bytes, random: Random) -> bytes:
    damaged = bytearray(data)
    damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def test_no_flipped_bit_of_a_thread_is_returned_as_data(client: Any, prefix: str) -> None:
    random, refused = Random(11), 0
    with store_in("server", prefix) as store:
        right = answers(store)
    fields = [
        (name, field, value)
        for name in sorted(client.scan_iter(f"{prefix}:*", _type="HASH"))
        for field, value in sorted(client.hgetall(name).items())
    ]
    for _ in range(FLIPS):
        name, field, value = random.choices(fields, [len(value) for *_, value in fields])[0]
        client.hset(name, field, flipped(value, random))
        refused += judge(lambda: store_in("server", prefix), right)
        client.hset(name, field, value)
    assert refused > FLIPS, "a flip is met by several questions"


@pytest.mark.parametrize("field", [b"h", b"t"])
def test_no_flipped_bit_of_what_is_known_of_a_thread_is_returned_as_data(
    client: Any, prefix: str, field: bytes
) -> None:
    random = Random(12)
    with store_in("server", prefix) as store:
        right = answers(store)
    for name in sorted(client.scan_iter(f"{prefix}:*:t*")):
        value = client.hget(name, field)
        for _ in range(FLIPS_OF_A_HEAD if value else 0):
            client.hset(name, field, flipped(value, random))
            judge(lambda: store_in("server", prefix), right)
            client.hset(name, field, value)


def test_no_thread_vanishes_from_a_damaged_listing(client: Any, prefix: str) -> None:
    random, refused = Random(13), 0
    with store_in("server", prefix) as store:
        right = answers(store)
    listings = sorted(client.scan_iter(f"{prefix}:*", _type="ZSET"))
    for _ in range(rounds(20, 60)):
        listing = random.choice(listings)
        member = random.choice(client.zrange(listing, 0, -1))
        damaged = flipped(member, random)
        client.zrem(listing, member)
        client.zadd(listing, {damaged: 0})
        refused += judge(lambda: store_in("server", prefix), right)
        client.zrem(listing, damaged)
        client.zadd(listing, {member: 0})
    assert refused > 10


def test_a_check_finds_a_thread_that_is_not_listed(client: Any, prefix: str) -> None:
    backend = backend_in("server", prefix)
    backend.open()
    assert backend.check() == []
    listing = min(client.scan_iter(f"{prefix}:*", _type="ZSET"))
    member = client.zrange(listing, 0, -1)[0]
    client.zrem(listing, member)
    assert any("missing in the listing" in problem for problem in backend.check())
    client.zadd(listing, {member: 0, member[:8] + b"\x00ghost": 0})
    assert any("heads name it" in problem for problem in backend.check())
    backend.close()


def test_a_listed_thread_that_is_not_there_is_listed_as_damaged_beside_the_others(client: Any, prefix: str) -> None:
    client.delete(next(iter(client.scan_iter(f"{prefix}:*:t*alpha"))))
    with store_in("server", prefix) as store:
        assert {info.thread_id: info.damaged is None for info in store.threads()} == {
            "alpha": False,
            "beta": True,
            "gamma/δ": True,
        }
        assert "alpha" in {problem.thread_id for problem in store.verify().problems}


def test_a_key_that_holds_something_else_is_damage(client: Any, prefix: str) -> None:
    name = next(iter(client.scan_iter(f"{prefix}:*:t*alpha")))
    client.delete(name)
    client.set(name, "something else")
    with store_in("server", prefix) as store:
        with pytest.raises(sync.Corrupt):
            store.latest("alpha")
        with pytest.raises(sync.Corrupt):
            store.save("alpha", 1)


def test_a_damaged_thread_does_not_fail_what_is_saved_beside_it(client: Any) -> None:
    prefix = new_prefix()
    backend = backend_in("server", prefix)
    backend.open()
    sound, damaged = sorted((Line(backend, key(name)) for name in "ab"), key=lambda line: line.key)
    client.set(backend.keys.thread(shard_of(damaged.key), damaged.key), "something else")
    both = [line.swap(head(1), rows(1)) for line in (sound, damaged)]
    with pytest.raises(sync.OutcomeUnknown):
        backend.swap(both)
    assert sound.encoded == both[0].replacement, "it was made, so nobody may say that it was not"
    client.set(backend.keys.thread(shard_of(sound.key), sound.key), "something else")
    with pytest.raises(sync.StoreUnavailable):
        backend.swap(both)
    backend.close()


def plant(client: Any, prefix: str, damage: str) -> None:
    """Damage the thread `beta`, or plant an entry of its name."""
    thread = b"\0beta"
    shard = shard_of(thread)
    listing = f"{prefix}:{{{shard}}}:i".encode() + b"\0*"
    place = f"{prefix}:{{{shard}}}:t".encode() + thread
    elsewhere = f"{prefix}:{{{(shard + 1) % 64}}}:".encode()
    member = next(each for each in client.zrange(listing, 0, -1) if each.endswith(thread))
    if damage == "another type":
        client.delete(place)
        client.set(place, "text")
    elif damage == "another thread's head":
        client.hset(place, "h", client.hget(f"{prefix}:{{{shard_of(b'%calpha' % 0)}}}:t".encode() + b"\0alpha", "h"))
    elif damage == "listed twice":
        client.zadd(listing, {bytes(8) + thread: 0})
    elif damage == "listed in another shard":
        client.zadd(elsewhere + b"i\0*", {member: 0})
        client.zadd(elsewhere + b"i\0sidle", {member: 0})
        client.hset(elsewhere + b"t" + thread, "h", client.hget(place, "h"))
    elif damage == "a name that is none":
        client.zadd(listing, {bytes(8) + b"\xff\xfe": 0})
    else:
        client.delete(place)


DAMAGES = [
    "another type",
    "another thread's head",
    "listed twice",
    "listed in another shard",
    "a name that is none",
    "removed",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_planted_in_a_listing_stops_no_listing_and_can_be_deleted(
    client: Any, prefix: str, damage: str
) -> None:
    plant(client, prefix, damage)
    with store_in("server", prefix) as store:
        assert {"alpha", "gamma/δ"} <= {info.thread_id for info in store.threads() if info.damaged is None}
        damaged = [info.thread_id for info in store.threads() if info.damaged is not None]
        assert len(damaged) == 1
        assert store.stats().threads == len(store.threads())
        assert not store.verify().ok
        for thread_id in ("beta", *damaged):
            store.delete(thread_id)
        assert {info.thread_id for info in store.threads()} == {"alpha", "gamma/δ"}
        assert store.verify().ok


def test_a_thread_that_is_made_while_its_id_is_deleted_stays_listed(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_members = Repair._members

    def make_it_meanwhile(*given: Any) -> Any:
        with store_in("server", prefix) as other:
            other.save("new", 1)
        return read_members(*given)

    monkeypatch.setattr(Repair, "_members", make_it_meanwhile)
    with store_in("server", prefix) as store:
        store.delete("new")
        assert "new" in {info.thread_id for info in store.threads()}
        assert store.verify().ok
