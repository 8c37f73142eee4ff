"""No error, traceback, log line or event shows the credentials of a URL, whatever is wrong with it or its server."""

import asyncio
import io
import logging
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
import redis
from click.testing import CliRunner

import holdfast
from holdfast import sync
from holdfast.cli import main
from holdfast.stores.redis.settings import from_url
from kinds import parameters
from servers import s3
from servers.ports import free_port
from servers.postgres import PostgresServer
from servers.redis import RedisServer

SECRET = "Xq7Zr9"
"""Part of every password here; no message may hold it."""
WRONG = f"{SECRET}wrong"


def said(url: Any, opener: Any = sync.open, **options: Any) -> str:
    """All that a person could see of an attempt to use a store: the traceback with its causes, and the log."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel("DEBUG")
    try:
        with opener(url, **options) as store:
            store.on_event(lambda event: log.write(repr(event)))
            log.write(repr(store) + str(store))
            store.save("t", 1)
    except sync.HoldfastError as error:
        return "".join(traceback.format_exception(error)) + repr(error) + log.getvalue()
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger().setLevel("WARNING")
    return log.getvalue()


SCHEMES = [
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "valkey+sentinel",
    "redis+cluster",
    "rediss+cluster",
    "postgresql",
    "postgres",
    "s3",
    "gs",
    "az",
]
MISTYPED = [
    "REDIS",
    "redis+unheard",
    "postgresql+psycopg",
    "rediz",
    "reds",
    "postgre",
    "postgresq",
    "mysql",
    "http",
    "ftp+x",
    "s4",
    "sqlit",
]
PLACES = [
    "://ana:{}@",
    "://ana:{}",
    "://ana:{}@[::1",
    "://ana:{}@[not an address]:1/0",
    "://ana:{}@127.0.0.1:port/0",
    "://ana:{}@127.0.0.1:99999/0",
    "://ana:{}/x@127.0.0.1:1/0",
    "://ana:{}?x@127.0.0.1:1/0",
    "://ana:1?{}@127.0.0.1:1/0",
    "://ana:{}#x@127.0.0.1:1/0",
    "://ana:x@{}@127.0.0.1:1/0",
    "://ana:{}%zz@127.0.0.1:1/0",
    "://ana:{}%00@127.0.0.1:1/0",
    "://ana:{}\u2100@127.0.0.1:1/0",
    "://ana:{}\ud800@127.0.0.1:1/0",
    "://ana:{}\n@127.0.0.1:1/0",
    "://ana:{}@127.0.0.1:1,127.0.0.1:x/0",
    "://ana:{}@,/0",
    "://ana:{}@[::1]:1/0",
    "://ana:{}]@127.0.0.1:1/0",
    "://:{}@127.0.0.1:1/0",
    "://{}@127.0.0.1:1/0",
    "://127.0.0.1:1/0?password={}",
    "://127.0.0.1:1/0?password=before&{}",
    "://127.0.0.1:1/0?password=before&{}=behind",
    "://127.0.0.1:1/0?password=before#{}",
    "://127.0.0.1:1/0?sentinel_username={}&sentinel_password={}",
    "://127.0.0.1:1/0?ssl_password={}&ssl_keyfile=x&ssl_certfile=y",
    "://127.0.0.1:1/0?sslpassword={}&sslkey=x&sslmode=verify-full",
    "://127.0.0.1:1/0?ssl_unheard_of={}",
    "://127.0.0.1:1/0?socket_timeout={}",
    "://127.0.0.1:1/0?replicas={}",
    "://127.0.0.1:1/0?credential_provider={}",
    "://127.0.0.1:1/0?schema=a$&password={}",
    "://127.0.0.1:1/0?password={}%zz",
    "://127.0.0.1:1/0?password={}&port=x&socket_timeout=x&replicas=x&connect_timeout=x",
    "://127.0.0.1:1/0?unheard_of&password={}&secret_access_key={}",
    "://bucket/x?aws_secret_access_key={}",
    "://bucket/x?endpoint=http://ana:{}@127.0.0.1:1",
    "://bucket/x?endpoint=http://ana:{}@[::1",
    ":ana:{}@127.0.0.1",
    "//ana:{}@127.0.0.1/0",
    "",
]


@pytest.mark.parametrize("scheme", parameters(*SCHEMES, *MISTYPED, quick={"redis", "postgresql", "s3", MISTYPED[0]}))
def test_a_wrong_url_does_not_show_its_credentials(scheme: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # a URL without a colon may be taken for a path
    for place in PLACES:
        url = (scheme + place).format(SECRET, SECRET) if place else f"{scheme}:{SECRET}@x"
        assert SECRET not in said(url)
        if scheme in SCHEMES or place.startswith("://ana:{}@"):
            assert SECRET not in printed("threads", "--store", url)


@pytest.mark.parametrize("scheme", ["sqlite", "file", "memory"])
@pytest.mark.parametrize(
    "place",
    [
        "://ana:{}@host/a/b",
        "://ana:{}@[::1/a/b",
        "://ana:{}@host:port/a",
        "://{}@host/a/b",
        "://a/b?password={}",
        "://a.db?key=1&{}=2",
    ],
)
def test_a_path_that_is_written_as_a_url_with_credentials_does_not_show_them(
    scheme: str, place: str, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    url = (scheme + place).format(SECRET)
    text = said(url)
    assert ("ConfigurationError" in text) == (scheme != "memory")
    assert SECRET not in text
    assert SECRET not in printed("threads", "--store", url)
    assert not any(tmp_path.iterdir())


def printed(*words: str) -> str:
    """What a command prints, on both its streams, and the traceback if it fails with one."""
    result = CliRunner().invoke(main, words)
    trace = "".join(traceback.format_exception(result.exception)) if result.exception else ""
    return result.output + result.stderr + trace


@pytest.mark.parametrize("command", [("doctor",), ("stats", "--json"), ("copy", "x.db"), ("gc", "--keep-last", "1")])
def test_no_command_shows_the_credentials_of_its_store(
    command: tuple[str, ...], tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    sync.open("x.db").close()
    for url in (f"redis://ana:{SECRET}@127.0.0.1:{free_port()}", f"rediz://ana:{SECRET}@h", f"redis//ana:{SECRET}@h"):
        words = (*command, url) if command[0] == "copy" else (*command, "--store", url)
        assert SECRET not in printed(*words)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel", "rediss+sentinel", "rediss+cluster", "unix"])
def test_what_is_kept_of_a_url_does_not_show_its_credentials(scheme: str) -> None:
    secrets = f"ssl_password={SECRET}&" if scheme.startswith("rediss") else ""
    host = "" if scheme == "unix" else "127.0.0.1"
    settings = from_url(f"{scheme}://ana:{SECRET}@{host}/service?{secrets}sentinel_password={SECRET}")
    assert SECRET in str(settings.options)
    assert SECRET not in repr(settings) + str(settings)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=127.0.0.1 port={port} password={secret}",
        "host=127.0.0.1 port={port} password={secret} {secret}",
        "host=127.0.0.1 port={port} password='{secret}",
        "host=127.0.0.1 port={port} password={secret} connect_timeout=x",
        "password={secret}",
        "password={secret} host=127.0.0.1 port=x",
        "postgresql://ana:{secret}@127.0.0.1:{port}/db?sslmode=x",
    ],
)
def test_a_wrong_connection_string_of_postgresql_is_not_shown(dsn: str) -> None:
    text = dsn.format(secret=SECRET, port=free_port())
    assert SECRET not in said(text, sync.PostgresStore, patience=0.1)
    assert SECRET not in said(text)


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    """A server that asks for a password."""
    server = RedisServer(requirepass=f"{SECRET}right")
    yield server
    server.remove()


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that asks one of its users for a password."""
    server = PostgresServer()
    server.execute(f"CREATE ROLE ana LOGIN PASSWORD '{SECRET}right'")
    rules = server._data / "pg_hba.conf"
    rules.write_text("host all ana 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    server.execute("SELECT pg_reload_conf()")
    yield server
    server.remove()


@pytest.mark.servers
def test_a_failed_login_to_redis_does_not_show_the_password(redis_server: RedisServer) -> None:
    place = f"127.0.0.1:{redis_server.port}"
    for url in (f"redis://:{WRONG}@{place}", f"redis://ana:{WRONG}@{place}/0", f"redis://{place}?password={WRONG}"):
        text = said(url)
        assert "ConfigurationError" in text
        assert SECRET not in text
        assert SECRET not in printed("threads", "--store", url)
    with redis.Redis(port=redis_server.port, password=WRONG) as client:
        assert SECRET not in said(client, sync.RedisStore)
    sentinel = f"redis+sentinel://:{WRONG}@{place}/service?sentinel_password={WRONG}"
    assert SECRET not in said(sentinel)


@pytest.mark.servers
def test_a_failed_login_to_postgresql_does_not_show_the_password(postgres_server: PostgresServer) -> None:
    place = f"127.0.0.1:{postgres_server.port}/postgres"
    for url in (f"postgresql://ana:{WRONG}@{place}", f"postgresql://{place}?user=ana&password={WRONG}"):
        text = said(url)
        assert "password authentication failed" in text
        assert SECRET not in text
    dsn = f"host=127.0.0.1 port={postgres_server.port} dbname=postgres user=ana password={WRONG}"
    assert SECRET not in said(dsn, sync.PostgresStore)


@pytest.mark.servers
def test_a_store_that_works_shows_no_password_either(
    redis_server: RedisServer, postgres_server: PostgresServer
) -> None:
    right = f"{SECRET}right"
    urls = [
        f"redis://:{right}@127.0.0.1:{redis_server.port}",
        f"postgresql://ana:{right}@127.0.0.1:{postgres_server.port}/postgres",
    ]
    postgres_server.execute("GRANT CREATE ON DATABASE postgres TO ana")
    for url in urls:
        text = said(url)
        assert "saved" in text
        assert SECRET not in text
        with sync.open(url) as store:
            assert SECRET not in repr(store.guarantee())


@pytest.mark.parametrize("place", ["127.0.0.1:{port}", "host.invalid"])
@pytest.mark.parametrize(
    "scheme",
    ["redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "postgresql"],
)
def test_a_server_that_cannot_be_reached_is_named_without_the_password(scheme: str, place: str) -> None:
    at = place.format(port=free_port())
    text = said(f"{scheme}://ana:{SECRET}@{at}/{'service' if 'sentinel' in scheme else ''}")
    assert "StoreUnavailable" in text
    assert SECRET not in text


@pytest.mark.servers
def test_a_bucket_that_refuses_its_credentials_does_not_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    server = s3.shared(s3.SeaweedServer)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", WRONG)
    assert SECRET not in said(server.url("refused"))


class Echo(BaseHTTPRequestHandler):
    """Refuses every request with one that holds the request itself, as S3 does for a wrong signature."""

    status = 403

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        code = "<Code>SignatureDoesNotMatch</Code><Message>The signature is wrong.</Message>"
        body = f"<Error>{code}<CanonicalRequest>{self.headers}</CanonicalRequest></Error>".encode()
        self.send_response(self.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.do_GET()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 500, 503])
def test_a_session_token_that_a_bucket_sends_back_is_not_shown(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setattr(Echo, "status", status)
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        text = said(f"s3://bucket/x?endpoint=http://127.0.0.1:{server.server_port}", sync.S3Store, patience=0.1)
        server.shutdown()
    assert f"status code: {status}" in text
    assert "SignatureDoesNotMatch: The signature is wrong." in text
    assert SECRET not in text


def test_awaitable_stores_show_no_password_either() -> None:
    async def attempt(url: str) -> str:
        try:
            async with holdfast.open(url) as store:
                await store.save("t", 1)
        except holdfast.HoldfastError as error:
            return "".join(traceback.format_exception(error))
        raise AssertionError

    for url in (f"redis://ana:{SECRET}@127.0.0.1:{free_port()}", f"rediz://ana:{SECRET}@h"):
        assert SECRET not in asyncio.run(attempt(url))


@pytest.mark.parametrize("given", [f"redis://ana:{SECRET}@h".encode(), f"redis://a:{SECRET}@h\0", [f"a:{SECRET}@h"]])
def test_what_is_no_url_is_not_shown(given: Any) -> None:
    for opener in (sync.open, sync.RedisStore, sync.PostgresStore, sync.S3Store, sync.SQLiteStore, sync.FileStore):
        try:
            text = said(given, opener)
        except (TypeError, AttributeError, ValueError) as error:
            text = "".join(traceback.format_exception(error))
        assert SECRET not in text
