"""An attacker who can write to the store, without its key: loaded data is never wrong, and other threads still work."""

from collections.abc import Callable, Iterator

from holdfast import sync
from holdfast.codec.keys import KeyRing
from holdfast.records.errors import Corrupt, Deleted, NotFound
from holdfast.records.head import Head
from holdfast.records.retention import Retention
from holdfast.records.rows import Row
from holdfast.testing.conformance.kit import needs_damage
from holdfast.testing.conformance.store_kit import StoreKit, raises
from holdfast.testing.forging import FIELDS, LEASE, Forger, changed, other, swap_blobs

KEY = b"k" * 32
THREAD = b"\0t"
PAGE = 300_000
ROWS = 5


def fill(store: sync.Store) -> None:
    """Save a thread with keyframes, deltas, blobs, labels and metadata, and a second thread."""
    store.save("t", {"yes": "A" * PAGE, "no": "B" * PAGE, "list": []}, labels={"app": "x"}, metadata={"n": 1})
    for number in range(3):
        store.append("t", "list", number)
    store.save("t", {"yes": "C" * PAGE, "no": "D" * PAGE, "list": []})
    store.save("beside", 1)


def _questions(store: sync.Store) -> Iterator[Callable[[], object]]:
    yield lambda: [(info.seq, info.metadata, info.journal) for info in store.history("t")]
    yield lambda: (store.thread("t").status, store.thread("t").labels, store.thread("t").pinned)
    for seq in range(1, ROWS + 1):
        yield lambda seq=seq: store.get("t", seq).state  # type: ignore[misc]


def _refused(store: sync.Store, right: list[object]) -> int:
    """Return how many questions are refused; the others must have the right answer."""
    refused = 0
    for question, answer in zip(_questions(store), right, strict=True):
        try:
            assert question() == answer, "something forged was loaded"
        except (Corrupt, NotFound):
            refused += 1
    return refused


class Forgery(StoreKit):
    """Test records changed by an attacker without the key, who recomputes every digest that needs none."""

    def forged(self, plant: Callable[[Forger], None]) -> int:
        """Return how many questions are refused with that planted, and restore everything."""
        store = self.store(keys=KEY)
        if store.latest("t") is None:
            fill(store)
        right = [question() for question in _questions(store)]
        forger = Forger(self.base, THREAD)
        plant(forger)
        refused = _refused(self.store(keys=KEY), right)
        assert not self.store(keys=KEY).verify().ok, "verify finds nothing wrong"
        forger.plant()
        assert _refused(self.store(keys=KEY), right) == 0
        return refused

    def test_every_field_of_a_head_is_authenticated(self) -> None:
        """Every field is authenticated, except the lease."""
        for name in sorted({*Head.__struct_fields__} - LEASE - {"format", "deleted"}):

            def plant(forger: Forger, name: str = name) -> None:
                forger.plant(**{name: other(getattr(forger.head, name))})

            assert self.forged(plant) > 0, f"{name} was forged"

    def test_every_field_of_a_rows_header_is_authenticated(self) -> None:
        """Keyframes and deltas are authenticated, wherever they are read."""
        for seq, name in ((seq, name) for seq in (1, 2, ROWS) for name in FIELDS):

            def plant(forger: Forger, seq: int = seq, name: str = name) -> None:
                forger.plant(forger.forged_rows(seq, changed(name)))

            assert self.forged(plant) > 0, f"{name} of row {seq} was forged"

    def test_blobs_cannot_change_places(self) -> None:
        """They can be swapped neither in the header of a row, nor in the store."""
        assert self.forged(lambda forger: forger.plant(forger.forged_rows(1, swap_blobs))) > 0
        assert self.forged(_exchange_blobs) > 0

    def test_bodies_cannot_change_places(self) -> None:
        """Each belongs to its row."""
        assert self.forged(_exchange_bodies) > 0


def _exchange_blobs(forger: Forger) -> None:
    one, two, *_ = sorted(forger.blobs)
    forger.plant(blobs={**forger.blobs, one: forger.blobs[two], two: forger.blobs[one]})


