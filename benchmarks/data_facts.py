"""How compressible the data is by itself, so that a reader can tell our merit from zstd's."""

from __future__ import annotations

import sys

from benchmarks.workloads import agent_steps, encoded, wide_values

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LEVEL = 1
_CHUNK = 64 * 1024


def facts() -> dict[str, str]:
    steps = [encoded(step) for step in agent_steps(3_000, 500)]
    together = b"".join(steps)
    chunks = [together[start : start + _CHUNK] for start in range(0, len(together), _CHUNK)]
    wide = [value.encode() for value in wide_values(200)]
    return {
        "one step of 500 B": _ratio(steps),
        "steps in pieces of 64 KB": _ratio(chunks),
        "one value of 5 KB": _ratio(wide),
    }


def _ratio(pieces: list[bytes]) -> str:
    return f"{sum(map(len, pieces)) / sum(len(zstd.compress(piece, _LEVEL)) for piece in pieces):.2f}x"
