"""What is shipped: the package, what builds and tests it, and nothing that was measured on one machine."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MEASURED = ("benchmarks/RESULTS.md", "benchmarks/plots/")

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def source(built: Path) -> set[str]:
    """The names in the source distribution, below its one folder."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


@pytest.fixture(scope="module")
def wheel(built: Path) -> set[str]:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_the_wheel_has_the_package_alone(wheel: set[str]) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in wheel} == {"holdfast"}
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "holdfast").rglob("*.py")}
    assert package <= wheel
    assert "holdfast/py.typed" in wheel


def test_the_source_has_what_builds_tests_and_documents_it(source: set[str]) -> None:
    assert {"pyproject.toml", "Makefile", "README.md", "SECURITY.md", "LICENSE"} <= source
    assert {"docs/index.md", "website/mkdocs.yml", "tests/test_package.py", "requirements/docs.txt"} <= source
    assert {"benchmarks/README.md", "benchmarks/report.py"} <= source


def test_results_of_one_machine_are_not_shipped(source: set[str], wheel: set[str]) -> None:
    assert not [name for name in source | wheel if name.startswith(MEASURED)]


def test_nothing_that_was_made_is_shipped(source: set[str]) -> None:
    made = (".venv", "build", "dist", ".mypy_cache", ".ruff_cache")
    assert not [name for name in source if name.startswith(made) or "__pycache__" in name]
