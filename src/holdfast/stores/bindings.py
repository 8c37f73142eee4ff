"""How one store handle binds, seals and names a thread's bytes: its namespace, compression, keys and label tokens."""

from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256

import msgspec

from holdfast.codec import decode, encode
from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import DEFAULT, Limits
from holdfast.codec.seal import Seal
from holdfast.history.binding import SUMMARY, Binding
from holdfast.records.errors import CodecError, Corrupt, IncompatibleCheckpoint, KeyUnavailable
from holdfast.records.head import AUTHENTICATED_FROM, INCARNATION_BYTES, Head
from holdfast.records.identity import namespace_prefix, thread_id_of, thread_key
from holdfast.records.ranges import Count, RequestNumber

DATA_KEY_BYTES = 32
ROUTE_BYTES = 8


class Summary(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The sealed part of a head, in its stored order: labels, the error of a failed thread, its open requests.

    The last two are stored for a thread that has a place in the agenda.
    """

    labels: dict[str, str] = {}
    error: str | None = None
    requests: tuple[RequestNumber, ...] = ()
    function: str = ""
    version: Count = 0


class Bindings:
    """Makes the binding of each thread. Holds what belongs to a handle rather than to a backend."""

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
        self.key = partial(thread_key, self.prefix)
        """The key of a thread id in this namespace."""
        self.ring = ring
        self.compress = compress
        self._entropy = entropy
        self.limits = limits
        self._plain = Seal(compress=compress, limits=limits)

    def new_life(self, thread: bytes) -> tuple[Binding, bytes]:
        """Return a binding for a thread's first row, and the wrapped data key for its head."""
        return self.life(thread, self._entropy(INCARNATION_BYTES))

    def beginning(self, thread: bytes, head: Head) -> tuple[Binding, bytes]:
        """As `new_life`, for a thread without rows: its life is that of the claim that began it, if one did."""
        if not head.incarnation:
            return self.new_life(thread)
        try:
            return self.binding(thread, head), head.data_key
        except (KeyUnavailable, Corrupt):
            return self.new_life(thread)  # the keys are others by now, and nothing was stored under the old ones

    def life(self, thread: bytes, incarnation: bytes) -> tuple[Binding, bytes]:
        """Return a binding for a given incarnation under a new data key, and that key wrapped."""
        if self.ring is None:
            return Binding(thread, incarnation, self._plain), b""
        data_key = self._entropy(DATA_KEY_BYTES)
        wrapped = self.ring.wrap(data_key, thread + incarnation, self._entropy)
        return Binding(thread, incarnation, self._encrypting(data_key)), wrapped

    def binding(self, thread: bytes, head: Head) -> Binding:
        """Return the binding of a thread that exists. With a key this authenticates its head."""
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
        """Return the head's data key under the ring's writer key; unchanged if it is already."""
        if self.ring is None:
            return head.data_key
        return self.ring.rewrap(head.data_key, thread + head.incarnation, self._entropy)

    def seal_summary(self, binding: Binding, summary: Summary) -> bytes:
        """Return the summary as a head keeps it; empty if it says nothing."""
        if summary == Summary():
            return b""
        place = [summary.function, summary.version] if summary.function else []
        return binding.seal(encode([summary.labels, summary.error, list(summary.requests), *place]), 0, SUMMARY)

    def read_summary(self, binding: Binding, head: Head) -> Summary:
        """Return the summary in a head; `Corrupt` if a field is not of its type."""
        if not head.summary:
            return Summary()
        data = binding.unseal(head.summary, 0, SUMMARY)
        try:
            return msgspec.convert(decode(data), Summary)
        except (CodecError, msgspec.MsgspecError, ValueError) as error:
            name = f"head of {binding.thread_id!r}"
            raise Corrupt(f"{name} is damaged: its summary cannot be read: {error}", record=name) from error

    def label_tokens(self, labels: Mapping[str, str]) -> tuple[bytes, ...]:
        """Return the tokens by which a head with these labels is found."""
        token = _plain_token if self.ring is None else self.ring.label_token
        return tuple(sorted(token(name, value) for name, value in labels.items()))

    def label_choices(self, labels: Mapping[str, str]) -> list[list[bytes]]:
        """Return, for each label to look for, the tokens it may be stored under (one per key of the ring)."""
        if self.ring is None:
            return [[_plain_token(name, value)] for name, value in labels.items()]
        return [list(self.ring.label_tokens(name, value)) for name, value in labels.items()]

    def routes(self, function: str, version: int) -> list[bytes]:
        """Return the routes that threads of this version of a function may have: the one to write first."""
        if self.ring is None:
            return [sha256(encode([function, version])).digest()[:ROUTE_BYTES]]
        return self.ring.routes(function, version)

    def _encrypting(self, data_key: bytes) -> Seal:
        return Seal(compress=self.compress, key=data_key, entropy=self._entropy, limits=self.limits)


def authenticated(binding: Binding, head: Head) -> Binding:
    """Return the binding of that head; `Corrupt` if it was changed without its key. Plain heads are not checked."""
    from hmac import compare_digest

    if not compare_digest(binding.signed(head).mac, head.mac):
        name = f"head of {binding.thread_id!r}"
        raise Corrupt(f"{name} was not written by a holder of its key", record=name)
    return binding


def _plain_token(name: str, value: str) -> bytes:
    return encode([name, value])
