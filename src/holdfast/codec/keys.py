"""The key ring: named keys that wrap the data key of each thread, and hide labels in indexes.

A wrapped data key names the key that wrapped it. So a ring can hold old keys for reading while a new one writes, and a
rotation only has to wrap the data keys again. A check value identifies the key, so it unwraps under any id.
"""

from collections.abc import Mapping
from os import urandom
from typing import Any, Final, NoReturn

from holdfast.codec.seal import KEY_SIZE, NONCE_SIZE, Entropy, cipher, decrypt, derived, keyed_digest
from holdfast.records.errors import ConfigurationError, Corrupt, KeyUnavailable

_LONGEST_ID: Final = 64
_CHECK_SIZE: Final = 4
_TOKEN_SIZE: Final = 16
_ROUTE_SIZE: Final = 8


class KeyRing:
    """Keys of 32 bytes by id, and the id of the one that writes; the others only read. Immutable, and shows no key.

    Ids are stored in plain text. If a key is lost, what it wrapped is lost.
    """

    __slots__ = ("_keys", "_labels", "write")

    write: str
    _keys: dict[str, bytes]
    _labels: dict[str, bytes]

    def __init__(self, keys: Mapping[str, bytes], write: str) -> None:
        if not isinstance(keys, Mapping):
            raise ConfigurationError("`keys` must map ids to keys: KeyRing({'2026': key}, write='2026')")
        for key_id, key in keys.items():
            _check(key_id, key)
        chosen: Any = write
        if not isinstance(chosen, str) or chosen not in keys:
            raise ConfigurationError(f"`write` must be the id of a key in the ring ({sorted(keys)}), got {write!r}")
        labels = {key_id: derived(key, b"labels") for key_id, key in keys.items()}
        for name, value in (("_keys", dict(keys)), ("_labels", labels), ("write", write)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a key ring is immutable; make a new one instead of setting {name}")

    def __repr__(self) -> str:
        return f"KeyRing({self.ids}, write={self.write!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key ring is never pickled or copied: it holds keys")

    @classmethod
    def generate(cls, name: str | None = None) -> "KeyRing":
        """Return a ring with one new random key, named after its fingerprint by default.

        Only here does the codec draw random bytes itself: a key from an injected, predictable source would be unsafe.
        """
        key = urandom(KEY_SIZE)
        return cls({name or _fingerprint(key): key}, name or _fingerprint(key))

    @classmethod
    def of(cls, value: "KeyRing | bytes") -> "KeyRing":
        """Return a ring unchanged, or a ring of one key, named after its fingerprint."""
        if isinstance(value, KeyRing):
            return value
        given: Any = value
        if not isinstance(given, bytes) or len(given) != KEY_SIZE:
            raise ConfigurationError(f"`keys` must be a KeyRing or {KEY_SIZE} bytes")
        return cls({_fingerprint(given): given}, _fingerprint(given))

    @property
    def ids(self) -> list[str]:
        """The ids of the keys, sorted."""
        return sorted(self._keys)

    def key(self, key_id: str) -> bytes:
        """Return a key by its id, to be kept in a safe place; raises KeyUnavailable."""
        if key_id not in self._keys:
            raise KeyUnavailable(f"the key ring has no key {key_id!r}; it has {self.ids}", key_id=key_id)
        return self._keys[key_id]

    def wrap(self, data_key: bytes, identity: bytes, entropy: Entropy) -> bytes:
        """Encrypt a thread's data key under the writing key, bound to the thread's identity."""
        head, nonce = self._head(), entropy(NONCE_SIZE)
        sealed: bytes = cipher(self._keys[self.write]).encrypt(nonce, data_key, head + identity)
        return head + nonce + sealed

    def unwrap(self, wrapped: bytes, identity: bytes) -> bytes:
        """Return the data key. Raises KeyUnavailable if the ring lacks the key that wrapped it, Corrupt if damaged."""
        end = 1 + sum(wrapped[:1]) + _CHECK_SIZE
        key = self._opener(wrapped[end - _CHECK_SIZE : end], self.wrapped_by(wrapped))
        data_key = decrypt(cipher(key), wrapped[end:], wrapped[:end] + identity)
        if data_key is None:
            raise Corrupt("the wrapped data key is damaged, or belongs to another thread", record="data key")
        return data_key

    def _opener(self, check: bytes, key_id: str) -> bytes:
        """Return the key with this check value, trying that id first: the same key may have another id elsewhere."""
        named = self._keys.get(key_id)
        for key in (*filter(None, (named,)), *self._keys.values()):
            if derived(key, b"check")[:_CHECK_SIZE] == check:
                return key
        if named is None:
            return self.key(key_id)
        raise KeyUnavailable(
            f"the key {key_id!r} in the ring is not the key that was used under this id", key_id=key_id
        )

    def _head(self) -> bytes:
        """Return the first bytes of a data key that the writing key wrapped: its id and check value."""
        name = self.write.encode()
        return bytes((len(name),)) + name + derived(self._keys[self.write], b"check")[:_CHECK_SIZE]

    def rewrap(self, wrapped: bytes, identity: bytes, entropy: Entropy) -> bytes:
        """Return the data key wrapped by the writing key; the same bytes if it already is."""
        data_key = self.unwrap(wrapped, identity)
        return wrapped if wrapped.startswith(self._head()) else self.wrap(data_key, identity, entropy)

    @staticmethod
    def wrapped_by(wrapped: bytes) -> str:
        """Return the id of the key that wrapped a data key."""
        name = wrapped[1 : 1 + wrapped[0]] if wrapped else b""
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise Corrupt("the wrapped data key is damaged", record="data key") from error

    def label_token(self, name: str, value: str) -> bytes:
        """Return what an index holds instead of a label: it can only be computed with the key, and never read."""
        return _token(self._labels[self.write], name, value)

    def label_tokens(self, name: str, value: str) -> list[bytes]:
        """Return the tokens of a label under every key of the ring, that of the writing key first."""
        return [_token(self._labels[key_id], name, value) for key_id in self._writer_first()]

    def routes(self, function: str, version: int) -> list[bytes]:
        """Return what heads hold instead of a function and its version, under every key, that of the writer first."""
        keys = [derived(self._keys[key_id], b"routes") for key_id in self._writer_first()]
        return [_token(key, function, str(version))[:_ROUTE_SIZE] for key in keys]

    def _writer_first(self) -> list[str]:
        return [self.write, *(key_id for key_id in self.ids if key_id != self.write)]


def _check(key_id: Any, key: Any) -> None:
    if not isinstance(key_id, str) or not 1 <= len(key_id.encode("utf-8", "replace")) <= _LONGEST_ID:
        raise ConfigurationError(f"the id of a key must be a str of 1 to {_LONGEST_ID} bytes, got {key_id!r}")
    if not isinstance(key, bytes) or len(key) != KEY_SIZE:
        raise ConfigurationError(f"the key {key_id!r} must be {KEY_SIZE} bytes")


def _fingerprint(key: bytes) -> str:
    return "key-" + derived(key, b"fingerprint")[:4].hex()


def _token(key: bytes, name: str, value: str) -> bytes:
    name_bytes, value_bytes = name.encode("utf-8", "surrogatepass"), value.encode("utf-8", "surrogatepass")
    message = len(name_bytes).to_bytes(4, "big") + name_bytes + value_bytes
    return keyed_digest(key, message)[:_TOKEN_SIZE]
