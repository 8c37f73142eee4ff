"""What `make` installs is locked, and is printed before it is done; the workflows run its targets and nothing else."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[1]
LOCKED = ("package", "dev", "bench", "docs")
WANTED = "strace redis-server pgbouncer postgresql"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
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
    assert name == "docs" or names("package") <= names(name), "the site is built without importing the package"


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
    done = make("servers", "POSTGRES=/nowhere/postgres", f"RESTATE={bare}/apt-get", path=bare)
    said = done.stdout.splitlines()
    assert said[0].endswith(f": {WANTED}")
    assert "SERVERS=none" in said[1]
    assert said[-2:] == ["called: -qq update", f"called: -qq install -y {WANTED}"]


def test_the_server_of_restate_is_installed_with_npm_as_it_is_locked(bare: Path) -> None:
    for name in ("npm", "strace", "redis-server", "pgbouncer", "postgres"):
        (bare / name).symlink_to("apt-get")
    for name in ("mkdir", "cp"):
        (bare / name).symlink_to(shutil.which(name) or name)
    wanted = (f"POSTGRES={bare}/postgres", "RESTATE=/nowhere/restate", f"NODE={bare}/node")
    done = make("servers", *wanted, path=bare)
    said = done.stdout.splitlines()
    assert said[0].startswith("installing the packages of requirements/restate")
    assert said[1].startswith("called: ci --prefix")
    assert done.returncode != 0, "a server that is still missing is a failure"
    lock = json.loads((bare / "node" / "package-lock.json").read_text())
    assert all(each["integrity"].startswith("sha512-") for name, each in lock["packages"].items() if name)


def test_npm_is_asked_for_if_the_server_of_restate_is_missing(bare: Path) -> None:
    (bare / "apt-get").unlink()
    done = make("servers", "POSTGRES=/nowhere/postgres", "RESTATE=/nowhere/restate", path=bare)
    assert f"{WANTED} npm" in done.stdout


def test_without_apt_get_it_is_said_what_to_install_and_how_to_avoid_it(bare: Path) -> None:
    (bare / "apt-get").unlink()
    done = make("servers", "POSTGRES=/nowhere/postgres", f"RESTATE={bare}/ls", path=bare)
    assert done.returncode != 0
    assert WANTED in done.stdout
    assert "make test SERVERS=none" in done.stdout
    assert "apt-get" not in done.stderr, "nothing is tried"


def test_what_is_there_is_not_installed(bare: Path) -> None:
    for name in ("strace", "redis-server", "pgbouncer", "postgres"):
        (bare / name).symlink_to("apt-get")
    assert not make("servers", f"POSTGRES={bare}/postgres", f"RESTATE={bare}/postgres", path=bare).stdout


def test_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    listed = {line.split()[0] for line in make("help").stdout.splitlines()}
    assert listed == set(phony[1].split()) - {"servers", "left-out"}, "these two are parts of `make test`"


def test_the_contributors_page_has_every_target() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for line in make("help").stdout.splitlines():
        assert f"`make {line.split()[0]}`" in text, line


def steps_of(workflow: Path) -> list[dict[str, str]]:
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
def test_a_workflow_runs_targets_that_exist_and_has_no_secrets(workflow: Path) -> None:
    targets = {line.split()[0] for line in make("help").stdout.splitlines()}
    for step in steps_of(workflow):
        assert "run" not in step or step["run"].removeprefix("make ") in targets, step
    assert "secrets" not in workflow.read_text()
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_every_supported_python_is_tested() -> None:
    (ci,) = [workflow for workflow in WORKFLOWS if workflow.name == "ci.yml"]
    tested = yaml.safe_load(ci.read_text())["jobs"]["test"]["strategy"]["matrix"]["python"]
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert tested == supported


def test_a_tag_that_is_not_the_version_is_refused() -> None:
    done = make("package", "TAG=v9.9.9", "STAMP=", f"BIN={Path(sys.executable).parent}")
    assert done.returncode != 0
    assert "the tag is v9.9.9" in done.stdout