def _exchange_bodies(forger: Forger) -> None:
    rows = list(forger.rows)
    rows[1], rows[2] = _with_body(rows[1], rows[2].body), _with_body(rows[2], rows[1].body)
    forger.plant(rows)


def _with_body(row: Row, body: bytes) -> Row:
    return Row(row.seq, row.base, row.digest, row.header, body)


class Hostility(StoreKit):
    """Test damaged records in a store without keys."""

    def test_bytes_that_are_no_head_are_damage(self) -> None:
        """Reading raises `Corrupt`, never "not found", and the thread does not restart; other threads are unharmed."""
        for encoded in (b"\0", b"garbage", b"\xc0" * 64, bytes(300)):
            fill(self.store())
            Forger(self.base, THREAD).plant(encoded=encoded)
            store = self.store()
            for call in (store.latest, store.history, store.thread):
                raises(Corrupt, call, "t")
            raises(Corrupt, store.save, "t", 1)
            checkpoint = store.latest("beside")
            assert checkpoint is not None
            assert checkpoint.state == 1
            assert not store.verify().ok
            store.delete("t")
            store.revive("t")
            assert store.save("t", 1).seq == 1

    def test_a_damaged_head_is_listed_as_such(self) -> None:
        """Listings still return the other threads."""
        fill(self.store())
        Forger(self.base, THREAD).plant(encoded=b"garbage")
        self._others_are_served("t")

    @needs_damage
    def test_a_head_damaged_beneath_the_backend_is_listed_as_such(self) -> None:
        """The other threads are listed too, and `delete` removes the damaged one."""
        fill(self.store())
        self.damage(self.base, THREAD)
        shown = [info.thread_id for info in self.store().threads() if info.damaged]
        assert len(shown) == 1, "the damaged thread is not listed once"
        raises(Corrupt, self.store().latest, "t")
        raises(Corrupt, self.store().save, "t", 1)
        self._others_are_served(shown[0])

    def _others_are_served(self, damaged: str) -> None:
        """Check that a damaged thread is listed under this name, and that the others work, until it is deleted."""
        store = self.store()
        assert {info.thread_id: bool(info.damaged) for info in store.threads()} == {"beside": False, damaged: True}
        assert store.stats().statuses == {"idle": 1, "damaged": 1}
        assert sum(store.counts().values()) == 2
        assert store.prune(Retention(keep_last=1)).damaged == (damaged,)
        raises(Corrupt, store.backup, self.directory / "backup.db")
        store.delete("t")
        assert [info.thread_id for info in store.threads()] == ["beside"]
        raises(Deleted, store.save, "t", 1)
        store.revive("t")
        assert store.save("t", 1).seq == 1
        assert store.verify().ok

    def test_a_thread_under_another_key_stops_no_listing(self) -> None:
        """It is listed with the id of that key, without its labels; what needs no key still works."""
        fill(self.store(keys=KeyRing({"theirs": KEY}, "theirs")))
        store = self.store(keys=KeyRing({"ours": b"o" * 32}, "ours"))
        store.save("ours", 1, labels={"app": "x"})
        found = {info.thread_id: (info.sealed_by, info.labels, info.damaged) for info in store.threads()}
        hidden: tuple[str, dict[str, str], None] = ("theirs", {}, None)
        assert found == {"ours": (None, {"app": "x"}, None), "t": hidden, "beside": hidden}
        assert [info.thread_id for info in store.threads(labels={"app": "x"})] == ["ours"]
        assert store.stats().statuses == store.counts() == {"idle": 3}
        assert sorted(store.prune(Retention(keep_last=1)).damaged) == ["beside", "t"]
        store.backup(self.directory / "backup.db")
        store.delete("t")
        assert {info.thread_id for info in store.threads()} == {"ours", "beside"}

    def test_rows_without_digest_are_damage(self) -> None:
        """A row is loaded only with the digest it was written with."""
        fill(self.store())
        forger = Forger(self.base, THREAD)
        forger.plant([Row(row.seq, row.base, b"", row.header, row.body) for row in forger.rows])
        for seq in range(1, ROWS + 1):
            raises(Corrupt, self.store().get, "t", seq)
