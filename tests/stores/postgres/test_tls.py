"""PostgreSQL behind TLS: with sslmode=verify-full the server is who it says, or it is sent nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import sync
from servers.listener import PlainListener
from servers.postgres import PostgresServer, new_schema
from servers.tls import Files, certificates

SECRET = "Xq7Zr9"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    yield made
    made.remove()


def url_of(server: PostgresServer, files: Files, mode: str = "verify-full") -> str:
    """A URL that trusts one authority alone."""
    return f"{server.url(new_schema())}&sslmode={mode}&sslrootcert={files.authority}"


def test_a_server_that_proves_who_it_is_is_used(server: PostgresServer, tmp_path: Path) -> None:
    files = certificates(tmp_path)
    server.listen_with_tls(files)
    with sync.open(url_of(server, files)) as store:
        assert store.save("t", 1).seq == 1
        found = server.execute(
            "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            " WHERE application_name = 'holdfast'"
        )
    assert found == [(True,)]


def test_a_server_of_another_authority_is_refused(server: PostgresServer, tmp_path: Path) -> None:
    server.listen_with_tls(certificates(tmp_path))
    (tmp_path / "other").mkdir()
    url = url_of(server, certificates(tmp_path / "other"))
    with pytest.raises(sync.StoreUnavailable, match="certificate verify failed"), sync.open(url) as store:
        store.latest("t")


def test_a_server_with_the_certificate_of_another_is_refused(server: PostgresServer, tmp_path: Path) -> None:
    files = certificates(tmp_path, address="192.0.2.1")
    server.listen_with_tls(files)
    with pytest.raises(sync.StoreUnavailable, match="does not match host"), sync.open(url_of(server, files)) as store:
        store.latest("t")
    with sync.open(url_of(server, files, "verify-ca")) as store:
        assert store.latest("t") is None


def test_a_listener_without_tls_is_sent_no_password() -> None:
    with PlainListener() as listener:
        url = f"postgresql://ana:{SECRET}@127.0.0.1:{listener.port}/agents?sslmode=verify-full&sslrootcert=system"
        with pytest.raises(sync.StoreUnavailable), sync.open(url) as store:
            store.latest("t")
    assert listener.received
    assert all(len(sent) == 8 for sent in listener.received), "something other than the request for TLS was sent"
