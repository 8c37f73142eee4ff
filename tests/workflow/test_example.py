"""The example of a data pipeline: killed at every line that the outside sees, and resumed."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from patience import GIVE_UP_SECONDS

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "data_pipeline"
README = (EXAMPLE / "README.md").read_text()
QUESTION = "approve? ['Kelp sings at spring tide.']"


def pipeline(place: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLE / "pipeline.py"), *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == (-9 if "--crash" in arguments else 0), done.stderr
    return done.stdout.strip()


def lines(place: Path) -> list[str]:
    return (place / "outside.log").read_text().splitlines()


@pytest.mark.processes
@pytest.mark.parametrize("moment", ["read growth", "read tides", "judge"])
def test_the_pipeline_is_killed_and_resumed_up_to_its_question(moment: str, tmp_path: Path) -> None:
    assert pipeline(tmp_path, "--crash", moment) == ""
    assert pipeline(tmp_path) == QUESTION
    repeated = {line for line, count in Counter(lines(tmp_path)).items() if count > 1}
    assert repeated <= {line for line in lines(tmp_path) if line.startswith(("read", moment))}
    assert all(line.startswith(moment[:4]) for line in repeated)
    published = pipeline(tmp_path, "--no-approve")
    assert published in README
    assert pipeline(tmp_path) == published
    assert sum(line.startswith("publish") for line in lines(tmp_path)) == 1


@pytest.mark.processes
def test_an_approval_survives_a_kill_and_the_report_is_published_again_with_the_same_key(tmp_path: Path) -> None:
    assert QUESTION in README
    assert pipeline(tmp_path) == QUESTION
    assert pipeline(tmp_path, "--approve", "--crash", "publish") == ""
    assert pipeline(tmp_path).endswith("Kelp sings at spring tide.")
    published = [line for line in lines(tmp_path) if line.startswith("publish")]
    assert len(published) == 2
    assert len(set(published)) == 1
    assert Counter(lines(tmp_path))["judge 4 findings"] == 1


@pytest.mark.processes
def test_the_question_is_answered_on_the_command_line(tmp_path: Path) -> None:
    pipeline(tmp_path)
    (request,) = json.loads(holdfast(tmp_path, "requests", "--json"))
    holdfast(tmp_path, "reject", request["id"])
    assert pipeline(tmp_path) in README


def holdfast(place: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "holdfast", *arguments, "--store", "pipeline.db"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.processes
def test_the_drawing_in_the_readme_is_the_graph_of_the_program(tmp_path: Path) -> None:
    drawn = pipeline(tmp_path, "--draw", "svg", "--store", "memory:")
    assert drawn == (EXAMPLE / "pipeline.svg").read_text().strip()
