"""Namespaces share nothing, ids are exact, keys hide everything but ids, and events report what happens."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.codec.keys import KeyRing
from holdfast.records.errors import ConfigurationError, Corrupt, InvalidId, KeyUnavailable, StoreClosed
from holdfast.records.event import Event
from holdfast.records.retention import Retention
from holdfast.stores.backend import Backend
from holdfast.testing.conformance.store_kit import EVERYTHING, StoreKit, raises, seqs
from holdfast.testing.exact import assert_exact

CANARY = "canary-in-the-mine"
HOSTILE_IDS = (
    *("../x", "a/b", "/etc/passwd", ".", "..", "a\0b", "\0", "a", "A", "a ", " a", "a\n", "a%2Fb", "con", "~", "-rf"),
    *("\u00e9", "e\u0301", "\u0430", "\U0001f600", "\ufeff", "\u202e", "'; drop table heads; --", "x" * 512),
    *("ü" * 256, "@", "a@1.00000000", "*", "{a}", "\\", "a:b", '"'),
)


class Isolation(StoreKit):
    """Test namespaces and ids."""

    def test_two_namespaces_share_nothing(self) -> None:
        """They share no threads, labels, prunes or deletes."""
        names = ("", "n", "nn", "a/b", "\0")
        stores = [self.store(namespace=name) for name in names]
        for name, store in zip(names, stores, strict=True):
            store.save("t", name, labels={"app": "x"})
            store.save("t", name)
        stores[0].delete("t")
        stores[1].prune(Retention(keep_last=1))
        assert stores[0].latest("t") is None
        assert seqs(stores[1], "t") == [2]
        for name, store in list(zip(names, stores, strict=True))[2:]:
            assert [store.get("t", seq).state for seq in seqs(store, "t")] == [name, name]
            assert len(store.threads(labels={"app": "x"})) == 1
            assert store.stats().threads == 1

    def test_ids_are_exact(self) -> None:
        """Each id is its own thread, however similar two look."""
        store = self.store()
        for thread_id in HOSTILE_IDS:
            assert store.latest(thread_id) is None
            store.save(thread_id, {"id": thread_id})
        for thread_id in HOSTILE_IDS:
            checkpoint = store.save(thread_id, {"id": thread_id, "more": 1})
            assert (checkpoint.seq, checkpoint.thread_id) == (2, thread_id)
            assert store.load(checkpoint.id).state["id"] == thread_id
        assert {info.thread_id for info in store.threads(limit=1000)} == set(HOSTILE_IDS)

    def test_ids_that_no_store_can_keep_are_refused(self) -> None:
        """Empty, too long, or not text raises `InvalidId`, which is also a ValueError."""
        store = self.store()
        for thread_id in ("", "x" * 513, "ü" * 257, "lone \ud800", None, 5, b"bytes"):
            for call in _calls_with(store, thread_id):
                assert isinstance(raises(InvalidId, call), ValueError)
        assert list(store.threads()) == []

    def test_names_of_namespaces_have_bounds_too(self) -> None:
        """A name has up to 128 bytes of text."""
        assert list(self.store(namespace="n" * 128).threads()) == []
        for name in ("n" * 129, "\ud800", 5):
            raises(InvalidId, self.store, namespace=name)  # type: ignore[arg-type]


def _calls_with(store: Any, thread_id: Any) -> list[Callable[[], object]]:
    return [
        lambda: store.save(thread_id, 1),
        lambda: store.append(thread_id, "a", 1),
        lambda: store.latest(thread_id),
        lambda: store.get(thread_id, 1),
        lambda: store.history(thread_id),
        lambda: store.thread(thread_id),
        lambda: store.delete(thread_id),
        lambda: store.revive(thread_id),
        lambda: store.erase(thread_id),
        lambda: store.export(thread_id, "never-written"),
    ]


def stored_bytes(backend: Backend) -> Iterator[bytes]:
    """Return everything a backend holds of all threads, as one would find it in the raw store."""
    for thread, head in backend.threads(b"", (), (), None, 10_000).heads:
        yield head
        for entry in backend.index(thread, None, None):
            for row in backend.rows(thread, entry.seq):
                yield row.header + row.body
        yield from backend.inbox(thread).values()


class Encryption(StoreKit):
    """Test what `keys` promises."""

    def test_an_encrypted_store_is_as_good_as_a_plain_one(self) -> None:
        """Everything is returned, and verifies."""
        store = self.store(keys=b"k" * 32)
        for number in range(20):
            store.save("t", {**EVERYTHING, "n": number, "large": f"{number}" * 3000}, metadata={"n": number})
        other = self.store(keys=b"k" * 32)
        for number in range(20):
            checkpoint = other.get("t", number + 1)
            assert_exact({**EVERYTHING, "n": number, "large": f"{number}" * 3000}, checkpoint.state)
            assert checkpoint.metadata == {"n": number}
        assert store.verify().ok

    def test_nothing_readable_is_stored(self) -> None:
        """State, metadata, labels and idempotency keys are not readable."""
        store = self.store(keys=b"k" * 32)
        state = {"text": CANARY, CANARY: 1, "list": [CANARY] * 300, "bytes": CANARY.encode()}
        store.save("t", state, metadata={"m": CANARY}, labels={"user": CANARY}, idempotency_key=CANARY)
        store.append("t", "list", CANARY)
        assert [info.thread_id for info in store.threads(labels={"user": CANARY})] == ["t"]
        for data in stored_bytes(self.base):
            assert CANARY.encode() not in data

    def test_the_wrong_key_is_no_key(self) -> None:
        """Without the key, or with another, reading raises `KeyUnavailable`; nothing is reported as missing."""
        self.store(keys=b"k" * 32).save("t", {"a": 1}, labels={"app": "x"})
        for store in (self.store(), self.store(keys=b"x" * 32)):
            for call in _reads(store):
                raises(KeyUnavailable, call)
            raises(KeyUnavailable, store.save, "t", 2)
            assert not store.verify().ok

    def test_plain_text_is_refused_where_keys_are(self) -> None:
        """Reading raises `Corrupt`: an attacker without the key must not be able to plant a thread."""
        self.store().save("t", {"a": 1})
        store = self.store(keys=b"k" * 32)
        for call in _reads(store)[:3]:
            raises(Corrupt, call)
        raises(Corrupt, store.save, "t", 2)

    def test_keys_can_be_rotated(self) -> None:
        """Old keys read until the rotation; afterwards the new one is enough, for labels too."""
        old, new = b"o" * 32, b"n" * 32
        store = self.store(keys=KeyRing({"old": old}, "old"))
        for number in range(5):
            store.save(f"t{number}", {"n": number}, labels={"app": "x"})
        both = self.store(keys=KeyRing({"old": old, "new": new}, "new"))
        both.save("t0", {"n": 0, "more": True})
        both.save("t5", {"n": 5}, labels={"app": "x"})
        assert len(both.threads(labels={"app": "x"})) == 6
        assert both.rotate() == 5
        assert both.rotate() == 0
        only_new = self.store(keys=KeyRing({"new": new}, "new"))
        assert len(only_new.threads(labels={"app": "x"})) == 6
        for number in range(6):
            latest = only_new.latest(f"t{number}")
            assert latest is not None
            assert latest.state["n"] == number
        assert only_new.verify().ok
        raises(KeyUnavailable, self.store(keys=KeyRing({"old": old}, "old")).latest, "t1")
        raises(ConfigurationError, self.store().rotate)


def _reads(store: Any) -> list[Callable[[], object]]:
    return [
        lambda: store.latest("t").state,
        lambda: store.get("t", 1).state,
        lambda: store.history("t").items,
    ]


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the log entry of a failing listener out of the output."""
    logger = logging.getLogger("holdfast")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was


