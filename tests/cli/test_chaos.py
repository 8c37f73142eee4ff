"""`holdfast chaos`: good functions survive it, and each kind of fault is found."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.chaos.order import Note
from holdfast.chaos.trial import ChaosTrial
from holdfast.chaos.verdict import judge
from holdfast.testing.crash_engine import run_lives, sampled
from kinds import url_of
from patience import GIVE_UP_SECONDS

pytestmark = pytest.mark.processes

PROGRAM = """
import asyncio
import os
import random
import sys
import time
from pathlib import Path

import holdfast
import holdfast.sync


@holdfast.step
def look(number):
    print("what a function prints is nobody's concern")
    return number * 2


@holdfast.step(effect=True)
def pay(number, *, idempotency_key=""):
    return number + 1


@holdfast.step(effect=True)
def pay_without_key(number):
    return number + 1


@holdfast.step
def model(number):
    return random.random()


@holdfast.step
async def fetch(number):
    await asyncio.sleep(0.001)
    return number * 3


agent = holdfast.sync.Agent(look)


@holdfast.sync.durable
def good(number):
    return pay(look(number))


@holdfast.durable
async def good_async(number):
    first, second = await asyncio.gather(fetch(number), fetch(number + 1))
    answer = await holdfast.ask("how many", choices=("all", "none"))
    return [first, second, answer.choice]


@holdfast.sync.durable
def talking(number):
    with holdfast.sync.Orchestrator("writer", "draft").session("talk") as session:
        return session.run_turn(lambda: number, idempotency_key="turn").value


@holdfast.sync.durable
def moody(number):
    return pay(model(number))


@holdfast.sync.durable
def careless(number):
    found = look(number)
    with Path("mails.txt").open("a") as mails:
        mails.write("Dear customer\\n")
    return pay(found)


@holdfast.sync.durable
def doubtful(number):
    return pay_without_key(look(number))


@holdfast.sync.durable
def timed(number):
    return [look(number), time.time_ns()]


@holdfast.sync.durable
def wayward(number):
    holdfast.sync.current().step(f"by process {os.getpid()}", look, number)
    return pay(number)


@holdfast.sync.durable
def listed(number):
    return " ".join(sys.orig_argv[1:])


@holdfast.sync.durable
def failing(number):
    raise ValueError("always")


def plain(number):
    return number
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a user's module."""
    directory = tmp_path_factory.mktemp("program")
    (directory / "app.py").write_text(PROGRAM)
    return directory


def chaos(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", "chaos", *arguments]
    return subprocess.run(command, cwd=program, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)


def verdict(program: Path, *arguments: str) -> dict[str, Any]:
    done = chaos(program, *arguments, "--json")
    assert done.returncode in {0, 1}, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if document["ok"] else 1)
    return document


def problems_of(document: dict[str, Any]) -> set[str]:
    return {problem for row in document["rows"] for problem in row["problems"]}


@pytest.mark.slow
def test_a_good_function_survives_a_kill_at_every_point(program: Path) -> None:
    document = verdict(program, "app:good", "4")
    assert document["ok"]
    assert (document["result"], document["note"]) == ("9", "")
    rows = document["rows"]
    assert [row["point"] for row in rows] == list(range(1, document["points"] + 1))
    assert all(row["reached"] and row["result_equal"] and row["keys_equal"] for row in rows)
    again = {row["what"]: row["executed_again"] for row in rows if row["executed_again"]}
    assert again == {
        "after executing look": {"look": 2},
        "before saving the result of look": {"look": 2},
        "after executing pay": {"pay": 2},
        "before saving the result of pay": {"pay": 2},
    }
    assert not list(program.glob("*.db"))


def test_an_async_function_that_asks_survives_on_a_store_of_choice(program: Path, tmp_path: Path) -> None:
    url = url_of("file", tmp_path)
    document = verdict(program, "app:good_async", "4", "--answer", "how many=all", "--max-points", "3", "--store", url)
    assert document["ok"], problems_of(document)
    assert document["result"] == "[12, 15, 'all']"
    assert len(document["rows"]) == 3 < document["points"]


def test_the_url_of_a_store_is_in_no_argument_of_a_child(program: Path, tmp_path: Path) -> None:
    """Every user of a machine can list arguments, and a URL may have a password."""
    document = verdict(program, "app:listed", "4", "--max-points", "1", "--store", url_of("file", tmp_path))
    assert document["result"] == "'-m holdfast.chaos.child'"


def test_the_default_store_of_what_is_within_it_is_not_your_own(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "mine.db")
    document = verdict(program, "app:talking", "4", "--max-points", "2")
    assert document["ok"], problems_of(document)
    assert not list(program.glob("*.db*"))


def test_steps_that_give_another_result_each_time_are_reported_and_are_fine(program: Path) -> None:
    document = verdict(program, "app:moody", "4", "--max-points", "1")
    assert document["ok"], problems_of(document)
    assert "Two undisturbed runs gave different results" in document["note"]


def test_an_effect_outside_of_a_step_is_found(program: Path) -> None:
    document = verdict(program, "app:careless", "4", "--max-points", "4")
    assert not document["ok"]
    (problem,) = problems_of(document)
    assert "outside of any step: writing to mails.txt in line" in problem
    assert "done 2 times, undisturbed 1; put it in a step" in problem


def test_another_way_through_the_steps_is_found_though_the_result_is_the_same(program: Path) -> None:
    document = verdict(program, "app:wayward", "4", "--max-points", "3")
    assert not document["ok"]
    assert all(row["result_equal"] for row in document["rows"])
    assert all(
        problem.startswith("when it was started again it took other steps, and not by process")
        for problem in problems_of(document)
    )


