"""One flipped bit in the tables: the right data or an error, never wrong data, never "not there"."""

from collections.abc import Callable
from random import Random

import psycopg
import pytest

from holdfast import sync
from holdfast.codec.seal import Seal
from holdfast.history.binding import Binding
from rounds import rounds
from servers.postgres import new_schema, shared_server
from stores.damage_scenes import THREADS, answers, fill, judge
from stores.postgres.scenes import NOT_WAITING, store_in

FLIPS = rounds(20, 60)
COLUMNS = {
    "threads": ("key", "thread", "head"),
    "rows": ("key", "digest", "header", "body"),
    "blobs": ("key", "blob", "data"),
}

pytestmark = pytest.mark.faults

Connection = psycopg.Connection[tuple[object, ...]]


def flip(connection: Connection, schema: str, random: Random) -> Callable[[], object]:
    """Flip one bit of one value, somewhere in the tables; returns how to mend it."""
    places = [(table, column) for table, columns in COLUMNS.items() for column in columns]
    sizes = [
        int(str(connection.execute(f"SELECT sum(length({column})) FROM {schema}.{table}".encode()).fetchone()[0]))  # type: ignore[index]
        for table, column in places
    ]
    # Keys and names are few bytes among many: they are struck as often as the rest.
    table, column = random.choices(places, [max(size, sum(sizes) // 12) for size in sizes])[0]
    query = f"SELECT ctid, {column} FROM {schema}.{table} WHERE length({column}) > 0 ORDER BY ctid"
    place, value = random.choice(connection.execute(query.encode()).fetchall())
    assert isinstance(value, bytes)
    damaged = bytearray(value)
    damaged[random.randrange(len(value))] ^= 1 << random.randrange(8)
    update = f"UPDATE {schema}.{table} SET {column} = %s WHERE ctid = %s RETURNING ctid".encode()
    moved = connection.execute(update, (bytes(damaged), place)).fetchone()
    assert moved is not None
    return lambda: connection.execute(update, (value, moved[0]))


def flip_bits(count: int, seed: int = 11) -> int:
    """Flip one bit at a time; returns how many questions were refused in all."""
    schema, random, refused = new_schema(), Random(seed), 0
    conninfo = shared_server().conninfo(options=NOT_WAITING)
    with sync.PostgresStore(conninfo, schema, durability="process") as store:
        fill(store)
        right = answers(store)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for _ in range(count):
            mend = flip(connection, schema, random)
            refused += judge(lambda: sync.PostgresStore(conninfo, schema, durability="process"), right)
            mend()
    return refused


def test_no_flipped_bit_is_returned_as_data() -> None:
    refused = flip_bits(FLIPS)
    assert refused > FLIPS // 2, "many flips hit something"


def test_flipped_bits_are_found_where_digests_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same test must fail with an engine that checks nothing."""
    from holdfast.history import restore
    from holdfast.history.format import decode_header

    monkeypatch.setattr(restore, "verify_row", decode_header)
    monkeypatch.setattr(Binding, "unseal_blob", lambda self, blob, stored: Seal().unseal(stored, b"", record=""))
    with pytest.raises(Exception):  # noqa: B017, PT011  wrong data, or an error that is not ours
        flip_bits(FLIPS)


DAMAGES: list[tuple[str, str]] = [
    ("UPDATE {}.threads SET status = 'complete' WHERE status = 'failed'", "differs from its index"),
    ("UPDATE {}.threads SET labels = '{{}}'", "differs from its index"),
    ("DELETE FROM {}.threads WHERE status = 'failed'", "of no thread"),
]


@pytest.mark.parametrize(("sql", "words"), DAMAGES)
def test_verify_finds_what_a_listing_cannot(sql: str, words: str) -> None:
    schema = new_schema()
    with store_in(schema) as store:
        fill(store)
        assert store.verify().ok
        shared_server().execute(sql.format(schema))
        assert any(words in problem.message for problem in store.verify().problems)


@pytest.mark.parametrize("change", ["status = 'complete'", "labels = '{}'"])
def test_a_thread_that_differs_from_its_index_is_listed_as_damaged_and_can_be_deleted(change: str) -> None:
    schema = new_schema()
    with store_in(schema) as store:
        fill(store)
        shared_server().execute(f"UPDATE {schema}.threads SET {change} WHERE status = 'failed'")
        assert {info.thread_id for info in store.threads() if info.damaged} == {"beta"}
        assert len(list(store.threads())) == len(THREADS)
        assert store.stats().statuses == {"idle": 2, "damaged": 1}
        assert {problem.thread_id for problem in store.verify().problems} == {"", "beta"}
        store.delete("beta")
        assert store.verify().ok


LOSSES: list[Callable[[str], str]] = [
    lambda schema: f"DELETE FROM {schema}.threads",
    lambda schema: f"UPDATE {schema}.threads SET key = key || '\\x00'",
]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_thread_that_lost_its_head_is_not_taken_for_one_that_never_was(loss: Callable[[str], str]) -> None:
    schema = new_schema()
    with store_in(schema) as store:
        fill(store)
        shared_server().execute(loss(schema))
        for thread_id in THREADS:
            with pytest.raises(sync.Corrupt):
                store.latest(thread_id)
        assert store.latest("never was") is None


PLANTED: dict[str, str] = {
    "its own key was overwritten": "UPDATE {}.threads SET key = key || '\\x00' WHERE thread = '\\x0062657461'",
    "its row was removed": "DELETE FROM {}.threads WHERE thread = '\\x0062657461'",
    "its head was emptied": "UPDATE {}.threads SET head = '' WHERE thread = '\\x0062657461'",
    "its row has another name": "UPDATE {}.threads SET thread = '\\x006e6577' WHERE thread = '\\x0062657461'",
    "its row has no name": "UPDATE {}.threads SET thread = '\\x00ff' WHERE thread = '\\x0062657461'",
    "another row has its name": (
        "INSERT INTO {}.threads (key, thread, head, status, labels)"
        " SELECT '\\x00', thread, head, status, labels FROM {}.threads WHERE thread = '\\x0062657461'"
    ),
}


@pytest.mark.parametrize("damage", PLANTED)
@pytest.mark.parametrize("by_name", [True, False])
def test_what_is_under_a_wrong_key_stops_no_listing_and_can_be_deleted(damage: str, by_name: bool) -> None:
    """By the thread's own name, or by the one that is listed: if both are there, one after the other."""
    schema = new_schema()
    with store_in(schema) as store:
        fill(store)
        shared_server().execute(PLANTED[damage].replace("{}", schema))
    with store_in(schema) as store:
        others = set(THREADS) - {"beta"}
        assert others <= {info.thread_id for info in store.threads() if info.damaged is None}
        assert not store.verify().ok
        for thread_id in ("beta", *(info.thread_id for info in store.threads() if info.damaged))[not by_name :]:
            store.delete(thread_id)
        store.delete("beta")
        assert {info.thread_id for info in store.threads()} == others
        assert store.verify().ok
        if by_name:
            with pytest.raises(sync.Deleted):
                store.save("beta", 1)
            store.revive("beta")
        assert store.save("new", 1).seq == 1


def test_delete_leaves_what_is_under_a_wrong_key_in_another_namespace() -> None:
    schema = new_schema()
    conninfo = shared_server().conninfo()
    with store_in(schema) as mine, sync.PostgresStore(conninfo, schema=schema, namespace="other") as other:
        other.save("beta", "not mine")
        mine.save("alpha", 1)
        moved = f"UPDATE {schema}.threads SET key = key || '\\x00' WHERE thread = '\\x056f7468657262657461'"
        shared_server().execute(moved)
        mine.delete("beta")
        assert [info.thread_id for info in other.threads()] == ["beta"]
        other.delete("beta")
        other.delete("beta")
        assert list(other.threads()) == []
