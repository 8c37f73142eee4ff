"""An argument of a wrong type or value is refused with an error of ours that names it, and nothing is written."""

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import sync
from holdfast.records.errors import (
    ConfigurationError,
    HoldfastError,
    InvalidAnswer,
    InvalidId,
    NotFound,
    UnstorableValue,
)
from kinds import url_of

NOT_A_STR = (5, 1.5, True, b"t", ["t"], object())
NOT_AN_INT = ("1", 1.5, True, [1], object())
NOT_A_MAPPING = (5, "text", ["a"], object())
NOT_A_PATH = (5, None, b"bytes", ["x"], object(), "", "nul\0byte")
NOT_KEYS = (5, "k" * 32, b"short", {"k": b"k" * 32})
NOT_A_DURATION: tuple[Any, ...] = ("x", [], object(), True, float("nan"), float("inf"), -1, timedelta(-1))
NOT_LABELS = (*NOT_A_MAPPING, {1: "a"}, {"a": 1}, {"a": None})


class Wrong(NamedTuple):
    """An argument by name, what it must not be, and the error for it, which names it (or calls it `named`)."""

    argument: str
    values: tuple[Any, ...]
    error: type[HoldfastError] = ConfigurationError
    named: str = ""


THREAD = Wrong("thread_id", (*NOT_A_STR, None, "", "\ud800", "x" * 600), InvalidId, "thread id")
CHECKPOINT = Wrong("checkpoint_id", (*NOT_A_STR, None), InvalidId, "checkpoint id")
LIMIT = Wrong("limit", (*NOT_AN_INT, None, 0, -1, 10**9))
CURSOR = Wrong("cursor", (5, 1.5, b"x", "nonsense", "", [], object()))
LABELS = Wrong("labels", NOT_LABELS, UnstorableValue, "label")
LEASE = Wrong("lease", (*NOT_A_DURATION, None, 0))
PATH = Wrong("path", NOT_A_PATH)
KEYS = Wrong("keys", NOT_KEYS)
PROGRESS = Wrong("progress", (5, "print"))
TO = Wrong("to", (*NOT_A_STR, "", "\ud800", "x" * 600), InvalidId, "thread id")