def test_what_was_executed_again_without_its_key_is_reported(program: Path) -> None:
    done = chaos(program, "app:good", "4", "--max-points", "6")
    assert done.returncode == 0
    assert re.search(r"before saving the result of look +equal +look 2x +none\n", done.stdout)
    assert re.search(r"before saving the result of pay +equal +pay 2x +same\n", done.stdout)
    assert "Executed again without an idempotency key: look. Fine for steps that only read or think" in done.stdout


def test_an_effect_without_an_idempotency_key_is_found_in_doubt(program: Path) -> None:
    done = chaos(program, "app:doubtful", "4", "--max-points", "4")
    assert done.returncode == 1
    assert "4 of 16 points were tried, at even distances" in done.stdout
    assert "at 11: it raised StepInDoubt" in done.stdout
    assert "let the function take idempotency_key=" in " ".join(done.stdout.split())
    assert done.stdout.splitlines()[-1] == "app:doubtful does not survive: 1 of 4 kills made a difference."
    assert "\033" not in done.stdout


def test_a_result_that_depends_on_the_time_is_reported_first(program: Path) -> None:
    done = chaos(program, "app:timed", "4")
    assert done.returncode == 1
    assert done.stdout.startswith("Two runs from the same recorded steps gave different results")
    assert done.stdout.splitlines()[-1].startswith("app:timed cannot survive")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("app:failing", "4"), 1, "app:failing fails without being killed: it raised ValueError: always"),
        (("app:plain", "4"), 2, "app:plain is not a durable function"),
        (("app:agent", "4"), 2, "app:agent is an Agent, and chaos is for durable functions"),
        (("app:missing",), 2, "error: app:missing: app has no 'missing'"),
        (("apq:good", "4"), 2, "error: apq:good: no module 'apq' found here"),
        (("app", "4"), 2, "error: app: give MODULE:FUNCTION, such as agent:support"),
        (("./app.py:good", "4"), 2, "error: ./app.py:good: give MODULE:FUNCTION, such as agent:support"),
        (("app:good_async", "4"), 2, "it asks 'how many', and waits: give --answer 'how many=...' (one of: all, none)"),
        (("app:good", "4", "--store", "memory:"), 2, "does not survive a killed process"),
        (("app:good", "4", "--timeout", "0.01"), 1, "did not end within 0.01 s"),
        (("app:good", "4", "--answer", "nonsense"), 2, "is not NAME=VALUE"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_tried_is_refused_with_a_reason(
    program: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = chaos(program, *arguments)
    assert done.returncode == code
    assert message in done.stderr


# The judgement


def executes(*steps: str, key: str = "k") -> list[Note]:
    return [Note(kind="executes", what=step, key=key) for step in steps]


def recorded(*steps: str) -> list[Note]:
    return [Note(kind=kind, what=step) for step in steps for kind in ("recorded", "replays")]


RESULT = Note(kind="returned", what="9", value="9")


def trial(*lives: list[Note], failure: str = "") -> ChaosTrial:
    """A trial whose children wrote these notes; all but the last were killed."""

    def live(number: int, _: int) -> bool:
        found.failure = failure
        found.read([*lives[number - 1], Note(kind="point", what="after it")])
        return number < len(lives)

    found = ChaosTrial(crash_at=(7,))
    return run_lives(found, live)


CALM = trial([*executes("look", "pay"), RESULT])
KILLED = executes("look", "pay")


def test_a_step_that_was_under_way_may_be_executed_once_more() -> None:
    row = judge(trial(KILLED, [*recorded("look"), *executes("pay"), RESULT]), CALM, CALM)
    assert row.ok
    assert row.executed_again == {"pay": 2}


@pytest.mark.parametrize(
    ("second", "failure", "problem"),
    [
        ([*recorded("look"), *executes("look", "pay"), RESULT], "", "step look ran again after it was acknowledged"),
        ([*recorded("look"), *executes("pay", "pay"), RESULT], "", "step pay ran 3 times, expected at most 2"),
        ([*executes("look"), *executes("pay", key="b"), RESULT], "", "step pay ran with 2 different idempotency keys"),
        (
            [*executes("pay"), Note(kind="returned", what="8", value="8")],
            "",
            "its result is 8, but undisturbed it is 9",
        ),
        ([*executes("pay"), Note(kind="raised", what="Oops")], "", "it raised Oops"),
        (executes("pay"), "it hangs", "it hangs"),
        ([*executes("pay"), RESULT], "", "when it was started again it took other steps, and not look"),
        (
            [*executes("pay"), *[Note(kind="outside", what="mailing")] * 2, RESULT],
            "",
            "outside of any step: mailing, done 2 times",
        ),
    ],
)
def test_every_difference_is_a_problem(second: list[Note], failure: str, problem: str) -> None:
    row = judge(trial(KILLED, second, failure=failure), CALM, CALM)
    assert [each for each in row.problems if each.startswith(problem)]
    assert not row.ok


def test_steps_within_one_that_is_done_and_steps_of_a_thread_that_is_complete_are_not_reached() -> None:
    within = executes("look", "look/inner", "pay")
    calm = trial([*within, RESULT])
    assert judge(trial(within, [*recorded("look"), *executes("pay"), RESULT]), calm, calm).ok
    assert judge(
        trial(KILLED, [Note(kind="recorded", what=step) for step in ("look", "pay")] + [RESULT]), CALM, CALM
    ).ok


def test_points_are_sampled_at_even_distances_with_both_ends() -> None:
    assert sampled(5, None) == sampled(5, 9) == [1, 2, 3, 4, 5]
    assert sampled(18, 4) == [1, 6, 12, 18]
    assert sampled(9, 1) == [5]
