"""An encrypted bundle: whatever somebody without its key changes, with every digest made right, it is not imported."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.records.errors import Corrupt, KeyUnavailable

KEY = b"k" * 32
MAGIC = b"holdfast bundle 1\n"
Frames = list[bytes]


def parts(path: Path) -> tuple[bytes, Frames]:
    """The wrapped key, and the payloads of the frames."""
    data = path.read_bytes().removeprefix(MAGIC)
    end = 2 + int.from_bytes(data[:2], "big")
    wrapped, rest, frames = data[2:end], data[end:], list[bytes]()
    while rest:
        length = int.from_bytes(rest[:8], "big")
        frames.append(rest[24 : 24 + length])
        rest = rest[24 + length :]
    return wrapped, frames


def put_together(path: Path, wrapped: bytes, frames: Frames) -> None:
    """A bundle of those, all lengths, numbers and digests right."""
    data = MAGIC + len(wrapped).to_bytes(2, "big") + wrapped
    for number, payload in enumerate(frames, 1):
        identity = b"holdfast bundle" + number.to_bytes(8, "big")
        data += len(payload).to_bytes(8, "big") + sha256(identity + payload).digest()[:16] + payload
    path.write_bytes(data)


def exported(path: Path, thread_id: str) -> tuple[bytes, Frames]:
    with sync.open("memory:", keys=KEY) as store:
        store.save(thread_id, {"approved": "A" * 9000, "rejected": "B" * 9000})
        store.save(thread_id, {"approved": "A" * 9000, "rejected": "C" * 9000})
        store.export(thread_id, path, keys=KEY)
    return parts(path)


def flip(at: int, position: int) -> Callable[[Frames], None]:
    def change(frames: Frames) -> None:
        payload = bytearray(frames[at])
        payload[position] ^= 1
        frames[at] = bytes(payload)

    return change


def swap(one: int, other: int) -> Callable[[Frames], None]:
    def change(frames: Frames) -> None:
        frames[one], frames[other] = frames[other], frames[one]

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(flip(at, position) for at in range(-4, 2) for position in (0, 1, 13, -1)),
        *(swap(one, one + 1) for one in range(-4, 1)),
        lambda frames: frames.pop(1),
        lambda frames: frames.pop(),
        lambda frames: frames.insert(2, frames[1]),
        lambda frames: frames.append(frames[-1]),
    ],
)
def test_no_frame_can_be_changed_moved_left_out_or_repeated(tmp_path: Path, change: Callable[[Frames], object]) -> None:
    wrapped, frames = exported(tmp_path / "right", "t")
    change(frames)
    put_together(tmp_path / "forged", wrapped, frames)
    with sync.open("memory:", keys=KEY) as store:
        with pytest.raises(Corrupt):
            store.import_(tmp_path / "forged", keys=KEY)
        assert [*store.threads()] == []


def test_frames_and_keys_of_two_bundles_do_not_mix(tmp_path: Path) -> None:
    (key, frames), (other_key, other) = exported(tmp_path / "one", "t"), exported(tmp_path / "other", "t")
    mixes = [(key, [*frames[:at], other[at], *frames[at + 1 :]]) for at in range(len(frames))]
    for wrapped, mixed in [*mixes, (other_key, frames), (b"", frames)]:
        put_together(tmp_path / "forged", wrapped, mixed)
        with sync.open("memory:", keys=KEY) as store, pytest.raises((Corrupt, KeyUnavailable)):
            store.import_(tmp_path / "forged", keys=KEY)


def test_the_forger_puts_a_right_bundle_together(tmp_path: Path) -> None:
    put_together(tmp_path / "again", *exported(tmp_path / "right", "t"))
    with sync.open("memory:", keys=KEY) as store:
        store.import_(tmp_path / "again", keys=KEY)
        assert store.get("t", 2).state["rejected"] == "C" * 9000
