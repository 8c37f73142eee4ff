"""What holds on every store holds on PostgreSQL: processes killed and racing, zombies, hostile ids, random stories."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from harness.random_walk import TIGHT, Walk
from harness.state_machine import machine_for
from holdfast.codec.keys import KeyRing
from kinds import url_of
from rounds import rounds
from runs import test_ownership as ownership
from stores import test_hostile_ids as hostile_ids
from stores import test_kill as kill
from stores import test_processes as processes
from stores.postgres.scenes import SchemaPlace
from testing.test_model import PHASES

SCENES: list[Callable[[str, Path], None]] = [
    processes.test_processes_that_save_to_one_thread_take_turns,
    processes.test_processes_that_append_to_one_list_lose_nothing,
    processes.test_processes_with_threads_of_their_own_do_not_hinder_each_other,
    hostile_ids.test_hostile_ids_stay_within_the_root,
    hostile_ids.test_hostile_ids_do_not_survive_their_deletion,
    hostile_ids.test_hostile_namespaces_stay_apart_and_within_the_root,
    hostile_ids.test_an_id_of_512_bytes_is_the_longest,
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__.removeprefix("test_"))
def test_on_postgres(scene: Callable[[str, Path], None], tmp_path: Path) -> None:
    scene("postgres", tmp_path)


@pytest.mark.parametrize("script", [processes.FORKING, processes.FORKING_AWAITABLE], ids=["blocking", "awaitable"])
def test_a_forked_child_can_use_its_parents_store(script: str, tmp_path: Path) -> None:
    processes.test_a_forked_child_can_use_its_parents_store("postgres", script, tmp_path)


@pytest.mark.faults
def test_every_acknowledged_save_survives_kill_9_of_its_client(tmp_path: Path) -> None:
    assert kill.run_rounds("postgres", tmp_path, "honest", rounds(5, 20)) > 5


@pytest.mark.faults
def test_kill_9_in_the_midst_of_a_prune_leaves_a_sound_store(tmp_path: Path) -> None:
    assert kill.run_rounds("postgres", tmp_path, "pruning", rounds(4, 8)) > 4


def test_a_writer_that_acknowledges_before_it_saves_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="were acknowledged"):
        kill.run_rounds("postgres", tmp_path, "boasting", 50)


@pytest.mark.faults
def test_of_two_processes_that_run_a_thread_exactly_one_proceeds(tmp_path: Path) -> None:
    assert ownership.play("rivals", url_of("postgres", tmp_path), rounds(5, 20), "slow") == [1] * rounds(5, 20)


def test_without_fencing_both_processes_proceed(tmp_path: Path) -> None:
    assert 2 in ownership.play("rivals", url_of("postgres", tmp_path), 20, "broken")


def test_a_zombie_writes_nothing_when_it_wakes_up(tmp_path: Path) -> None:
    played = ownership.play("zombies", url_of("postgres", tmp_path), 4, "sound")
    assert played["outcomes"] == [["Fenced", "Fenced"]] * 4
    assert played["steps"] == [["before", "taken over"]] * 4


@pytest.mark.faults
@pytest.mark.slow
def test_random_restores_are_exact() -> None:
    total = crashes = faults = 0
    for seed in range(3000, 3000 + rounds(6, 6)):
        walk = Walk(SchemaPlace(), seed, tuning=TIGHT if seed % 3 else None)
        total += walk.run(100)
        crashes += walk.driver.crashes
        faults += walk.driver.faults
    assert total >= 800
    assert min(crashes, faults) >= 10


def test_an_encrypted_store_tells_the_same_stories() -> None:
    assert Walk(SchemaPlace(), 5, keys=KeyRing({"k": b"k" * 32}, "k")).run(60) > 30


def test_a_walk_beside_a_memory_store_ends_equal() -> None:
    assert Walk(SchemaPlace(), 6, faults=False, twin=True).run(70) > 35


@pytest.mark.faults
@pytest.mark.parametrize("faults", [False, True], ids=["undisturbed", "with faults"])
def test_no_story_breaks_a_store(faults: bool) -> None:
    run_state_machine_as_test(
        machine_for(SchemaPlace, faults=faults),
        settings=settings(max_examples=rounds(2, 8), stateful_step_count=30, phases=PHASES, report_multiple_bugs=False),
    )
