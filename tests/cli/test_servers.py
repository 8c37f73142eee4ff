"""Stores on servers: looking creates none, and needs no durability."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.conftest import Call
from holdfast import sync
from servers import postgres
from servers.redis import RedisServer

pytestmark = pytest.mark.servers
Document = Callable[..., Any]


@pytest.fixture(scope="module", params=["process", "none"])
def weak(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A Redis with less than the default durability and a thread on it: its level and its URL."""
    settings = {"process": {"appendfsync": "everysec"}, "none": {"appendonly": "no"}}[request.param]
    server = RedisServer(**settings)
    with sync.open(server.url("weak"), durability=request.param) as store:
        store.save("t", {"x": 1})
    yield request.param, server.url("weak")
    server.remove()


def test_looking_makes_no_schema(call: Call) -> None:
    server, typo = postgres.shared_server(), postgres.new_schema()
    for command in ("threads", "stats", "doctor", "gc"):
        error = call(command, "--store", server.url(typo), *["--ttl", "1d"] * (command == "gc"), code=3).stderr
        assert f"no store in schema {typo!r} of postgresql://" in error
    assert server.execute(f"SELECT 1 FROM pg_namespace WHERE nspname = '{typo}'") == []
    with sync.open(server.url(typo)) as store:
        store.save("t", {"x": 1})
    assert call("threads", "--store", server.url(typo)).stdout.splitlines()[1].startswith("t ")


def test_an_empty_schema_is_no_store(call: Call) -> None:
    server, empty = postgres.shared_server(), postgres.new_schema()
    server.execute(f"CREATE SCHEMA {empty}")
    call("threads", "--store", server.url(empty), code=3)


def test_reading_needs_no_durability(call: Call, weak: tuple[str, str]) -> None:
    level, url = weak
    for arguments in (["threads"], ["show", "t"], ["state", "t"], ["verify"]):
        call(*arguments, "--store", url)
    refused = call("delete", "t", "--yes", "--store", url, code=2).stderr
    assert f"?durability={level}" in refused
    call("delete", "t", "--store", f"{url}&durability={level}")


def test_a_wrong_durability_in_a_url_is_refused(call: Call, weak: tuple[str, str]) -> None:
    error = call("cancel", "t", "--store", f"{weak[1]}&durability=strong", code=2).stderr
    assert "`durability` must be one of" in error


def test_the_doctor_names_the_durability(document: Document, weak: tuple[str, str]) -> None:
    level, url = weak
    report = document("doctor", "--store", url)
    found = {finding["name"]: finding for finding in report["findings"]}
    assert report["ok"]
    assert found["reachable"]["verdict"] == "ok"
    assert found["durability"]["verdict"] == "warn"
    assert found["durability"]["found"].startswith(f"{level}: ")
    assert f"durability={level!r}" in found["durability"]["advice"]
