"""How one store handle turns a thread's bytes into stored bytes: its namespace, compression, keys and label tokens."""

from collections.abc import Callable, Mapping

import msgspec

from holdfast.codec import encode
from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import DEFAULT, Limits
from holdfast.codec.seal import Seal
from holdfast.history.binding import SUMMARY, Binding
from holdfast.records.errors import Corrupt, IncompatibleCheckpoint, KeyUnavailable
from holdfast.records.head import AUTHENTICATED_FROM, Head
from holdfast.records.identity import namespace_prefix, thread_id_of, thread_key
from holdfast.stores.summary_checks import read_fields

DATA_KEY_BYTES = 32
INCARNATION_BYTES = 16


class Summary(msgspec.Struct, frozen=True):
    """What a head says in words, sealed: labels, the error of a failed thread, its open requests."""

    labels: dict[str, str] = {}
    error: str | None = None
    requests: tuple[str, ...] = ()


class Sealing:
    """Everything about bytes that belongs to a handle rather than to a backend."""

    def __init__(
        self,
        namespace: str,
        ring: KeyRing | None,
        entropy: Callable[[int], bytes],
        *,
        compress: bool = True,
        limits: Limits = DEFAULT,
    ) -> None:
        self.namespace = namespace
        self.prefix = namespace_prefix(namespace)
        self.ring = ring
        self._compress = compress
        self._entropy = entropy
        self.limits = limits
        self._plain = Seal(compress=compress, limits=limits)

    def key(self, thread_id: str) -> bytes:
        """The thread's key in this namespace."""
        return thread_key(self.prefix, thread_id)

    def new_life(self, thread: bytes) -> tuple[Binding, bytes]:
        """A binding for a thread's first row, and the wrapped data key for its head."""
        incarnation = self._entropy(INCARNATION_BYTES)
        return self.life(thread, incarnation)

    def beginning(self, thread: bytes, head: Head) -> tuple[Binding, bytes]:
        """As `new_life`, for a thread without rows: its life is that of the claim that began it, if one did."""
        if not head.incarnation:
            return self.new_life(thread)
        try:
            return self.binding(thread, head), head.data_key
        except (KeyUnavailable, Corrupt):
            return self.new_life(thread)  # other keys by now, and nothing that was stored under the old ones

    def life(self, thread: bytes, incarnation: bytes) -> tuple[Binding, bytes]:
        """A binding for a given incarnation under a new data key, and that key wrapped."""
        if self.ring is None:
            return Binding(thread, incarnation, self._plain), b""
        data_key = self._entropy(DATA_KEY_BYTES)
        wrapped = self.ring.wrap(data_key, thread + incarnation, self._entropy)
        return Binding(thread, incarnation, self._encrypting(data_key)), wrapped

    def binding(self, thread: bytes, head: Head) -> Binding:
        """The binding of a thread that exists. With a key this authenticates its head."""
        if self.ring is None:
            if head.data_key:
                raise KeyUnavailable(f"thread {thread_id_of(thread)!r} is encrypted; open the store with keys=")
            return Binding(thread, head.incarnation, self._plain)
        if not head.data_key:
            name = thread_id_of(thread)
            raise Corrupt(
                f"thread {name!r} is stored in plain text, which a store opened with keys refuses", record=name
            )
        if head.format < AUTHENTICATED_FROM:
            raise IncompatibleCheckpoint(
                f"thread {thread_id_of(thread)!r} was encrypted before keys authenticated heads and headers;"
                " export it with the version that wrote it, and import the bundle"
            )
        data_key = self.ring.unwrap(head.data_key, thread + head.incarnation)
        return authenticated(Binding(thread, head.incarnation, self._encrypting(data_key)), head)

    def rewrapped(self, thread: bytes, head: Head) -> bytes:
        """The head's data key under the ring's writer key; unchanged if it is already."""
        if self.ring is None:
            return head.data_key
        return self.ring.rewrap(head.data_key, thread + head.incarnation, self._entropy)

    def seal_summary(self, binding: Binding, summary: Summary) -> bytes:
        """The summary for a head; empty if there is nothing to say."""
        if summary == Summary():
            return b""
        return binding.seal(encode([summary.labels, summary.error, list(summary.requests)]), 0, SUMMARY)

    def read_summary(self, binding: Binding, head: Head) -> Summary:
        """The summary in a head."""
        if not head.summary:
            return Summary()
        fields = read_fields(binding.thread_id, binding.unseal(head.summary, 0, SUMMARY))
        return Summary(fields.labels, fields.error, fields.requests)

    def label_tokens(self, labels: Mapping[str, str]) -> tuple[bytes, ...]:
        """What a head carries for its labels to be found by."""
        if self.ring is None:
            return tuple(sorted(_plain_token(name, value) for name, value in labels.items()))
        return tuple(sorted(self.ring.label_token(name, value) for name, value in labels.items()))

    def label_choices(self, labels: Mapping[str, str]) -> list[list[bytes]]:
        """For each label looked for, the tokens it may have been stored under (one per key of the ring)."""
        if self.ring is None:
            return [[_plain_token(name, value)] for name, value in labels.items()]
        return [list(self.ring.label_tokens(name, value)) for name, value in labels.items()]

    def _encrypting(self, data_key: bytes) -> Seal:
        return Seal(compress=self._compress, key=data_key, entropy=self._entropy, limits=self.limits)


def authenticated(binding: Binding, head: Head) -> Binding:
    """The binding of that head; `Corrupt` if somebody without the key changed it. Without a key nothing is checked."""
    from hmac import compare_digest

    if not compare_digest(binding.signed(head).mac, head.mac):
        name = f"head of {binding.thread_id!r}"
        raise Corrupt(f"{name} was not written by a holder of its key", record=name)
    return binding


def _plain_token(name: str, value: str) -> bytes:
    return encode([name, value])
