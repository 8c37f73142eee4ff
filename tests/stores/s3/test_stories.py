"""The same stories and the same deaths as for the embedded stores: a random walk, killed writers, several processes."""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from harness.random_walk import TIGHT, Walk
from harness.state_machine import machine_for
from holdfast.codec.keys import KeyRing
from holdfast.testing.conformance.store_privacy import HOSTILE_IDS
from rounds import TIMES, rounds
from runs.test_ownership import play
from servers.s3 import new_prefix
from stores.s3.scenes import PrefixPlace, seaweed, store_at
from stores.test_kill import kill_repeatedly
from stores.test_processes import PROCESSES, TURNS, run_together

RIVALRIES = 10
ZOMBIES = 5

pytestmark = pytest.mark.faults


@pytest.mark.slow
def test_random_restores_are_exact() -> None:
    """Walks with crashes and faults on the way."""
    total = crashes = faults = 0
    for seed in range(4000, 4000 + rounds(3, 3)):
        walk = Walk(PrefixPlace(), seed, tuning=TIGHT if seed % 3 else None)
        total += walk.run(100)
        crashes += walk.driver.crashes
        faults += walk.driver.faults
    assert total > 300
    assert min(crashes, faults) > 3


@pytest.mark.slow
def test_a_walk_beside_a_memory_store_ends_equal() -> None:
    assert Walk(PrefixPlace(), 6, faults=False, twin=True).run(100) > 50


def test_an_encrypted_store_tells_the_same_stories() -> None:
    assert Walk(PrefixPlace(), 5, keys=KeyRing({"k": b"k" * 32}, "k")).run(60) > 30


def test_no_story_breaks_a_store() -> None:
    run_state_machine_as_test(
        machine_for(PrefixPlace, faults=True),
        settings=settings(
            max_examples=rounds(2, 4),
            stateful_step_count=30,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
        ),
    )


def run_rounds(writer: str, rounds: int) -> int:
    prefix = new_prefix()
    return kill_repeatedly(seaweed().url(prefix), lambda: store_at(prefix), writer, rounds, 12, 100_000)


def test_every_acknowledged_save_survives_kill_9() -> None:
    assert run_rounds("honest", rounds(4, 20)) > 4


def test_kill_9_in_the_midst_of_a_prune_leaves_a_sound_store() -> None:
    assert run_rounds("pruning", rounds(2, 8)) > 2


def test_a_writer_that_acknowledges_before_it_saves_is_found_out() -> None:
    with pytest.raises(AssertionError, match="were acknowledged"):
        run_rounds("boasting", 50)


def test_processes_that_append_to_one_list_lose_nothing() -> None:
    prefix = new_prefix()
    acknowledged = run_together(seaweed().url(prefix), "appending", ["t"] * PROCESSES)
    with store_at(prefix) as store:
        latest = store.latest("t")
        assert store.verify().ok
    assert latest is not None
    assert len(latest.state["list"]) == PROCESSES * TURNS
    for process in acknowledged:
        assert [turn for by, turn in latest.state["list"] if by == process] == list(range(TURNS))


def test_of_two_processes_that_run_a_thread_exactly_one_proceeds() -> None:
    count = RIVALRIES * TIMES
    assert play("rivals", seaweed().url(new_prefix()), count, "slow") == [1] * count


def test_a_process_that_was_stopped_past_its_lease_writes_nothing_more() -> None:
    for _ in range(TIMES):
        found = play("zombies", seaweed().url(new_prefix()), ZOMBIES, "sound")
        assert found["outcomes"] == [["Fenced", "Fenced"]] * ZOMBIES
        assert found["steps"] == [["before", "taken over"]] * ZOMBIES


def test_hostile_ids_are_kept_apart_and_in_no_name() -> None:
    prefix = new_prefix()
    ids = [*HOSTILE_IDS, "..", "../x", "/", "//", "a/../b", "%2e%2e", "?x=1", "#", "a b", "head", "format", "probe/x"]
    ids = list(dict.fromkeys(ids))
    with store_at(prefix) as store:
        for thread_id in ids:
            store.save(thread_id, {"id": thread_id}, labels={"id": thread_id})
    with store_at(prefix) as store:
        for thread_id in ids:
            latest = store.latest(thread_id)
            assert latest is not None
            assert latest.state == {"id": thread_id}
        for thread_id in ids[:4]:
            assert [info.thread_id for info in store.threads(labels={"id": thread_id})] == [thread_id]
        for thread_id in ids[::2]:
            store.delete(thread_id)
        assert {info.thread_id for info in store.threads(limit=1000)} == set(ids[1::2])
    allowed = set("0123456789abcdefghijklmnopqrstuvwxyz/-")
    assert all(set(name.removeprefix(prefix)) <= allowed for name in seaweed().names(prefix))


def test_stores_under_different_prefixes_share_nothing() -> None:
    first, second = new_prefix(), new_prefix()
    with store_at(first) as one, store_at(second) as two:
        one.save("t", 1)
        two.save("t", 2)
        one.delete("t")
        assert [info.thread_id for info in one.threads()] == []
        assert [info.thread_id for info in two.threads()] == ["t"]
