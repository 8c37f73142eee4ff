"""The names of owners in stored heads: whatever digits they have, only a name as we write it tells of a process."""

import os

import pytest

from holdfast.processes import Identity, identity, is_certainly_dead, named

ODD = [
    "٣",
    "¹",
    "०१",
    "0",
    "007",
    "+7",
    "-7",
    " 7",
    "7 ",
    "1_000",
    "7\n",
    "",
    "0x7",
    "9" * 10,
    "9" * 5000,
    "\N{MATHEMATICAL BOLD DIGIT SEVEN}",
]


def with_pid(pid: str) -> str:
    here = identity()
    return f"{here.host}:{pid}:{here.start}:{here.boot}:{here.space}:run"


@pytest.mark.parametrize("pid", ODD)
def test_a_pid_with_odd_digits_is_none(pid: str) -> None:
    owner = with_pid(pid)
    assert Identity.parse(owner) is None
    assert not is_certainly_dead(owner)
    assert named(owner) == (owner if owner.isprintable() else ascii(owner)[1:-1])


def test_this_process_is_known_by_its_name() -> None:
    parsed = Identity.parse(with_pid(str(os.getpid())))
    assert parsed == identity()
    assert not is_certainly_dead(with_pid(str(os.getpid())))
