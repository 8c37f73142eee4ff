"""Answers from the command line, and threads that go on after them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import split
from time import sleep
from typing import Any

import pytest

from cli.conftest import Call
from holdfast import sync
from holdfast.codec import encode
from holdfast.ports import run_blocking
from holdfast.runs.driver import Driver
from unregistered import forget

Document = Callable[..., Any]


def test_a_question_is_answered_and_the_thread_goes_on(call: Call, document: Document) -> None:
    assert [request["thread_id"] for request in document("requests")] == ["ticket-1"]
    answered = document("approve", "ticket-1", "--by", "ana", "--comment", "a good customer")
    assert answered["choice"] == "approve"
    assert call("requests").stdout == "no open requests\n"
    assert [request["status"] for request in document("show", "ticket-1")["requests"]] == ["answered"]
    resumed = document("resume", "ticket", "--app", "shop:refund")
    assert (resumed["status"], resumed["result"]) == ("complete", "paid 40")
    answer = document("requests", "--status", "answered")[0]["answer"]
    assert (answer["by"], answer["comment"]) == ("ana", "a good customer")
    assert [step["action"] for step in document("steps", "ticket-1")["steps"]] == ["find", "pay"]


def test_a_thread_that_asks_before_it_has_a_checkpoint_shows_what_it_asks(call: Call, document: Document) -> None:
    with sync.open("holdfast.db") as store, pytest.raises(sync.Suspended), store.run("early") as run:
        run.ask("may I?")
    shown = document("show", "early", "--journal")
    assert [request["name"] for request in shown["requests"]] == ["may I?"]
    assert len(shown["checkpoints"]) == 1
    assert "may I?" in call("show", "early").stdout


def test_a_thread_that_was_answered_and_not_run_since_is_told(call: Call) -> None:
    assert "answered, and not run" not in call("doctor").stdout
    call("approve", "ticket-1", "--by", "ana")
    assert "answered, and not run since: ticket-1" in call("doctor").stdout
    assert "ana" in call("show", "ticket-1").stdout


def ask_as(store: sync.Store, function: str) -> None:
    """A thread that this function started, and that asks."""
    with store.run("it's mine") as run:
        run_blocking(Driver(run._run).start(function, encode([[40], {}])))
        run.confirm("sure?")


def test_a_command_to_paste_is_quoted(call: Call) -> None:
    with sync.open("holdfast.db") as store, pytest.raises(sync.Suspended):
        ask_as(store, "shop:refund")
    assert "holdfast resume 'it'\"'\"'s mine' --app shop:refund" in call("approve", "it's mine").stdout


def test_a_request_about_an_object_of_an_unknown_class_is_listed_and_answered(
    call: Call, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    @sync.storable(name="desk.Refund")
    @dataclass
    class Refund:
        amount: int

    with sync.open("holdfast.db") as store, pytest.raises(sync.Suspended), store.run("other") as run:
        run.confirm("refund", Refund(7))
    forget(Refund, monkeypatch)
    assert {"other", "ticket-1"} <= {request["thread_id"] for request in document("requests")}
    assert "desk.Refund" in call("requests").stdout
    assert document("approve", "other")["choice"] == "approve"


def test_an_answer_is_given_once(call: Call) -> None:
    call("reject", "ticket-1")
    call("approve", "ticket-1", code=4)
    assert "refused" in call("resume", "ticket", "--app", "shop:refund").stdout
    call("approve", "ticket-1", code=4)


def test_a_thread_that_waits_says_for_what(call: Call, document: Document) -> None:
    waiting = document("resume", "ticket-1", "--app", "shop:refund", code=5)
    assert waiting["status"] == "input_required"
    assert waiting["requests"][0]["choices"] == ["approve", "reject"]
    assert "waits for an answer" in call("resume", "ticket-1", "--app", "shop:refund", code=5).stdout


def test_a_value_comes_as_json_from_a_file_or_from_standard_input(call: Call, document: Document, place: Path) -> None:
    with sync.open("holdfast.db") as store:
        for name in ("a", "b", "c"):
            with pytest.raises(sync.Suspended), store.run(f"asks-{name}") as run:
                run.ask("amount")
    (place / "value.json").write_text('{"amount": 2}')
    document("answer", "asks-a", "--value", '{"amount": 1}')
    document("answer", "asks-b", "--value", "@value.json")
    call("answer", "asks-c", "--value", "-", text='{"amount": 3}')
    given = {each["thread_id"]: each["answer"]["value"] for each in document("requests", "--status", "answered")}
    assert given == {f"asks-{name}": {"amount": number} for number, name in enumerate("abc", 1)}
    call("answer", "ticket-1", "--value", "@nowhere.json", code=2)


def test_an_answer_that_lacks_what_is_asked_is_refused(call: Call, document: Document) -> None:
    with sync.open("holdfast.db") as store, pytest.raises(sync.Suspended), store.run("asks") as run:
        run.ask("how much")
    assert "'how much' has no choices, it takes a value: holdfast answer" in call("answer", "asks", code=2).stderr
    for arguments in (["answer", "ticket-1"], ["answer", "ticket-1", "--value", "1"]):
        assert "request 'refund' takes one of: approve, reject" in call(*arguments, code=2).stderr
    assert len(document("requests")) == 2
    assert document("answer", "asks", "--value", "null")["value"] is None


@pytest.mark.parametrize("choice", [["approve"], ["reject"], ["answer", "much"]])
def test_a_choice_for_a_request_without_choices_is_refused_with_the_command_that_answers_it(
    call: Call, document: Document, choice: list[str]
) -> None:
    with sync.open("holdfast.db") as store, pytest.raises(sync.Suspended), store.run("it's mine") as run:
        run.ask("tool_approval")
    command, *given = choice
    for value in ([], ["--value", "1"]):
        said = call(command, "it's mine", *given, *value, code=2).stderr
    advised = split(said.partition("takes a value: holdfast ")[2])
    call(*advised)
    answered = {each["thread_id"]: each["answer"]["value"] for each in document("requests", "--status", "answered")}
    assert answered == {"it's mine": choice[-1]}


def test_a_request_past_its_deadline_is_among_the_expired_ones(call: Call, document: Document) -> None:
    with sync.open("holdfast.db") as store, pytest.raises(sync.Suspended), store.run("late") as run:
        run.ask("anybody?", deadline=1)
    while not (expired := document("requests", "--status", "expired")):
        sleep(0.1)
    assert [request["thread_id"] for request in expired] == ["late"]
    assert "deadline passed" in call("requests").stdout
    call("answer", "late", "--value", "1", code=4)
    with sync.open("holdfast.db") as store, pytest.raises(sync.RequestExpired), store.run("late") as run:
        run.ask("anybody?", deadline=1)
    assert [request["status"] for request in document("requests", "--status", "expired")] == ["expired"]


def test_the_value_that_goes_with_done_is_the_result_of_the_step_in_doubt(call: Call, document: Document) -> None:
    def pay(store: sync.Store, function: Callable[[], str]) -> Any:
        with store.run("a-thread-with-a-rather-long-name-that-takes-room") as run:
            return run.step("pay", function, effect=True, on_doubt="ask")

    def die() -> str:
        raise KeyboardInterrupt

    with sync.open("holdfast.db") as store:
        with pytest.raises(KeyboardInterrupt):
            pay(store, die)
        with pytest.raises(sync.Suspended) as suspended:
            pay(store, str)
        request = suspended.value.requests[0]
        said = call("requests").stdout
        assert f'"idempotency_key": "{request.payload["idempotency_key"]}"' in said
        assert "with done, --value JSON is the step's result" in said
        call("answer", request.thread_id, "done", "--value", '"P-9"')
        assert pay(store, str) == "P-9"


def test_a_fork_goes_on_with_another_result(document: Document) -> None:
    fork = document("fork", "ticket-1@3", "--to", "what-if", "--result", 'find={"amount": 7}')
    assert fork["thread_id"] == "what-if"
    assert fork["origin"].startswith("ticket-1@3.")
    asked = document("resume", "what-if", "--app", "shop:refund", code=5)["requests"][0]
    assert asked["payload"] == {"amount": 7}
    assert document("requests")[1]["payload"] == {"amount": 40}


def test_a_fork_begins_with_another_state(document: Document) -> None:
    made = document("fork", "user-42@1", "--state", '{"plan": []}')["thread_id"]
    assert document("state", made)["state"] == {"plan": []}
    assert document("state", "user-42@1")["state"] != {"plan": []}


def test_a_fork_says_what_is_executed_again_and_what_its_state_does_not_change(call: Call) -> None:
    again = "effects after this checkpoint are executed again when the fork is resumed, with new idempotency keys"
    only = "--state changed only the stored state; its durable function is replayed from step results (--result)"
    plain = call("fork", "ticket-1@3").stdout
    assert again in plain
    assert only not in plain
    assert only in call("fork", "ticket-1@3", "--state", "{}").stdout
    assert only not in call("fork", "user-42", "--state", "{}").stdout
    said = " ".join(call("fork", "--help").stdout.split())
    assert again.capitalize() in said
    assert "--state changes only the stored state" in said


def test_a_function_that_fails_is_one_line(call: Call, place: Path) -> None:
    call("approve", "ticket-1")
    source = (place / "shop.py").read_text()
    (place / "shop.py").write_text(source.replace('return {"paid": amount}', 'raise OSError("no network")'))
    said = call("resume", "ticket", "--app", "shop:refund", code=1).stderr
    assert said.startswith("error: ")
    assert "no network" in said
    assert said.count("\n") == 1


def test_what_the_program_prints_is_no_part_of_the_document(call: Call, document: Document, place: Path) -> None:
    call("approve", "ticket-1")
    source = (place / "shop.py").read_text()
    (place / "shop.py").write_text(source.replace("    return {", '    print("at work")\n    return {'))
    assert document("resume", "ticket", "--app", "shop:refund")["result"] == "paid 40"


def test_what_was_answered_is_recovered(document: Document, call: Call) -> None:
    assert document("recover", "--app", "shop") == {
        "completed": [],
        "open": [],
        "suspended": [],
        "failed": [],
        "skipped": [],
        "reasons": {},
        "errors": {},
        "damaged": [],
        "note": "",
    }
    call("approve", "ticket-1")
    assert document("recover", "--app", "shop")["completed"] == ["ticket-1"]
    assert call("recover", "--app", "shop").stdout == "nothing to recover\n"


def test_an_awaitable_function_is_resumed_in_an_event_loop(document: Document, place: Path) -> None:
    source = "import holdfast\n@holdfast.durable\nasync def double(x: int) -> int:\n    return 2 * x\n"
    (place / "later.py").write_text(
        source + "import asyncio\nif __name__ == '__main__':\n    asyncio.run(double.run('l', 4))\n"
    )
    import subprocess
    import sys

    subprocess.run([sys.executable, "later.py"], check=True)
    try:
        assert document("resume", "l", "--app", "later:double")["result"] == 8
    finally:
        sys.modules.pop("later", None)


def test_cancelling_is_a_dry_run_first(call: Call, document: Document) -> None:
    assert document("cancel", "ticket-1")["dry_run"] is True
    assert "would cancel ticket-1" in call("cancel", "ticket-1").stdout
    assert document("show", "ticket-1")["thread"]["status"] == "input_required"
    assert document("cancel", "ticket-1", "--yes")["status"] == "cancelled"
    assert "nothing to cancel" in call("cancel", "ticket-1", "--yes").stdout


def test_a_live_run_is_told_to_end(document: Document) -> None:
    def work(store: sync.Store) -> None:
        with store.run("alive") as run:
            run.step("one", lambda: 1)
            assert document("cancel", "alive", "--yes")["told"] is True
            while True:
                run.sleep(0.05)

    with sync.open("holdfast.db", inline=False) as store, pytest.raises(sync.RunCancelled):
        work(store)
    assert document("show", "alive")["thread"]["status"] == "cancelled"
