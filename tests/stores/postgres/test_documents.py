"""The programs in docs/postgres.md run as they are printed, on the server of the tests."""

import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from servers.postgres import new_schema, shared_server

DOCUMENT = Path(__file__).parents[3] / "docs" / "postgres.md"
PROGRAMS = re.findall(r"^```py\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
PRINTED = ["{'messages': ['hello']}\n", "paid 7\n"]


@pytest.mark.parametrize(("program", "printed"), list(zip(PROGRAMS, PRINTED, strict=True)))
def test_a_program_of_the_document_runs(program: str, printed: str) -> None:
    server, name = shared_server(), new_schema()
    server.execute(f"CREATE DATABASE {name}")
    place = f"postgresql://postgres@127.0.0.1:{server.port}/{name}"
    with psycopg.connect(place) as connection:
        connection.execute("CREATE TABLE payments (invoice integer)")
    script = program.replace("postgresql://app@localhost/agents", place)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == (printed, 0), ran.stderr
