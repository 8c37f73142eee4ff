"""Holdfast's own records can be part of a state or a result, in any process, without being registered."""

import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from codec.exact import same
from holdfast import (
    Answer,
    Cause,
    Durability,
    FailureType,
    Outcome,
    Phase,
    Request,
    Status,
    Step,
    Turn,
    TurnResult,
    UsageSnapshot,
)
from holdfast.codec import decode, encode

NOW = datetime(2026, 1, 2, tzinfo=UTC)
USAGE = UsageSnapshot(1, 2, 3, 4, 5)
ANSWER = Answer(choice="yes", value={1, 2}, by="ana", at=NOW)
REQUEST = Request(id="t#1.x", thread_id="t", name="n", payload=(1,), choices=("yes",), created_at=NOW, answer=ANSWER)
TURN = Turn(
    number=1,
    idempotency_key="k",
    role="r",
    phase="p",
    model=None,
    usage=USAGE,
    cost_usd=None,
    value=TurnResult((1, 2), USAGE),
    error=None,
    ended_at=NOW,
    seconds=0.5,
)
VALUES: list[Any] = [
    *(ANSWER, REQUEST, TURN, USAGE, TurnResult("x", USAGE), Step(index=1, tool_output={"a": (1,)})),
    Outcome(status=Status.COMPLETE, thread_id="t", result=[TURN], requests=(REQUEST,)),
    *(*Status, *Cause, *Phase, *FailureType, *Durability),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_our_records_are_exact(value: Any) -> None:
    assert same(decode(encode({"k": [value]})), {"k": [value]})


def test_each_is_stored_under_its_public_name() -> None:
    for value in VALUES:
        name = type(value).__name__
        assert getattr(holdfast, name) is type(value)
        assert f"holdfast.{name}".encode() in encode(value)


def test_their_names_do_not_depend_on_who_registers_them_first() -> None:
    code = """
        import holdfast
        from holdfast.sync import step
        @step
        def answer() -> holdfast.Outcome: ...
        from holdfast.codec import encode
        print(encode([holdfast.Status.IDLE, holdfast.Durability.NONE]))
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert "holdfast.Status" in ran.stdout
    assert "holdfast.Durability" in ran.stdout


def test_another_process_reads_them_without_registering_anything() -> None:
    code = "import sys; from holdfast.codec import decode; print(decode(bytes.fromhex(sys.argv[1])))"
    ran = subprocess.run(
        [sys.executable, "-c", code, encode([ANSWER, Status.IDLE]).hex()], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == str([ANSWER, Status.IDLE])
