"""What the commands that only look say."""

import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import HOSTILE, Call
from holdfast import sync

Document = Callable[..., Any]


def test_threads_are_listed_newest_first(document: Document) -> None:
    listed = document("threads")
    assert [thread["thread_id"] for thread in listed] == ["broken", "ticket-1", HOSTILE, "user-43", "user-42"]
    assert listed[-1]["labels"] == {"user": "ana"}


def test_threads_can_be_chosen_by_status_and_label(document: Document) -> None:
    assert [thread["thread_id"] for thread in document("threads", "--status", "failed")] == ["broken"]
    assert [thread["thread_id"] for thread in document("threads", "--label", "user=ana")] == ["user-42"]
    both = document("threads", "--status", "failed", "--status", "input_required")
    assert [thread["thread_id"] for thread in both] == ["broken", "ticket-1"]


def test_a_list_that_was_cut_says_so(call: Call, document: Document) -> None:
    assert len(document("threads", "--limit", "2")) == 2
    assert "these are the first 2" in call("threads", "--limit", "2").stdout
    assert "first" not in call("threads", "--limit", "5").stdout
    assert len(document("threads", "--limit", "0")) == 5


def test_a_thread_is_shown_with_its_checkpoints_and_its_question(call: Call, document: Document) -> None:
    shown = document("show", "ticket-1")
    assert shown["thread"]["status"] == "input_required"
    assert [request["name"] for request in shown["requests"]] == ["refund"]
    assert shown["checkpoints"][0]["phase"] == "post_tool"
    assert len(document("show", "ticket-1", "--journal")["checkpoints"]) > len(shown["checkpoints"])
    text = call("show", "ticket-1").stdout
    assert 'payload  {"amount": 40}' in text
    assert "approve | reject" in text


def test_a_session_is_shown_with_its_turns_usage_and_cost(place: Path, call: Call, document: Document) -> None:
    pricing = {"model-a": sync.ModelPricing(3, 15)}
    used = sync.UsageSnapshot(2_000, 900, cache_read_tokens=10, tool_calls=1)
    with (
        sync.open(place / "holdfast.db") as store,
        sync.Orchestrator("writer", "draft", store, pricing=pricing).session("talk") as session,
    ):
        session.run_turn(lambda: "text", model="model-a", usage=used, idempotency_key="1")
        with pytest.raises(ZeroDivisionError):
            session.run_turn(lambda: 1 / 0, idempotency_key="2")
        session.hand_over("editor", "review")
    lines = [line.split("  ", 1) for line in call("show", "talk").stdout.splitlines() if "  " in line]
    facts = {line[0]: line[1].strip() for line in lines}
    assert facts["session"] == "editor / review"
    assert facts["turns"] == "2, 1 failed"
    assert facts["usage"] == "2,910 tokens (2,000 in, 900 out, 10 from a cache); 1 tool call"
    assert facts["cost"] == "0.0195 USD"
    shown = document("show", "talk")["session"]
    assert (shown["turn_count"], shown["usage"]["input_tokens"], shown["cost_usd"]) == (2, 2000, 0.01953)
    assert document("show", "ticket-1")["session"] is None
    assert "session" not in call("show", "ticket-1").stdout


def test_an_agent_is_shown_with_its_attempts_rollbacks_and_usage(place: Path, call: Call, document: Document) -> None:
    def worker(_task: str, *, record_step: Any, record_usage: Any, recovery: Any = None) -> str:
        record_usage(input_tokens=900, output_tokens=100, cost_usd=0.01)
        if recovery is None:
            record_step(sync.Step(action="send", error="refused"))
            raise ConnectionError("refused")
        return "done"

    with sync.open(place / "holdfast.db") as store:
        sync.Agent(worker, policy=sync.RecoveryAction.ROLLBACK, store=store).run("task", thread_id="tried")
    lines = [line.split("  ", 1) for line in call("show", "tried").stdout.splitlines() if "  " in line]
    facts = {line[0]: line[1].strip() for line in lines}
    assert facts["agent"].endswith("worker")
    assert facts["failed"] == "1 attempt: external_fault → rollback"
    assert facts["rollbacks"] == "1: to the beginning"
    assert facts["usage"] == "2,000 tokens (1,800 in, 200 out)"
    assert facts["cost"] == "0.0200 USD"
    shown = document("show", "tried")["agent"]
    assert (shown["failures"], shown["rollbacks"], shown["usage"]["input_tokens"]) == (["external_fault"], [0], 1800)
    assert document("show", "ticket-1")["agent"] is None


