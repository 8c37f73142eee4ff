"""`guarantee` and `holdfast doctor` say who could read or change what travels to the server of a store."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import sync
from holdfast.cli import main
from holdfast.stores.redis.settings import from_url
from holdfast.stores.s3.places import place_of
from holdfast.stores.transport import LOCAL, VERIFIED, transport
from servers.postgres import PostgresServer, new_schema
from servers.redis import RedisServer, new_prefix
from servers.tls import Files, certificates

ELSEWHERE = "0.0.0.0"
"""An address that is not on the loopback, and leads to this machine all the same."""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "", "/run/postgresql", "@abstract"])
def test_what_does_not_leave_the_machine_is_local(host: str) -> None:
    assert transport([host], "no TLS") == LOCAL


@pytest.mark.parametrize("host", ["10.0.0.1", "db.example.org", "localhost.example.org", "0.0.0.0", "fe80::1"])
def test_what_leaves_the_machine_is_verified_or_weak(host: str) -> None:
    assert transport(["127.0.0.1", host], "") == VERIFIED
    assert transport(["127.0.0.1", host], "no TLS") == f"no TLS to {host}"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("redis://db.example.org", "no TLS (redis:) to db.example.org"),
        ("rediss://db.example.org", VERIFIED),
        ("rediss://db.example.org?ssl_check_hostname=false", "TLS that accepts the certificate of any host"),
        ("rediss://db.example.org?ssl_cert_reqs=none", "TLS that accepts any certificate"),
        ("redis+cluster://127.0.0.1,10.0.0.1", "no TLS (redis:) to 10.0.0.1"),
        ("rediss+sentinel://10.0.0.1/agents", VERIFIED),
        ("redis+sentinel://10.0.0.1/agents", "no TLS"),
        ("redis://localhost", LOCAL),
        ("unix:///run/redis.sock", LOCAL),
    ],
)
def test_the_way_to_redis(url: str, found: str) -> None:
    assert from_url(url).transport.startswith(found)


@pytest.mark.parametrize(
    ("endpoint", "found"),
    [
        ("https://s3.example.org", VERIFIED),
        (None, VERIFIED),
        ("http://127.0.0.1:9000", LOCAL),
        ("http://[::1]:9000", LOCAL),
        ("http://10.0.0.1:9000", "no TLS (http:) to 10.0.0.1"),
    ],
)
def test_the_way_to_a_bucket(endpoint: str | None, found: str) -> None:
    assert place_of("s3://bucket", endpoint=endpoint, region=None, allow_http=True).transport == found


def finding(url: str) -> tuple[str, str, str]:
    """The verdict of a doctor on the transport, what was found, and the advice."""
    result = CliRunner().invoke(main, ["doctor", "--no-probe", "--json", "--store", url])
    (found,) = [each for each in json.loads(result.stdout)["findings"] if each["name"] == "transport"]
    return found["verdict"], found["found"], found["advice"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A certificate for the address that is not on the loopback."""
    return certificates(tmp_path_factory.mktemp("tls"), address=ELSEWHERE)


@pytest.fixture(scope="module")
def postgres(files: Files) -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.listen_with_tls(files)
    yield server
    server.remove()


def existing_store(postgres: PostgresServer) -> str:
    """Return the URL of a store that was opened once: looking at it does not create one."""
    url = postgres.url(new_schema())
    with sync.open(url) as store:
        store.guarantee()
    return url


@pytest.mark.servers
@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"])
def test_a_doctor_names_an_sslmode_that_does_not_verify_the_server(
    postgres: PostgresServer, files: Files, mode: str
) -> None:
    url = f"{existing_store(postgres)}&sslmode={mode}&sslrootcert={files.authority}"
    if mode != "verify-full":  # the certificate is not for this address
        assert finding(url)[0] == "ok"
    verdict, found, advice = finding(url.replace("127.0.0.1", ELSEWHERE))
    assert verdict == ("ok" if mode == "verify-full" else "warn")
    assert (f"sslmode={mode} to {ELSEWHERE}" in found) == (mode != "verify-full")
    assert ("sslmode=verify-full" in advice) == (mode != "verify-full")


@pytest.mark.servers
def test_a_doctor_asks_for_the_sslmode_in_effect(
    postgres: PostgresServer, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = existing_store(postgres).replace("127.0.0.1", ELSEWHERE)
    assert "sslmode=prefer" in finding(url)[1]
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", files.authority)
    assert finding(url)[0] == "ok"


@pytest.mark.servers
def test_a_doctor_names_a_redis_without_tls(files: Files) -> None:
    server = RedisServer(
        tls_cert_file=files.certificate, tls_key_file=files.key, tls_ca_cert_file=files.authority,
        tls_port="0", tls_auth_clients="no",
    )  # fmt: skip
    plain = server.url(new_prefix())
    assert finding(plain)[0] == "ok"
    verdict, found, advice = finding(plain.replace("127.0.0.1", ELSEWHERE))
    assert (verdict, "no TLS (redis:)" in found, "rediss://" in advice) == ("warn", True, True)
    secure = f"rediss://{ELSEWHERE}:{server.listen_with_tls()}/0?ssl_ca_certs={files.authority}"
    assert finding(secure)[0] == "ok"
    assert finding(f"{secure}&ssl_cert_reqs=none")[0] == "warn"
    server.remove()


def test_a_store_without_a_server_has_no_transport(tmp_path: Path) -> None:
    with sync.open(tmp_path / "a.db") as store:
        details: dict[str, Any] = dict(store.guarantee().details)
    assert "transport" not in details
