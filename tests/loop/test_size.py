"""What a checkpoint per transition costs."""

from random import Random

import pytest

from holdfast import codec, sync

RANDOM = Random(17)
WORDS = ["".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=RANDOM.randint(2, 9))) for _ in range(3000)]


def text(length: int) -> str:
    return " ".join(RANDOM.choices(WORDS, k=length // 2))[:length]


@pytest.mark.parametrize("length", [160, 1000, 4000])
def test_a_plan_of_30_steps_stores_at_most_three_times_the_bytes_of_its_results(
    length: int, disk_store: sync.Store
) -> None:
    loop = sync.Loop(
        "essay",
        plan=lambda _: [f"step {number}: look something up" for number in range(30)],
        execute=lambda *_: text(length),
        store=disk_store,
        thread_id="t",
    )
    loop.drive()
    checkpoint_count = len(disk_store.history("t", limit=500))
    stored = disk_store.thread("t").stored_bytes
    assert checkpoint_count == 61
    assert stored <= 3 * sum(len(codec.encode(result)) for result in loop.results)
    assert stored / checkpoint_count < 4096  # "a few KB per checkpoint is normal"