def test_an_agent_that_recorded_nothing_is_shown_too(place: Path, call: Call, document: Document) -> None:
    def worker(_task: str, *, record_usage: Any, recovery: Any = None) -> str:
        record_usage(cost_usd=2.5)
        if recovery is None:
            raise ConnectionError("refused")
        return "done"

    with sync.open(place / "holdfast.db") as store:
        sync.Agent(worker, policy=sync.RecoveryAction.RETRY, store=store).run("task", thread_id="plain")
    assert document("show", "plain")["agent"]["failures"] == ["external_fault"]
    assert "5.0000 USD" in call("show", "plain").stdout


DIES = """
import os
import holdfast.sync as holdfast

store = holdfast.open("holdfast.db")
try:
    with store.run("order-1") as run:
        raise ValueError("the first time it failed")
except ValueError:
    pass
with store.run("order-1") as run:
    run.step("pay", lambda idempotency_key: os._exit(9), effect=True)
"""


def test_a_thread_whose_process_died_says_so_and_what_it_was_at(place: Path, call: Call, document: Document) -> None:
    assert subprocess.run([sys.executable, "-c", DIES], cwd=place, capture_output=True, check=False).returncode == 9
    shown = call("show", "order-1").stdout
    assert re.search(r"^held by   pid \d+ on \S+, which is gone; its lease ends in \d+ s$", shown, re.MULTILINE)
    assert re.search(r"^in doubt  pay, begun (now|\d+ s ago); its end is not recorded$", shown, re.MULTILINE)
    settle = "if that is refused because pay is in doubt: holdfast settle order-1 pay --done JSON, --retry or --fail"
    assert shown.splitlines()[-2:] == ["to resume it: run your program again", settle]
    assert "the first time it failed" not in shown
    assert list(document("show", "order-1")["work"]["begun"]) == ["pay"]


def test_a_durable_function_is_shown_with_its_call_and_its_result(call: Call, document: Document) -> None:
    assert "started  shop:refund(40)" in call("show", "ticket-1").stdout
    call("approve", "ticket-1")
    call("resume", "ticket-1", "--app", "shop:refund")
    assert 'result   "paid 40"' in call("show", "ticket-1").stdout
    work = document("show", "ticket-1")["work"]
    assert (work["function"], work["arguments"], work["result"]) == ("shop:refund", [40], "paid 40")


def test_a_failed_thread_says_why(call: Call) -> None:
    assert "ValueError: boom" in call("show", "broken").stdout


def test_steps_are_listed_with_their_outcome(call: Call, document: Document) -> None:
    assert [step["action"] for step in document("steps", "ticket-1")["steps"]] == ["find"]
    assert '{"amount": 40}' in call("steps", "ticket-1").stdout
    assert call("steps", "user-42").stdout == "no steps\n"


def test_a_step_that_was_begun_and_not_ended_is_listed_so(place: Path, call: Call, document: Document) -> None:
    subprocess.run([sys.executable, "-c", DIES.replace("order-1", "new-1", 1)], cwd=place, check=False)
    steps = document("steps", "order-1")
    assert (steps["checkpoint"], steps["steps"], list(steps["begun"])) == (None, [], ["pay"])
    assert re.search(r"-  pay +in doubt: begun (now|\d+ s ago)", call("steps", "order-1").stdout)


def test_a_thread_that_was_claimed_and_no_more_can_be_looked_at(place: Path, call: Call) -> None:
    claims = "import os, holdfast.sync as h; h.open('holdfast.db').run('claimed').__enter__(); os._exit(9)"
    subprocess.run([sys.executable, "-c", claims], cwd=place, check=False)
    assert call("steps", "claimed").stdout == "no steps\n"
    assert "which is gone" in call("show", "claimed").stdout


@pytest.mark.parametrize(("reference", "messages"), [("user-42", 2), ("user-42@1", 0), ("user-42@2", 1)])
def test_a_state_is_that_of_the_checkpoint(document: Document, reference: str, messages: int) -> None:
    assert len(document("state", reference)["state"]["messages"]) == messages


def test_a_checkpoint_is_found_by_its_full_id(document: Document) -> None:
    full = document("state", "user-42@2")["checkpoint"]["id"]
    assert document("state", full)["checkpoint"]["seq"] == 2


def test_objects_of_classes_that_nobody_has_here_are_shown_as_data(document: Document) -> None:
    order = document("state", "user-43")["state"]["order"]
    assert order in (
        {"class": "shop.Order", "fields": {"number": 7, "goods": ["kelp"]}},
        {"number": 7, "goods": ["kelp"]},  # registered here by a test that imported the application
    )


def test_a_diff_says_what_changed_by_path(call: Call, document: Document) -> None:
    changes = document("diff", "user-42@1", "user-42@3")["changes"]
    assert [(change["kind"], change["path"]) for change in changes] == [
        ("added", ["messages", 0]),
        ("added", ["messages", 1]),
    ]
    assert call("diff", "user-42@1", "user-42@2").stdout == '+ messages[0]: "hello"\n'
    assert call("diff", "user-42", "user-42@3").stdout == "no difference in the state\n"


