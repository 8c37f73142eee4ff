"""The same stories and the same deaths as for the embedded stores: a random walk, killed writers, several processes."""

from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from harness.random_walk import TIGHT, Walk
from harness.state_machine import machine_for
from holdfast import sync
from holdfast.codec.keys import KeyRing
from holdfast.testing.conformance.store_privacy import HOSTILE_IDS
from kinds import parameters
from rounds import TIMES, rounds
from runs.test_ownership import play
from servers.redis import new_prefix, shared_cluster, shared_server
from stores.redis.scenes import KINDS, PrefixPlace, store_in, url_in
from stores.test_kill import kill_repeatedly
from stores.test_processes import PROCESSES, TURNS, run_together

pytestmark = pytest.mark.faults

in_both = pytest.mark.parametrize("kind", KINDS)
rarely_in_a_cluster = pytest.mark.parametrize("kind", parameters(*KINDS, quick={"server"}, rare={"cluster"}))
"""The backend is the same, and is killed and raced against in a cluster too."""


@rarely_in_a_cluster
def test_random_restores_are_exact(kind: str) -> None:
    """Walks with crashes and faults on the way."""
    total = crashes = faults = 0
    for seed in range(3000, 3000 + rounds(1, 6)):
        walk = Walk(PrefixPlace(kind), seed, tuning=TIGHT if seed % 3 else None)
        total += walk.run(130)
        crashes += walk.driver.crashes
        faults += walk.driver.faults
    assert total > rounds(150, 500)
    assert min(crashes, faults) > rounds(2, 5)


@rarely_in_a_cluster
def test_a_walk_beside_a_memory_store_ends_equal(kind: str) -> None:
    assert Walk(PrefixPlace(kind), 6, faults=False, twin=True).run(120) > 60


def test_an_encrypted_store_tells_the_same_stories() -> None:
    assert Walk(PrefixPlace("server"), 5, keys=KeyRing({"k": b"k" * 32}, "k")).run(80) > 50


@in_both
def test_no_story_breaks_a_store(kind: str) -> None:
    run_state_machine_as_test(
        machine_for(lambda: PrefixPlace(kind), faults=True),
        settings=settings(
            max_examples=rounds(3, 10),
            stateful_step_count=40,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
        ),
    )


def run_rounds(kind: str, writer: str, rounds: int) -> int:
    prefix = new_prefix()
    return kill_repeatedly(url_in(kind, prefix), lambda: store_in(kind, prefix), writer, rounds)


@in_both
def test_every_acknowledged_save_survives_kill_9(kind: str) -> None:
    assert run_rounds(kind, "honest", rounds(5, 10)) > 5


def test_kill_9_in_the_midst_of_a_prune_leaves_a_sound_store() -> None:
    assert run_rounds("server", "pruning", rounds(4, 6)) > 4


def test_a_writer_that_acknowledges_before_it_saves_is_found_out() -> None:
    with pytest.raises(AssertionError, match="were acknowledged"):
        run_rounds("server", "boasting", 50)


@in_both
def test_processes_that_append_to_one_list_lose_nothing(kind: str) -> None:
    prefix = new_prefix()
    acknowledged = run_together(url_in(kind, prefix), "appending", ["t"] * PROCESSES)
    with store_in(kind, prefix) as store:
        latest = store.latest("t")
        assert store.verify().ok
    assert latest is not None
    assert len(latest.state["list"]) == PROCESSES * TURNS
    for process in acknowledged:
        assert [turn for by, turn in latest.state["list"] if by == process] == list(range(TURNS))


@rarely_in_a_cluster
def test_of_two_processes_that_run_a_thread_exactly_one_proceeds(kind: str) -> None:
    assert play("rivals", url_in(kind, new_prefix()), 10 * TIMES, "slow") == [1] * 10 * TIMES


def test_without_fencing_both_processes_proceed() -> None:
    """The test above can fail."""
    assert 2 in play("rivals", url_in("server", new_prefix()), 50, "broken")


