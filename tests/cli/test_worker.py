"""`holdfast worker --once`, `holdfast queues` and `holdfast retry --queue`, as a person calls them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Call
from holdfast import sync
from holdfast.runs.durable import registry

APP = """
import holdfast.sync as holdfast

@holdfast.durable(name="duty:greet", queue="polite")
def greet(name: str) -> str:
    if name == "nobody":
        raise ValueError("who?")
    return f"hello {name}"
"""


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an app, whose file is in the working directory."""
    registry.pop("duty:greet", None)
    Path("duty.py").write_text(APP)
    monkeypatch.syspath_prepend(".")
    monkeypatch.delitem(sys.modules, "duty", raising=False)
    return "duty.py"


def test_a_worker_runs_what_is_due_and_says_so(call: Call, app: str) -> None:
    call("submit", "duty:greet", "t-1", "ana", "--queue", "polite")
    call("submit", "duty:greet", "t-2", "nobody", "--queue", "polite")
    said = call("worker", app, "--once", "--alive", "alive", "--store", "holdfast.db").stdout
    assert sorted(said.splitlines()) == ["t-1 completed", "t-1 runs", "t-2 failed: ValueError", "t-2 runs"]
    assert Path("alive").exists()
    with sync.open("holdfast.db") as store:
        assert store.outcome("t-1").result == "hello ana"


@pytest.mark.usefixtures("call")
def test_a_worker_says_what_it_serves_and_shows_warnings(app: str) -> None:
    Path(app).write_text(APP + "\nimport logging\nlogging.getLogger('holdfast').warning('the store is away')\n")
    command = [sys.executable, "-m", "holdfast", "worker", app, "--once", "--store", "holdfast.db"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert said.splitlines() == ["the store is away", "serves duty:greet"]


def test_the_queues_are_shown_with_their_functions(call: Call) -> None:
    assert call("queues").stdout.startswith(("QUEUE", "no queue"))
    call("submit", "duty:greet", "t-1", "ana", "--queue", "polite")
    found = {info["name"]: info for info in json.loads(call("queues", "--json").stdout)}
    assert (found["polite"]["ready"], found["polite"]["functions"]) == (1, ["duty:greet"])
    assert "polite" in call("queues").stdout


def test_the_failed_threads_of_a_queue_are_put_back(call: Call, app: str) -> None:
    for queue in ("polite", "default"):
        call("submit", "duty:greet", queue, "nobody", "--queue", queue)
    call("worker", app, "--once", "--store", "holdfast.db")
    assert call("retry", "--queue", "polite").stdout.startswith("would retry  polite\n")
    assert json.loads(call("retry", "--queue", "polite", "--yes", "--json").stdout)["threads"] == ["polite"]
    with sync.open("holdfast.db") as store:
        assert [str(store.thread(name).status) for name in ("polite", "default")] == ["queued", "failed"]


@pytest.mark.parametrize("wrong", [["nowhere.py"], ["no.such.module"], ["duty.py", "--concurrency", "0"], []])
def test_a_wrong_call_is_refused(call: Call, app: str, wrong: list[str]) -> None:
    call("worker", *wrong, "--once", code=2)


def test_a_store_that_cannot_be_opened_ends_the_worker_with_1(call: Call, app: str) -> None:
    call("worker", app, "--once", "--store", "redis://127.0.0.1:1/0?patience=0.1", code=1)
