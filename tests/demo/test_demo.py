"""`holdfast demo`: its processes are real, and so are its promises."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.demo import payments
from holdfast.demo.children import Child, ChildFailed
from kinds import ON_DISK, parameters, url_of
from patience import GIVE_UP_SECONDS

pytestmark = pytest.mark.processes

QUICK = ("--pace", "0.02")
SQLITE_AND_RARELY_FILE = parameters(*ON_DISK, quick={"sqlite"}, rare={"file"})
BARE_PATH = "/usr/bin:/bin"
"""Of a shell that does not know of the command."""


def holdfast(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", *arguments]
    environment = {**os.environ, "PATH": BARE_PATH}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False
    )


def summary_of(*arguments: str, cwd: Path) -> dict[str, Any]:
    done = holdfast("demo", *arguments, "--json", cwd=cwd)
    assert done.returncode in {0, 1}, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if summary["ok"] else 1)
    return summary


@pytest.mark.parametrize("kind", SQLITE_AND_RARELY_FILE)
def test_an_agent_killed_after_its_payment_resumes_and_pays_once(kind: str, tmp_path: Path) -> None:
    summary = summary_of("crash", *QUICK, "--store", url_of(kind, tmp_path), cwd=tmp_path)
    assert summary["ok"]
    assert summary["steps_done_before_the_kill"] == summary["steps_from_the_checkpoint"] == 2
    assert (summary["refund_requests"], summary["idempotency_keys"], summary["refunds"]) == (2, 1, 1)
    assert summary["result"] == "Order 1042: your refund R-1 is on its way."
    assert summary["replay_milliseconds"] < 1000 * summary["seconds"]


def test_the_same_agent_without_holdfast_pays_twice(tmp_path: Path) -> None:
    summary = summary_of("crash", "--without", *QUICK, cwd=tmp_path)
    assert summary["refunds"] == 2


@pytest.mark.parametrize("scene", ["crash", "approve", "fork"])
def test_the_commands_that_a_demo_leaves_work_when_pasted(scene: str, tmp_path: Path) -> None:
    """As they stand on the screen, one after the other, in another directory."""
    done = holdfast("demo", scene, *QUICK, "--store", "file:agents" if scene == "fork" else "agents.db", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\033" not in done.stdout
    pasted = [line.strip() for line in done.stdout.partition("Look at what is left:")[2].splitlines() if line.strip()]
    commands = [re.split(r"  +", line)[0] for line in pasted]
    assert len(commands) == 6
    shell = "\n".join(["set -e", *(command for command in commands if "demo" not in command.split()[:2])])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ran = subprocess.run(
        ["sh", "-c", shell],
        cwd=elsewhere,
        env={"PATH": BARE_PATH},
        capture_output=True,
        text=True,
        timeout=GIVE_UP_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "search the order" in ran.stdout
    assert "forked ticket-8812@2." in ran.stdout
    assert {"crash": "R-1", "approve": "ana", "fork": "found.charged: 2"}[scene] in ran.stdout


def test_a_fork_shows_what_the_command_line_shows(tmp_path: Path) -> None:
    done = holdfast("demo", "fork", *QUICK, "--store", "agents.db", cwd=tmp_path)
    shown = done.stdout.partition("What differs:")[2].partition("\n\n")[0].splitlines()
    command = shown[0].split()[1:]
    printed = holdfast(*command, "--store", "agents.db", cwd=tmp_path).stdout
    assert [line.removeprefix("  ") for line in shown[1:]] == printed.splitlines()
    assert len(printed.splitlines()) == 2


def test_an_approval_takes_three_processes_and_a_fork_pays_nothing(tmp_path: Path) -> None:
    """On one store: the second demo finds the thread of the first, and takes another."""
    store = ("--store", url_of("sqlite", tmp_path))
    approved = summary_of("approve", *QUICK, *store, cwd=tmp_path)
    assert approved["ok"]
    assert (approved["processes"], approved["steps_from_the_checkpoint"], approved["refunds"]) == (3, 2, 1)
    forked = summary_of("fork", *QUICK, *store, cwd=tmp_path)
    assert forked["ok"]
    assert (approved["thread"], forked["thread"]) == ("ticket-8812", "ticket-8812-2")
    assert (forked["changes"], forked["refunds"]) == ([["found", "charged"], ["messages", 0]], 1)


def test_the_demo_refuses_what_its_processes_could_not_share(tmp_path: Path) -> None:
    done = holdfast("demo", "crash", "--store", "memory:", cwd=tmp_path)
    assert done.returncode == 2
    assert "give a path" in done.stderr


def test_without_is_for_the_crash_alone(tmp_path: Path) -> None:
    assert holdfast("demo", "fork", "--without", cwd=tmp_path).returncode == 2


# Random kills


@pytest.mark.parametrize("kind", SQLITE_AND_RARELY_FILE)
def test_random_kills_lose_no_step_and_repeat_no_effect(kind: str, tmp_path: Path) -> None:
    summary = summary_of("chaos", "--kills", "3", "--store", url_of(kind, tmp_path), cwd=tmp_path)
    assert summary["ok"], summary
    assert (summary["lost_steps"], summary["repeated_effects"], summary["changed_keys"]) == (0, 0, 0)
    assert (summary["unfinished_threads"], summary["effects_without_record"]) == (0, 0)
    assert summary["threads"] == summary["refunds"] > 0
    assert summary["steps_acknowledged"] > summary["threads"]


def test_refunds_without_their_key_are_found_repeated(tmp_path: Path) -> None:
    """The counter-test: kills enough that one falls between a booking and its record."""
    summary = summary_of("chaos", "--kills", "8", "--sabotage", "keys", cwd=tmp_path)
    assert not summary["ok"]
    assert summary["repeated_effects"] > 0
    assert summary["lost_steps"] == 0


@pytest.mark.parametrize("kind", ON_DISK)
def test_a_store_that_forgets_is_found_out(kind: str, tmp_path: Path) -> None:
    """The other counter-test: what was acknowledged is taken away from the disk."""
    url = url_of(kind, tmp_path)
    summary = summary_of("chaos", "--kills", "3", "--sabotage", "disk", "--store", url, cwd=tmp_path)
    assert not summary["ok"]
    assert summary["lost_steps"] > 0


# The payment service


def test_the_service_books_once_for_a_key_and_each_time_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    for _ in range(2):  # its memory is its ledger: a new process knows what the old one booked
        with Child("holdfast.demo.payments", str(ledger), "0", "0") as service:
            monkeypatch.setenv(payments.VARIABLE, service.wait_for("listening")["address"])
            assert payments.refund("1", 100, "a key") == payments.refund("1", 100, "a key") == "R-1"
    with Child("holdfast.demo.payments", str(ledger), "0", "0") as service:
        monkeypatch.setenv(payments.VARIABLE, service.wait_for("listening")["address"])
        assert [payments.refund("1", 100, "") for _ in range(2)] == ["R-2", "R-3"]
    assert [entry["receipt"] for entry in payments.read_ledger(ledger)] == ["R-1", "R-2", "R-3"]


def test_a_process_that_ends_by_itself_is_reported_with_its_last_error(tmp_path: Path) -> None:
    place = tmp_path / "missing" / "agents.db"
    with (
        Child("holdfast.demo.worker", "run", "", "t", HOLDFAST_STORE=f"sqlite:{place}") as worker,
        pytest.raises(ChildFailed, match=r"exit code 1: .*does not exist; create it first"),
    ):
        worker.wait_for("ended")


def test_the_help_has_a_line_for_each_scene(tmp_path: Path) -> None:
    lines = [line.split() for line in holdfast("demo", "--help", cwd=tmp_path).stdout.splitlines()]
    assert [words[0] for words in lines if words and words[0] in {"crash", "approve", "fork", "chaos"}] == [
        "crash",
        "approve",
        "fork",
        "chaos",
    ]
