"""Parts that are loaded with the first special value: if that fails, no value is to blame."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.codec import decode, decoding, encode, encoding
from holdfast.records.errors import CodecError, HoldfastError

PARTS = ("holdfast.codec.exact", "holdfast.codec.boxes", "holdfast.codec.types")
PAIR = encode((1, 2))


class Failing:
    """A finder in front of all others, which fails for these parts."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        if name in PARTS:
            raise self.error


@pytest.fixture
def not_loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has just started."""
    for name in PARTS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(encoding, "_exactly", None)
    decoding._special_values.cache_clear()
    yield
    decoding._special_values.cache_clear()


@pytest.mark.usefixtures("not_loaded")
@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RecursionError(), ImportError("gone")], ids=repr)
@pytest.mark.parametrize("use", [lambda: encode((1, 2)), lambda: decode(PAIR)], ids=["encode", "decode"])
def test_a_part_that_cannot_be_loaded_is_told_as_that_and_tried_again(
    error: Exception, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "meta_path", [Failing(error), *sys.meta_path])
        with pytest.raises(HoldfastError, match="could not be loaded") as caught:
            use()
        assert not isinstance(caught.value, CodecError)
        assert caught.value.__cause__ is error
        assert encode({"plain": [1][0]}) == b"\x81\xa5plain\x01"
    assert use() in {PAIR, (1, 2)}
