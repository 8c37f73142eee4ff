"""A process that decodes hostile bytes, each in a fork of its own with little memory and little time.

    python fuzz_child.py SEED COUNT

Its exit code is 0 if each input gave a value or an error of ours; what it prints names the first one that did not.
"""

import os
import random
import resource
import signal
import sys
from typing import Final

from msgspec import msgpack

from holdfast.codec import decode, encode
from holdfast.records.errors import CodecError, IncompatibleCheckpoint

MEMORY: Final = 700 * 2**20
"""What an input may take beside what the process has: its bytes, their copies, and 256 MiB of objects."""
SECONDS: Final = 60
LONGEST: Final = 4_000_000
FINE, STRANGE = 0, 3
MODULUS: Final = 2**61 - 1


def hostile(chance: random.Random) -> bytes:
    """Bytes made to hurt: deep, wide, lying about their length, equal in hash, or several of these."""
    return chance.choice((deep, boxed, wide, lying, flooding, mixed))(chance)


def deep(chance: random.Random) -> bytes:
    head = chance.choice(
        (b"\x91", b"\x81\xa1k", b"\xdc\x00\x01", b"\xdf\x00\x00\x00\x01\xa1k", b"\x92\x01", b"\x92\x90")
    )
    depth = int(10 ** chance.uniform(1, 6))
    padding = encode(b"x" * chance.choice((0, 100, 5000, 100_000)))
    return (b"\x92" + padding + head * depth + chance.choice((b"\xc0", b"\x90", b"")))[:LONGEST]


def boxed(chance: random.Random) -> bytes:
    data = chance.choice((b"\x90", b"\xc0", b"\x91" * chance.randrange(1, 300) + b"\xc0", encode("x" * 100_000)))
    for _ in range(chance.choice((10, 150, 210, 1000))):
        lists = b"\x91" * chance.choice((1, 1, 1, 2, 9))
        data = msgpack.encode(msgpack.Ext(chance.randrange(1, 11), lists + data))
    return data[:LONGEST]


def wide(chance: random.Random) -> bytes:
    fillers = (b"\x90", b"\x80", b"\xa2ab", b"\x81\xa1a\x01", b"\xd4\x02\x90", b"\xc7\x03\x06\x92\xc0\x90", b"\xcb" * 9)
    filler = chance.choice(fillers)
    count = int(10 ** chance.uniform(2, 6.6)) // len(filler)
    return b"\xdd" + count.to_bytes(4, "big") + filler * count


def lying(chance: random.Random) -> bytes:
    head = chance.choice((b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"))
    return (b"\x91" * chance.randrange(200) + head + chance.randbytes(4)) * chance.choice((1, 60)) + chance.randbytes(
        30
    )


def flooding(chance: random.Random) -> bytes:
    count = int(10 ** chance.uniform(1, 5))
    keys = [number * MODULUS for number in range(1, count)]
    members = keys if chance.random() < 0.5 else [(key, 1) for key in keys]
    code = chance.choice((2, 3, 4, 8, 9))
    return msgpack.encode(
        msgpack.Ext(code, encode(members if code < 4 else [part for key in members for part in (key, 1)]))
    )


def mixed(chance: random.Random) -> bytes:
    data = bytearray(hostile(chance)[:20_000])
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(data) + 1)
        data[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    return bytes(data)


def judged(data: bytes) -> int:
    """Decode in a fork, and say how that ended: an exit code, or the negative number of a signal."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = STRANGE
    try:
        signal.alarm(SECONDS)
        decode(data)
        code = FINE
    except (CodecError, IncompatibleCheckpoint):
        code = FINE
    except BaseException as error:  # noqa: BLE001  it is told by the parent
        sys.stderr.write(repr(error)[:200])
    finally:
        os._exit(code)


def main(seed: int, count: int) -> int:
    decode(encode({"loaded": (1, {2})}))
    used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGESIZE")  # noqa: PTH123, SIM115
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    sys.setrecursionlimit(2**31 - 1)
    for number in range(count):
        data = hostile(random.Random(f"{seed}.{number}"))
        code = judged(data)
        if code != FINE:
            sys.stderr.write(f"input {seed}.{number} of {len(data)} bytes, {data[:40].hex()}…: ended with {code}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