@rarely_in_a_cluster
def test_a_process_that_was_stopped_past_its_lease_writes_nothing_more(kind: str) -> None:
    for _ in range(TIMES):
        found = play("zombies", url_in(kind, new_prefix()), 5, "sound")
        assert found["outcomes"] == [["Fenced", "Fenced"]] * 5
        assert found["steps"] == [["before", "taken over"]] * 5


def test_a_forked_child_cannot_use_its_parents_run() -> None:
    found = play("forks", url_in("server", new_prefix()))
    assert "forked from" in found["child"]
    assert found["steps"] == ["before", "after"]
    assert found["its own"] == ["in the child"]


@in_both
def test_hostile_ids_are_kept_apart(kind: str) -> None:
    prefix = new_prefix()
    ids = list(
        dict.fromkeys(
            [*HOSTILE_IDS, "}", "{", "{}", "}{", "a}b", "{0}", "*", "?", "[a]", "\\", "\r\n", "$6\r\nfoobar\r\n"]
        )
    )
    with store_in(kind, prefix) as store:
        for thread_id in ids:
            store.save(thread_id, {"id": thread_id}, labels={"id": thread_id})
            store.append(thread_id, "list", thread_id)
    with store_in(kind, prefix) as store:
        for thread_id in ids:
            latest = store.latest(thread_id)
            assert latest is not None
            assert latest.state == {"id": thread_id, "list": [thread_id]}
            assert [info.thread_id for info in store.threads(labels={"id": thread_id})] == [thread_id]
        for thread_id in ids[::2]:
            store.delete(thread_id)
        assert {info.thread_id for info in store.threads(limit=1000)} == set(ids[1::2])
        assert store.verify().ok


def test_all_threads_of_a_shard_share_a_slot_and_shards_are_spread_over_the_nodes() -> None:
    prefix = new_prefix()
    with store_in("cluster", prefix) as store:
        for number in range(200):
            store.save(f"{{{number}}}", number)
    sizes = []
    for node in shared_cluster().nodes:
        with node.client() as client:
            sizes.append(sum(1 for _ in client.scan_iter(f"{prefix}:*")))
    assert min(sizes) > 20, "every node has its share"


def test_stores_under_different_prefixes_share_nothing() -> None:
    first, second = new_prefix(), new_prefix()
    with shared_server().client() as client:
        others = set(client.scan_iter())
    with store_in("server", first) as one, store_in("server", second) as two:
        one.save("t", 1)
        two.save("t", 2)
        one.delete("t")
        assert [info.thread_id for info in one.threads()] == []
        assert [info.thread_id for info in two.threads()] == ["t"]
    with shared_server().client() as client:
        made = set(client.scan_iter()) - others
    assert made
    assert all(name.startswith((first.encode(), second.encode())) for name in made)


def test_threads_are_copied_from_a_file_to_a_server_to_a_cluster(tmp_path: Path) -> None:
    prefix = new_prefix()
    with (
        sync.open(tmp_path / "store.db") as first,
        store_in("server", prefix) as second,
        store_in("cluster", prefix) as third,
    ):
        for number in range(20):
            first.save(f"t{number}", {"n": number, "large": "x" * 20_000}, labels={"n": str(number % 2)})
            first.append(f"t{number}", "list", number)
        assert first.copy_to(second).threads == 20
        assert second.copy_to(third).threads == 20
        assert second.copy_to(third).skipped == 20
        assert third.get("t7", 1).state == first.get("t7", 1).state
        assert len(third.threads(labels={"n": "1"}).items) == 10
        assert third.verify().ok


def test_a_copy_is_held_by_nobody() -> None:
    with sync.open("memory:") as here, store_in("server", new_prefix()) as there, here.run("t", lease=3600) as run:
        assert run.step("s", lambda: 1) == 1
        assert here.copy_to(there).threads == 1
        assert here.copy_to(there).skipped == 1
        assert there.thread("t").lease is None
        with there.run("t") as other:
            assert other.step("s", lambda: 2) == 1
        assert run.step("s2", lambda: 3) == 3
