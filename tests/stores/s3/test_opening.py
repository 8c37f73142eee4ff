"""Opening a store in a bucket: what it refuses, and in which words."""

import asyncio
import os

import pytest
from obstore.store import MemoryStore, S3Store

import holdfast
from holdfast import sync
from holdfast.stores.s3 import S3Backend
from holdfast.testing.conformance import check
from servers.ports import free_port
from servers.s3 import MotoServer, RcloneServer, new_prefix, set_credentials, shared
from stores.s3.scenes import seaweed, store_at


def test_a_server_that_ignores_conditions_is_refused() -> None:
    with (
        pytest.raises(sync.ConfigurationError, match="overwrites an object that was to be created only if absent"),
        sync.S3Store(shared(RcloneServer).url(new_prefix())),
    ):
        pass


def test_another_server_with_conditions_is_taken() -> None:
    with sync.open(shared(MotoServer).url(new_prefix())) as store:
        store.save("t", {"a": 1})
        store.append("t", "list", 2)
        latest = store.latest("t")
    assert latest is not None
    assert latest.state == {"a": 1, "list": [2]}


def test_a_bucket_that_does_not_exist_is_named() -> None:
    with (
        pytest.raises(sync.StoreUnavailable, match=r"no-such-bucket-here/x at http.*the bucket does not exist"),
        sync.open(f"s3://no-such-bucket-here/x?endpoint={seaweed().endpoint}"),
    ):
        pass


@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials_are_refused_in_words(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = seaweed().url(new_prefix())
    monkeypatch.setenv(variable, "wrong")
    with pytest.raises(sync.StoreUnavailable, match="access denied: check AWS_"), sync.open(url):
        pass


def test_an_endpoint_where_nobody_listens_is_not_waited_for() -> None:
    set_credentials()
    with (
        pytest.raises(sync.StoreUnavailable, match="no connection"),
        sync.open(f"s3://bucket/x?endpoint=http://127.0.0.1:{free_port()}"),
    ):
        pass


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://bucket/x?endpoint=http://s3.example.org", "must use https unless it is on this machine"),
        ("s3://bucket/x?endpoint=s3.example.org", "a URL such as https"),
        ("s3://bucket/x?endpont=https://s3.example.org", "unknown option; valid: allow_http, endpoint"),
        ("s3://key:secret@bucket/x", "give credentials in the environment"),
        ("s3:bucket", "s3://bucket/prefix"),
        ("gs://bucket/x?region=here", "from the environment only"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, words: str) -> None:
    with pytest.raises(sync.ConfigurationError, match=words):
        sync.open(url)


def test_an_unencrypted_endpoint_elsewhere_must_be_asked_for() -> None:
    sync.open("s3://bucket/x?endpoint=http://s3.example.org&allow_http=true").close()
    sync.S3Store("s3://bucket/x", endpoint="http://s3.example.org", allow_http=True).close()


def test_the_endpoint_of_the_environment_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = new_prefix()
    with store_at(prefix) as store:
        store.save("t", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed().endpoint)
    with sync.open(f"s3://holdfast-tests/{prefix}") as store:
        latest = store.latest("t")
    assert latest is not None


def test_the_guarantee_says_what_is_known() -> None:
    with store_at(new_prefix()) as store:
        found = store.guarantee()
    assert (found.level, found.store) == (sync.Durability.DURABLE, "s3")
    assert found.details["acknowledged put"] == "as far as the server promises"
    with store_at(new_prefix(), durability="replicated") as store:
        assert store.guarantee().level is sync.Durability.REPLICATED
    for url, kind in (("s3://bucket", "s3"), ("gs://bucket/x", "gs")):
        found = S3Backend(url).guarantee()
        assert (found.level, found.store) == (sync.Durability.REPLICATED, kind)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_a_store_of_obstore_that_leads_elsewhere_is_not_taken_for_the_cloud(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "https://s3.example.org")
    found = S3Backend(S3Store("bucket", region="us-east-1")).guarantee()
    assert found.level is sync.Durability.DURABLE
    assert "s3.example.org" in found.details["place"]


def test_azure_is_opened_with_the_account_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    found = S3Backend("az://container/x").guarantee()
    assert (found.level, found.store) == (sync.Durability.REPLICATED, "az")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "https://blobs.example.org")
    assert S3Backend("az://container/x").guarantee().level is sync.Durability.DURABLE


def test_a_store_of_obstore_is_taken_as_it_is() -> None:
    assert check(lambda: S3Backend(MemoryStore())) > 100


def test_the_awaitable_store_is_the_same() -> None:
    async def main() -> None:
        async with holdfast.S3Store(seaweed().url(new_prefix())) as store:
            await store.save("t", {"a": 1})
            latest = await store.latest("t")
        assert latest is not None
        assert latest.state == {"a": 1}

    asyncio.run(main())


def test_a_child_that_was_forked_later_is_told_what_to_do() -> None:
    with store_at(new_prefix()) as store:
        store.save("t", 1)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                store.latest("t")
            except BaseException as error:  # noqa: BLE001  whatever it is, the parent reads it
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert b"start children with 'spawn'" in os.read(read, 1000)
        assert store.latest("t") is not None
        os.close(read)
        os.close(write)
