"""A server on a Unix socket: by URL and by client, in both worlds, with user, password and database."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import sync
from servers.redis import RedisServer, new_prefix

USER, PASSWORD = "app", "p@ss/w:rd"
QUOTED = "p%40ss%2Fw%3Ard"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a server that lets in one user."""
    place = tmp_path_factory.mktemp("redis") / "redis.sock"
    server = RedisServer(unixsocket=str(place), unixsocketperm="700")
    with server.client() as client:
        client.acl_setuser(USER, enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@all"])
        client.config_set("requirepass", "another")
    yield place
    server.remove()


CLIENTS: dict[str, Callable[..., Any]] = {
    "blocking": redis.Redis,
    "awaitable": redis.asyncio.Redis,
}


def keys_in(path: Path, db: int, prefix: str) -> int:
    with redis.Redis(unix_socket_path=str(path), db=db, username=USER, password=PASSWORD) as client:
        return len(list(client.scan_iter(f"{prefix}:*")))


@pytest.mark.parametrize(
    "place", [f"{USER}:{QUOTED}@{{path}}?db=2", f"{{path}}?db=2&username={USER}&password={QUOTED}"]
)
def test_a_url_leads_to_a_unix_socket(path: Path, place: str) -> None:
    prefix = new_prefix()
    url = f"unix://{place.format(path=path)}&prefix={prefix}"
    for seq in (1, 2):
        with sync.open(url) as store:
            assert store.save("t", {"n": seq}).seq == seq

    async def main() -> None:
        async with holdfast.open(url) as store:
            assert (await store.save("t", {"n": 3})).seq == 3

    asyncio.run(main())
    assert keys_in(path, 2, prefix), "it is in the database of the URL"
    assert not keys_in(path, 0, prefix)


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_on_a_unix_socket_lends_its_settings(path: Path, kind: str) -> None:
    prefix = new_prefix()
    client = CLIENTS[kind](unix_socket_path=str(path), db=3, username=USER, password=PASSWORD, socket_keepalive=True)
    with sync.RedisStore(client, prefix=prefix) as store:
        assert store.save("t", 1).seq == 1

    async def main() -> None:
        async with holdfast.RedisStore(client, prefix=prefix) as store:
            assert (await store.save("t", 2)).seq == 2

    asyncio.run(main())
    assert keys_in(path, 3, prefix)


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_made_of_a_url_lends_its_settings(path: Path, kind: str) -> None:
    client = CLIENTS[kind].from_url(f"unix://{USER}:{QUOTED}@{path}?db=1&socket_timeout=7")  # type: ignore[attr-defined]
    with sync.RedisStore(client, prefix=new_prefix()) as store:
        assert store.save("t", 1).seq == 1


def test_settings_that_only_a_network_needs_are_left_out(path: Path) -> None:
    with sync.open(f"unix://{USER}:{QUOTED}@{path}?socket_keepalive=1&socket_connect_timeout=2&prefix=left") as store:
        assert store.save("t", 1).seq == 1


@pytest.mark.parametrize("url", ["unix://", "unix://run/redis.sock", "unix:/run/redis.sock"])
def test_a_url_without_the_absolute_path_of_a_socket_is_refused(url: str) -> None:
    with pytest.raises(sync.ConfigurationError, match="unix"), sync.open(url) as store:
        store.save("t", 1)


def test_a_socket_that_nobody_listens_on_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(sync.StoreUnavailable, match=r"nobody\.sock"),
        sync.open(f"unix://{tmp_path}/nobody.sock") as store,
    ):
        store.save("t", 1)