class Living(StoreKit):
    """Test events, closing, and what the store says about itself."""

    def test_events_report_what_happens(self) -> None:
        """Every listener gets them in order until it unsubscribes; one that fails changes nothing."""
        store = self.store()
        heard: list[Event] = []

        def fails(event: Event) -> None:
            raise RuntimeError(event.kind)

        store.on_event(fails)
        unsubscribe = store.on_event(heard.append)
        with _silence():
            checkpoint = store.save("t", 1)
            store.fork(checkpoint.id, "f")
            store.pin(checkpoint.id)
            store.delete("f")
            store.revive("f")
            unsubscribe()
            unsubscribe()
            store.save("t", 2)
        assert [(event.kind, event.thread_id) for event in heard] == [
            ("saved", "t"),
            ("forked", "f"),
            ("pinned", "t"),
            ("deleted", "f"),
            ("revived", "f"),
        ]

    def test_after_close_every_call_raises_store_closed(self) -> None:
        """Closing again does nothing."""
        store = self.store()
        checkpoint = store.save("t", 1)
        store.close()
        store.close()
        calls: list[Callable[[], object]] = [
            *_calls_with(store, "t"),
            lambda: store.load(checkpoint.id),
            store.threads,
            lambda: store.fork(checkpoint.id),
            lambda: store.diff(checkpoint.id, checkpoint.id),
            lambda: store.pin(checkpoint.id),
            lambda: store.delete_checkpoint(checkpoint.id),
            lambda: store.prune(Retention(keep_last=1)),
            store.stats,
            store.verify,
            store.guarantee,
            lambda: store.import_("file"),
            lambda: store.backup("file"),
            store.rotate,
        ]
        for call in calls:
            raises(StoreClosed, call)
        latest = self.store().latest("t")
        assert latest is not None
        assert latest.state == 1

    def test_a_store_says_what_it_guarantees(self) -> None:
        """It returns the guarantee of its backend."""
        assert self.store().guarantee() == self.base.guarantee()