METHODS: dict[str, tuple[Wrong, ...]] = {
    "save": (
        THREAD,
        Wrong("state", (object(), {"a": object()}, {object()}), UnstorableValue),
        Wrong("metadata", (*NOT_A_MAPPING, {1: "a"}, {"a": object()}), UnstorableValue),
        LABELS,
        Wrong("phase", (*NOT_A_STR, "nonsense")),
        Wrong("cause", (*NOT_A_STR, None, "nonsense")),
        Wrong("status", (*NOT_A_STR, None, "nonsense")),
        Wrong("idempotency_key", (*NOT_A_STR, "")),
        Wrong("expect_seq", (*NOT_AN_INT, -1)),
    ),
    "append": (
        THREAD,
        Wrong("path", (5, None, b"x", [], [5], ["a", None], object(), {"a"}), UnstorableValue),
        Wrong("item", (object(), {"a": object()}), UnstorableValue),
    ),
    "latest": (THREAD,),
    "load": (CHECKPOINT, Wrong("checkpoint_id", ("", "x", "x@", "x@1", "x@one.ff"), NotFound, "checkpoint id")),
    "get": (THREAD, Wrong("seq", (*NOT_AN_INT, None), NotFound)),
    "history": (
        THREAD,
        Wrong("cursor", ("x", 1.5, True, b"1", [], object())),
        LIMIT,
        Wrong("where", NOT_A_MAPPING),
    ),
    "threads": (
        Wrong("status", (5, True, b"idle", "nonsense", ["nonsense"], [5], [None], object())),
        LABELS,
        CURSOR,
        LIMIT,
    ),
    "thread": (THREAD,),
    "fork": (
        CHECKPOINT,
        TO,
        Wrong("state", (object(), {"a": object()}), UnstorableValue),
        Wrong("results", NOT_A_MAPPING),
    ),
    "diff": (CHECKPOINT._replace(argument="checkpoint_id_a"), CHECKPOINT._replace(argument="checkpoint_id_b")),
    "delete": (THREAD,),
    "revive": (THREAD,),
    "delete_checkpoint": (CHECKPOINT,),
    "pin": (CHECKPOINT,),
    "erase": (THREAD,),
    "prune": (Wrong("retention", (5, "x", {"keep_last": 1}, timedelta(1), sync.Retention)), PROGRESS),
    "export": (THREAD, PATH, KEYS),
    "import_": (PATH, TO, KEYS),
    "backup": (PATH,),
    "copy_to": (Wrong("target", (5, None, "other.db", object())),),
    "verify": (PROGRESS,),
    "on_event": (Wrong("callback", (None, 5, "print")),),
    "run": (THREAD, LABELS, LEASE, Wrong("wait", NOT_A_DURATION)),
    "recover": (Wrong("handler", (5, "print")), LABELS, Wrong("max_attempts", (*NOT_AN_INT, None, 0)), LEASE),
    "cancel": (THREAD,),
    "outcome": (THREAD,),
    "retry": (THREAD,),
    "handle": (THREAD,),
    "submit": (
        THREAD,
        Wrong("function_name", (*NOT_A_STR, None, "")),
        Wrong("args", (5, "text", {"a": 1}, None, object())),
        Wrong("kwargs", NOT_A_MAPPING),
        Wrong("queue", (*NOT_A_STR, "", "q" * 129)),
        Wrong("priority", (*NOT_AN_INT, None, 3, -3)),
        Wrong("delay", NOT_A_DURATION),
        Wrong("at", (5, "now", datetime(2026, 1, 1), object())),  # noqa: DTZ001  it must be refused
        LABELS,
        Wrong("connection", (object(),)),
    ),
    "check": (
        Wrong("functions", ([5], ["app:f"])),
        Wrong("timeout", tuple(value for value in NOT_A_DURATION if value is not None)),
        PROGRESS,
    ),
    "schedule": (
        Wrong("name", (*NOT_A_STR, None, "")),
        Wrong("fn", (5, None, len, "app:f"), named="durable function"),
        Wrong("cron", (5, "every day"), named="cron"),
        Wrong("catch_up", (5, None, "some")),
        Wrong("overlap", (5, None, "some")),
        Wrong("priority", (*NOT_AN_INT, None, 3, -3)),
        LABELS,
    ),
    "unschedule": (Wrong("name", (*NOT_A_STR, None, "")),),
    "session": (
        THREAD._replace(values=tuple(value for value in THREAD.values if value is not None)),
        *(Wrong(argument, (*NOT_A_STR, None, "")) for argument in ("role", "phase")),
        Wrong("budget_tokens", NOT_AN_INT),
        LEASE,
    ),
    "settle": (
        THREAD,
        Wrong("step", (*NOT_A_STR, None, "")),
        Wrong("choice", (*NOT_A_STR, None, "nonsense"), InvalidAnswer, "settled"),
        Wrong("by", NOT_A_STR),
    ),
    "requests": (Wrong("status", (5, b"open", "nonsense", ["open"])), CURSOR, LIMIT),
    "answer": (
        Wrong("request_id", (*NOT_A_STR, None), InvalidId, "request id"),
        Wrong("request_id", ("", "x", "x#", "x#1", "x@1.ff"), NotFound, "request id"),
        *(Wrong(argument, NOT_A_STR) for argument in ("choice", "by", "comment")),
    ),
}
OPENING: dict[str, tuple[Wrong, ...]] = {
    "open": (
        Wrong("url", (5, b"a.db", ["x"], object(), "", "nul\0byte")),
        Wrong("url", ("nonsense:x",), named="store"),
        Wrong("url", ("file:", "sqlite:"), named="path"),
    ),
    "SQLiteStore": (PATH,),
    "FileStore": (PATH,),
    "MemoryStore": (),
}
OPTIONS = (
    Wrong("durability", (5, True, b"durable", "nonsense", [])),
    KEYS,
    Wrong("retention", (5, "x", {"keep_last": 1}, sync.Retention)),
    Wrong("sweep", (*NOT_A_DURATION, 0)),
    Wrong("namespace", (*NOT_A_STR, None, "\ud800", "x" * 200), InvalidId),
)
RETENTION = (
    Wrong("keep_last", ("a", 1.5, True, 0, -1, [])),
    Wrong("ttl", NOT_A_DURATION),
    Wrong("max_age", NOT_A_DURATION),
    Wrong("delete_on", (5, "complete", ("nonsense",), (5,), None, object())),
)
RING = (
    Wrong("keys", (5, None, b"k" * 32, [b"k" * 32], {5: b"k" * 32}, {"k": "k" * 32}, {"k": b"short"}), named="key"),
    Wrong("write", (5, None, [], "other"), named="write"),
)


