"""What `make` installs is locked, and is printed before it is done."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKED = ("package", "dev", "bench")
PIN = re.compile(r"([a-z0-9-]+)==[^ ]+( ; [^\\]+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def make(*arguments: str, path: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = dict(os.environ) if path is None else {**os.environ, "PATH": str(path)}
    command = [shutil.which("make") or "make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def entries(name: str) -> list[str]:
    """The requirements of a locked file, each with its hashes on one line."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def names(name: str) -> set[str]:
    return {entry.partition("==")[0] for entry in entries(name)}


@pytest.mark.parametrize("name", LOCKED)
def test_every_package_is_pinned_with_hashes_and_comes_from_any_index(name: str) -> None:
    for entry in entries(name):
        requirement, *rest = entry.split("#")[0].split("    ")
        assert PIN.fullmatch(requirement.strip()), entry
        assert rest, entry
        assert all(HASH.fullmatch(part.strip()) for part in rest if part.strip()), entry


@pytest.mark.parametrize("name", LOCKED)
def test_every_package_that_is_asked_for_is_locked(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.in").read_text().splitlines()
    asked = {re.split(r"[\[=]", line)[0] for line in lines if line and not line.startswith("#")}
    assert asked <= names(name)
    assert names("package") <= names(name)


def test_without_servers_nothing_is_asked_of_the_system() -> None:
    recipe = make("--dry-run", "test", "SERVERS=none").stdout
    assert "apt-get" not in recipe
    assert "sudo" not in recipe
    assert "not servers" in recipe


def test_without_servers_it_is_said_which_tests_are_left_out() -> None:
    assert "leaves out these tests" in make("--dry-run", "test", "SERVERS=none").stdout


@pytest.mark.parametrize("checker", ["mypy --strict", "pyright"])
def test_lint_checks_the_types_of_typical_programs(checker: str) -> None:
    (line,) = [line for line in make("--dry-run", "lint").stdout.splitlines() if checker in line]
    assert "tests/programs" in line


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A machine that has a shell and an apt-get, which only says how it was called."""
    (tmp_path / "apt-get").write_text('#!/bin/sh\necho "called: $@"\n')
    (tmp_path / "apt-get").chmod(0o700)
    for name in ("sh", "ls"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    return tmp_path


def test_what_is_going_to_be_installed_is_printed_first(bare: Path) -> None:
    said = make("servers", "POSTGRES=/nowhere/postgres", path=bare).stdout.splitlines()
    wanted = "strace redis-server pgbouncer postgresql"
    assert said[0].endswith(f": {wanted}")
    assert "SERVERS=none" in said[1]
    assert said[2:] == ["called: -qq update", f"called: -qq install -y {wanted}"]


def test_what_is_there_is_not_installed(bare: Path) -> None:
    for name in ("strace", "redis-server", "pgbouncer", "postgres"):
        (bare / name).symlink_to("apt-get")
    assert not make("servers", f"POSTGRES={bare}/postgres", path=bare).stdout
