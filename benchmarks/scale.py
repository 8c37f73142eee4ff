"""How large a run is: the whole workloads, or for `--quick` a fraction; the figures keep their sizes in both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    name: str
    save_count: int  # W1
    save_warm_count: (
        int  # W1: untimed, until SQLite's log has its final size: while it grows, a sync costs twice as much
    )
    step_count: int  # W2
    long_step_count: int  # W2 of Holdfast alone
    wide_save_count: int  # W3
    superstep_count: int  # W7
    thread_count: int  # W5
    saves_per_thread: int  # W5
    pair_count: int  # samples of each side of a paired figure
    pair_warm_count: int  # likewise
    whole_state_saves: int
    restore_repeats: int
    resume_rounds: int  # W4 and W6: new processes for each contender
    open_thread_count: int  # workers
    worker_thread_count: int  # workers: threads of each round
    idle_worker_count: int  # workers

    @property
    def whole(self) -> bool:
        """Whether W2 is long enough for its ratios to mean what they say: they grow with its length."""
        return self.step_count >= 3_000


FULL = Scale(
    name="full",
    save_count=1_000,
    save_warm_count=1_200,
    step_count=3_000,
    long_step_count=10_000,
    wide_save_count=200,
    superstep_count=2_000,
    thread_count=1_000,
    saves_per_thread=10,
    pair_count=2_000,
    pair_warm_count=1_500,
    whole_state_saves=300,
    restore_repeats=60,
    resume_rounds=15,
    open_thread_count=1_000_000,
    worker_thread_count=1_000,
    idle_worker_count=100,
)

QUICK = Scale(
    name="quick: smaller than the workloads it is named after, so its figures only show the shape",
    save_count=200,
    save_warm_count=1_200,
    step_count=400,
    long_step_count=1_500,
    wide_save_count=60,
    superstep_count=300,
    thread_count=100,
    saves_per_thread=10,
    pair_count=400,
    pair_warm_count=1_500,
    whole_state_saves=60,
    restore_repeats=15,
    resume_rounds=4,
    open_thread_count=50_000,
    worker_thread_count=300,
    idle_worker_count=20,
)
