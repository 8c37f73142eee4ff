"""The agenda in Redis: it is what the heads say, or earlier, whatever dies between a swap and its entry."""

from random import Random
from typing import Any

import pytest

from holdfast.stores.memory import MemoryBackend
from servers.redis import new_prefix
from stores.redis.scenes import KINDS, backend_in
from stores.test_agenda import Clock, story

in_both = pytest.mark.parametrize("kind", KINDS)


@in_both
@pytest.mark.parametrize("seed", range(6))
def test_redis_tells_the_same_story_as_memory(kind: str, seed: int) -> None:
    clock = Clock()
    backends: list[Any] = [MemoryBackend(), backend_in(kind, new_prefix())]
    for backend in backends:
        backend.open()
    backends[0].now = backends[1]._clock.now = clock
    story(backends, clock, Random(seed), is_mixed=False)
    backends[1].close()
