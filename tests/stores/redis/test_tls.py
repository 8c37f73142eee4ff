"""Redis and its sentinels behind TLS: who they are is checked, and nothing is sent to them in the clear."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
import redis.sentinel

from holdfast import sync
from servers.listener import PlainListener
from servers.ports import free_port
from servers.redis import RedisServer
from servers.tls import Files, certificates

SECRET = "Xq7Zr9"


class Guarded(NamedTuple):
    """A server and its sentinel, both behind TLS."""

    files: Files
    server: int
    sentinel: int

    @property
    def trusting(self) -> str:
        """The option that names their authority."""
        return f"ssl_ca_certs={self.files.authority}"


def behind_tls(files: Files) -> RedisServer:
    """A server with this certificate, which does not listen with TLS yet."""
    return RedisServer(
        tls_cert_file=files.certificate, tls_key_file=files.key, tls_ca_cert_file=files.authority,
        tls_port="0", tls_auth_clients="no",
    )  # fmt: skip


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("tls")
    files, sentinel_port = certificates(directory), free_port()
    server = behind_tls(files)
    port = server.listen_with_tls()
    sentinel = RedisServer.sentinel(
        directory, "agents", port,
        f"tls-port {sentinel_port}", f"tls-cert-file {files.certificate}", f"tls-key-file {files.key}",
        f"tls-ca-cert-file {files.authority}", "tls-auth-clients no", "tls-replication yes",
        f"user watcher on >{SECRET} +sentinel|get-master-addr-by-name",
    )  # fmt: skip
    yield Guarded(files, port, sentinel_port)
    sentinel.remove()
    server.remove()


def test_a_server_behind_tls(guarded: Guarded) -> None:
    with sync.open(f"rediss://127.0.0.1:{guarded.server}/0?prefix=tls&{guarded.trusting}") as store:
        assert store.save("t", 1).seq == 1


def test_sentinels_behind_tls_name_a_primary_behind_tls(guarded: Guarded) -> None:
    url = f"rediss+sentinel://127.0.0.1:{guarded.sentinel}/agents?prefix=guarded&{guarded.trusting}"
    with sync.open(url) as store:
        assert store.save("t", 1).seq == 1
    with sync.open(f"{url}&sentinel_username=watcher&sentinel_password={SECRET}") as store:
        assert store.save("t", 2).seq == 2


def test_a_client_whose_sentinels_are_behind_tls_is_copied_with_its_tls(guarded: Guarded) -> None:
    tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": guarded.files.authority}
    sentinels: Any = redis.sentinel
    manager = sentinels.Sentinel([("127.0.0.1", guarded.sentinel)], sentinel_kwargs=tls, **tls)
    with sync.RedisStore(manager.master_for("agents"), prefix="copied") as store:
        assert store.save("t", 1).seq == 1


@pytest.mark.parametrize("scheme", ["rediss", "rediss+sentinel"])
def test_a_server_of_another_authority_is_refused(guarded: Guarded, scheme: str, tmp_path: Path) -> None:
    port = guarded.sentinel if "sentinel" in scheme else guarded.server
    for trusted in ("", f"?ssl_ca_certs={certificates(tmp_path).authority}"):
        with (
            pytest.raises(sync.StoreUnavailable, match="certificate verify failed"),
            sync.open(f"{scheme}://127.0.0.1:{port}/agents{trusted}") as store,
        ):
            store.latest("t")


def test_a_server_with_the_certificate_of_another_is_refused(tmp_path: Path) -> None:
    files = certificates(tmp_path, address="192.0.2.1")
    server = behind_tls(files)
    url = f"rediss://127.0.0.1:{server.listen_with_tls()}/0?ssl_ca_certs={files.authority}"
    with (
        pytest.raises(sync.StoreUnavailable, match="certificate is not valid for"),
        sync.open(url) as store,
    ):
        store.latest("t")
    with sync.open(f"{url}&ssl_check_hostname=false") as store:
        assert store.latest("t") is None
    server.remove()


@pytest.mark.parametrize("scheme", ["rediss", "rediss+sentinel", "rediss+cluster"])
def test_a_listener_without_tls_is_sent_no_password(scheme: str) -> None:
    sentinel = f"?sentinel_username=ana&sentinel_password={SECRET}" if "sentinel" in scheme else ""
    with PlainListener() as listener:
        url = f"{scheme}://ana:{SECRET}@127.0.0.1:{listener.port}/{'agents' if sentinel else '0'}{sentinel}"
        with pytest.raises(sync.StoreUnavailable), sync.open(url) as store:
            store.latest("t")
    assert listener.received
    for sent in listener.received:
        assert sent[0] == 0x16, "something other than the handshake of TLS was sent"
        assert SECRET.encode() not in sent


@pytest.mark.parametrize(
    "url", ["redis://h?ssl_ca_certs=a.pem", "rediss://h?ssl_unheard_of=1", "rediss://h?ssl_cert_reqs=perhaps"]
)
def test_an_option_of_tls_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(sync.ConfigurationError, match="option of TLS"):
        sync.open(url)


@pytest.mark.parametrize("option", ["socket_type", "socket_keepalive_options", "credential_provider"])
def test_an_option_that_is_no_text_is_refused_in_a_url(option: str) -> None:
    with pytest.raises(sync.ConfigurationError, match=option):
        sync.open(f"redis://h?{option}=1")