def test_a_diff_of_steps_alone_says_how_many_there_are(place: Path, call: Call) -> None:
    with sync.open(place / "holdfast.db") as store, store.run("counted") as run:
        for word in ("kelp", "crab", "limpet"):
            run.step(word, len, word)
    assert call("diff", "counted@1", "counted@3").stdout == "no difference in the state; 2 steps between them\n"


def test_stats_add_up(call: Call, document: Document) -> None:
    found = document("stats")
    assert found["threads"] == sum(found["statuses"].values()) == 5
    assert "input required" in call("stats").stdout


def test_a_tail_ends_with_what_was_written_last(call: Call, document: Document) -> None:
    rows = document("tail", "--once", "--last", "100")
    assert [row["created_at"] for row in rows] == sorted(row["created_at"] for row in rows)
    assert rows[-1]["thread_id"] == "broken"
    assert [row["seq"] for row in document("tail", "user-42", "--once")] == [1, 2, 3]
    assert len(call("tail", "--once", "-n", "3").stdout.splitlines()) == 3


def test_the_store_can_be_named_before_and_after_the_command(call: Call, place: Path) -> None:
    (place / "holdfast.db").rename(place / "moved.db")
    assert call("--store", "moved.db", "stats").stdout == call("stats", "--store", "moved.db").stdout
    call("stats", code=3)
    call("--store", "nowhere.db", "stats", "--store", "moved.db")


def test_the_environment_names_the_store(call: Call, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "holdfast.db").rename(place / "moved.db")
    monkeypatch.setenv("HOLDFAST_STORE", "moved.db")
    call("threads")


def test_namespaces_share_nothing(call: Call) -> None:
    assert call("threads", "--namespace", "other").stdout == "no threads\n"


def test_times_are_relative_or_in_full(call: Call, document: Document) -> None:
    assert re.search("now| ago", call("threads").stdout)
    day = document("threads")[0]["updated_at"][:10]
    text = call("threads", "--utc").stdout
    assert day in text
    assert not re.search("now| ago", text)


def test_steps_and_show_say_what_a_step_was_called_with(place: Path, call: Call) -> None:
    with sync.open(place / "holdfast.db") as store, store.run("called") as run:
        run.step("search", lambda query, limit: query * limit, "kelp", 2)
        run.begin_step("pay", 40)
    assert re.search(r"^1  search  'kelp', 2 .*\"kelpkelp\"$", call("steps", "called").stdout, re.MULTILINE)
    assert re.search(r"^-  pay +40 .*begun", call("steps", "called").stdout, re.MULTILINE)
    shown = call("show", "called").stdout
    assert re.search(r"step=search ms=\d+ \('kelp', 2\)$", shown, re.MULTILINE)
    assert re.search(r"^in doubt +pay\(40\), begun ", shown, re.MULTILINE)


def nested(depth: int, value: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: (value,), lambda value: {"k": value}])
def test_the_deepest_state_that_can_be_stored_is_shown_and_compared(
    wrap: Callable[[Any], Any], place: Path, call: Call, document: Document
) -> None:
    with sync.open(place / "holdfast.db") as store:
        for leaf in (1, 2):
            store.save("deep", {"s": nested(195, leaf, wrap), "big": 10 ** (5000 + leaf), "set": {10**5000, 1}})
    assert document("state", "deep")["state"]["big"].startswith("0x")
    (big, deep) = sorted(document("diff", "deep@1", "deep@2")["changes"], key=lambda change: len(change["path"]))
    assert (len(deep["path"]), deep["old"], deep["new"]) == (196, 1, 2)
    assert (big["path"], big["old"]) == (["big"], hex(10**5001))
    for command in (
        ("state", "deep"),
        ("show", "deep"),
        ("diff", "deep@1", "deep@2"),
        ("steps", "deep"),
        ("tail", "deep", "--once"),
    ):
        assert call(*command).exit_code == 0, command


def test_numbers_of_any_length_are_shown(place: Path, call: Call, document: Document) -> None:
    long = 10**5000
    with sync.open(place / "holdfast.db") as store:
        store.save("long", {"key": {long: 1, (long, 2): 3}, "part": Fraction(1, 3**18_000)}, metadata={"n": long})
        with store.run("steps") as run:
            run.step("one", lambda number: number + 1, long)
    state = document("state", "long")["state"]
    assert list(state["key"].values()) == [1, 3]
    assert "too long to show" in state["part"]
    for command in (("show", "long"), ("show", "steps"), ("steps", "steps")):
        assert call(*command).exit_code == 0, command
