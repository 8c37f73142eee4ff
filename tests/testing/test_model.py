"""Random stories, told to a store and to a plain model alike: every checkpoint comes back exactly."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from harness.model_driver import Driver
from harness.random_walk import TIGHT, Walk
from harness.state_machine import machine_for
from holdfast.codec.keys import KeyRing
from holdfast.testing.faults import Fault
from holdfast.testing.places import Place
from kinds import new_place
from rounds import rounds

PHASES = (Phase.generate, Phase.shrink)
STEPS = 130
WALKS = rounds(2, 34)
FIRST_SEEDS = {"memory": 0, "sqlite": 1000, "file": 2000}


@pytest.mark.faults
def test_random_restores_are_exact(kind: str, tmp_path: Path) -> None:
    """Walks with crashes and faults on the way, the same each time: about 200 restores each, 34 walks in full."""
    total = crashes = faults = 0
    for seed in range(FIRST_SEEDS[kind], FIRST_SEEDS[kind] + WALKS):
        walk = Walk(new_place(kind, tmp_path), seed, tuning=TIGHT if seed % 3 else None)
        total += walk.run(STEPS)
        crashes += walk.driver.crashes
        faults += walk.driver.faults
    assert total >= 180 * WALKS
    assert min(crashes, faults) >= 3 * WALKS


def test_an_encrypted_store_tells_the_same_stories(kind: str, tmp_path: Path) -> None:
    walk = Walk(new_place(kind, tmp_path), 5, keys=KeyRing({"k": b"k" * 32}, "k"))
    assert walk.run(150) > 100


def test_a_walk_beside_a_memory_store_ends_equal(disk_kind: str, tmp_path: Path) -> None:
    walk = Walk(new_place(disk_kind, tmp_path), 6, faults=False, twin=True)
    assert walk.run(200) > 100


def places(kind: str, directory: Path) -> Callable[[], Place]:
    return lambda: new_place(kind, directory)


@pytest.mark.faults
@pytest.mark.parametrize("faults", [False, True], ids=["undisturbed", "with faults"])
def test_no_story_breaks_a_store(kind: str, faults: bool, tmp_path: Path) -> None:
    run_state_machine_as_test(
        machine_for(places(kind, tmp_path), faults=faults),
        settings=settings(
            max_examples=rounds(6, 50) if kind == "memory" else rounds(3, 25),
            stateful_step_count=40,
            phases=PHASES,
            report_multiple_bugs=False,
        ),
    )


def test_a_fault_is_all_or_nothing_to_the_model(tmp_path: Path) -> None:
    driver = Driver(new_place("sqlite", tmp_path))
    driver.save("t", {"a": 1})
    for how in ("unavailable", "lost reply", "crash before", "crash after"):
        driver.plan(Fault(1, how, frozenset({"swap"})))
        driver.save("t", {"a": how})
    assert driver.faults == 3, "a lost reply is found out by the store itself"
    assert [driver.model("t").states[seq]["a"] for seq in driver.model("t").seqs] == ["crash after", "lost reply", 1]
    driver.check_all()
    driver.close()