def named_cases(table: dict[str, tuple[Wrong, ...]]) -> Iterator[Any]:
    """A case for every wrong value, with a name that shows the call."""
    for name, arguments in table.items():
        for wrong in arguments:
            for value in wrong.values:
                shown = type(value).__name__ if type(value) is object else repr(value)[:20]
                yield pytest.param(name, wrong, value, id=f"{name}({wrong.argument}={shown})")


@pytest.fixture(params=["memory", "sqlite", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Store]:
    url = "memory:" if request.param == "memory" else url_of(request.param, tmp_path)
    with sync.open(url, durability=None if request.param == "memory" else "process") as opened:
        yield opened


@sync.durable(name="scheduled with wrong arguments")
def scheduled() -> None:
    """Is never run."""


def right_arguments(method: Callable[..., Any], first: sync.Checkpoint, path: str) -> dict[str, Any]:
    """What a call needs, beside the one argument that is wrong."""
    rights = {
        "thread_id": "t",
        "state": {"n": 2},
        "path": path,
        "item": 1,
        "seq": 1,
        "function_name": "app:f",
        "request_id": "t#1.ff",
        "step": "one",
        "choice": "done",
        "name": "digest",
        "fn": scheduled,
        "every": 60,
        **dict.fromkeys(("checkpoint_id", "checkpoint_id_a", "checkpoint_id_b"), first.id),
    }
    parameters = inspect.signature(method).parameters.values()
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    if method.__name__ == "schedule":
        needed.append("every")
    return {name: rights[name] for name in needed if name in rights}


def refuses(call: Callable[..., Any], wrong: Wrong, **arguments: Any) -> None:
    """The call raises that error, and says which argument was wrong."""
    with pytest.raises(wrong.error) as caught:
        call(**arguments)
    assert type(caught.value) is wrong.error
    assert (wrong.named or wrong.argument) in str(caught.value)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_names_the_argument_that_is_wrong(
    name: str, store: sync.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = store.save("t", {"n": 1})
    if name == "import_":
        store.export("t", "some file")
    files = sorted(tmp_path.iterdir())
    method = getattr(store, name)
    arguments = right_arguments(method, first, "some file")
    for wrong in METHODS[name]:
        for value in wrong.values:
            refuses(method, wrong, **{**arguments, wrong.argument: value})
            assert [info.seq for info in store.history("t")] == [1]
            assert [info.thread_id for info in store.threads()] == ["t"]
            assert sorted(tmp_path.iterdir()) == files


def test_every_method_with_arguments_is_tried() -> None:
    taking = {
        name
        for name, method in inspect.getmembers(sync.Store, inspect.isfunction)
        if not name.startswith("_") and len(inspect.signature(method).parameters) > 1
    }
    assert taking == set(METHODS)


@pytest.mark.parametrize(
    ("name", "wrong", "value"), [*named_cases({name: (*own, *OPTIONS) for name, own in OPENING.items()})]
)
def test_a_way_to_open_names_the_argument_that_is_wrong(
    name: str, wrong: Wrong, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments: dict[str, Any] = {"MemoryStore": {}, "open": {"url": "a.db"}}.get(name, {"path": "a"})
    if wrong.argument == "sweep":
        arguments["retention"] = sync.Retention(keep_last=1)
    refuses(getattr(sync, name), wrong, **{**arguments, wrong.argument: value})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("name", "wrong", "value"), [*named_cases({"Retention": RETENTION})])
def test_a_retention_names_the_rule_that_is_wrong(name: str, wrong: Wrong, value: Any) -> None:
    refuses(sync.Retention, wrong, **{wrong.argument: value})


@pytest.mark.parametrize(("name", "wrong", "value"), [*named_cases({"KeyRing": RING})])
def test_a_key_ring_names_what_is_wrong(name: str, wrong: Wrong, value: Any) -> None:
    refuses(sync.KeyRing, wrong, **{"keys": {"k": b"k" * 32}, "write": "k", wrong.argument: value})
