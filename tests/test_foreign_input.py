# ruff: noqa: RUF001  tables of hostile texts
"""Whatever a file, a URL, a variable or a database holds: errors are Holdfast's own. One test per parser."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast import FailurePolicy, HoldfastError, KeyRing, processes
from holdfast.cli.arguments import json_value, parse_keys
from holdfast.codec.seal import Seal
from holdfast.processes import Identity, is_certainly_dead, named
from holdfast.records.errors import ConfigurationError, Corrupt, IncompatibleCheckpoint
from holdfast.records.identity import CheckpointId, RequestId
from holdfast.stores import locations
from holdfast.stores.bundle import MAGIC, _Frames, _write_frames
from holdfast.stores.objects.names import MarkName, blob_of, segment_version
from holdfast.stores.objects.probe import check_format
from holdfast.stores.postgres.connections import connections_of
from holdfast.stores.redis.settings import from_url, options_in
from holdfast.stores.s3.places import place_of
from holdfast.sync import FileStore, MemoryStore
from holdfast.sync import open as open_store

quick = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = st.text(st.characters(exclude_categories=[]), max_size=30)
DEEP = 100_000
LONG_HOSTS = [f"{scheme}://{'a' * 64}" for scheme in ("redis", "redis+cluster", "postgresql")]
FIELDS = [
    "thread_id",
    "incarnation",
    "seq",
    "base",
    "checkpoint",
    "status",
    "created_at",
    "updated_at",
    "marks",
    "labels",
]

scraps = st.one_of(
    texts,
    st.sampled_from(
        ["@", ":", "/", "//", "?", "#", "[", "]", "[::1]", "[::", "%", "%zz", "%00", "%ff", "&", "=", ",", ";"]
    ),
    st.sampled_from(
        [":99999", ":-1", ":0", ":port", ":٣", ":" + "9" * 5000, "a" * 300, "\0", "\ud800", "ℂ", "．", " ", "\n"]
    ),
    st.sampled_from(
        ["localhost", "user:pass@", "db", "schema=x", "prefix=y", "replicas=two", "endpoint=http://[", "region="]
    ),
    st.sampled_from(
        ["socket_timeout=x", "db=x", "sslmode=what", "protocol=9", "health_check_interval=x", "patience=nan"]
    ),
)
places = st.lists(scraps, max_size=6).map("".join)


def urls(*schemes: str) -> st.SearchStrategy[str]:
    return st.builds(
        lambda scheme, colon, rest: scheme + colon + rest,
        st.sampled_from(schemes),
        st.sampled_from(["://", ":"]),
        places,
    )


def only_ours(call: Callable[[], Any]) -> None:
    """Call it; any error but one of Holdfast's fails the test."""
    with suppress(HoldfastError):
        call()


@quick
@given(st.one_of(places, urls("memory", "sqlite", "file", "postgres", "redis", "s3", "http", "C", "")))
def test_the_place_of_a_store(url: str) -> None:
    only_ours(lambda: locations.locate(url))
    only_ours(lambda: locations.is_there(url))


@quick
@given(urls("postgresql", "postgres"))
@example("postgresql://[::1/db")
@example("postgresql://host:port/db")
@example("postgresql://h/db?schema=%ff&x=\ud800")
def test_the_url_of_a_postgresql(url: str) -> None:
    def parse() -> None:
        place, _ = locations.schema_of(url)
        connections_of(place, 1, None)

    only_ours(parse)


@quick
@given(urls("redis", "rediss", "redis+sentinel", "rediss+cluster", "redis+cluster", "valkey"))
@example("redis://[::1/0")
@example("redis://localhost:port")
@example("redis+cluster://a:99999999,b:x")
@example("redis://h/0?x=\ud800")
def test_the_url_of_a_redis(url: str) -> None:
    def parse() -> None:
        place, _ = options_in(url)
        settings = from_url(place)
        assert settings.identity is not None
        settings.make(*(settings.nodes[0] if settings.nodes else ()))

    only_ours(parse)


@quick
@given(urls("s3", "gs", "az"))
@example("s3://[::1/prefix")
@example("s3://bucket/p?endpoint=http://[")
@example("s3://bucket?endpoint=https://h:port")
@example("s3://bucket/%ff%00")
def test_the_url_of_a_bucket(url: str) -> None:
    only_ours(lambda: place_of(url, endpoint=None, region=None, allow_http=False))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://[::1/db",
        "redis://[::1/0",
        "redis://h:port/0",
        "s3://[::1/x",
        "redis+cluster://h:99999999",
        "redis://a..b/0",
        *LONG_HOSTS,
    ],
)
def test_a_url_that_cannot_be_read_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_store(url).thread("t")


json_scraps = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["format", "store"]), inner)),
)
MARKERS = [
    b"[" * DEEP,
    b'{"format":' * DEEP,
    b'{"format": 1e999}',
    b'{"format": NaN}',
    b'{"format": true}',
    b"\xff",
    b"",
    b"1",
]


@pytest.mark.parametrize("content", [*MARKERS, b'{"format": "1"}', b'{"format": ' + b"9" * 5000 + b"}"])
def test_a_damaged_marker_of_a_file_store_is_corrupt(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "holdfast.json").write_bytes(content)
    with pytest.raises(Corrupt):
        FileStore(tmp_path).thread("t")


@quick
@given(st.one_of(st.binary(max_size=50), json_scraps.map(lambda value: json.dumps(value).encode())))
def test_the_marker_of_a_file_store(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "holdfast.json").write_bytes(content)
    only_ours(lambda: FileStore(tmp_path).thread("t"))


yaml_scraps = st.one_of(
    texts,
    st.lists(
        st.sampled_from(
            [
                "timeout: ",
                "default: ",
                "retry",
                "\n",
                "- ",
                "&a ",
                "*a",
                "[",
                "]",
                "{",
                "}",
                "!!int ",
                "!!float ''",
                "? ",
                ": ",
                "!!timestamp 2026-99-99",
                "0x",
                "1_",
                ".inf",
                "delay: -1",
                "action: ",
                "strategy: ",
                "hint: [",
                "'",
                "|\n",
                "%YAML 9",
                "circuit_breaker",
                "backoff_and_retry",
                "rollback",
                "{action: retry, delay: ",
                "1e400",
                "9" * 5000,
                "---\n",
            ]
        ),
        max_size=12,
    ).map("".join),
)
LAUGHS = "a0: &a0 [retry, retry]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@quick
@given(yaml_scraps)
@example("[" * 1200)
@example("{a: " * 1200)
@example("timeout: &a [*a]")
@example("timeout: &a {strategy: circuit_breaker, then: *a}")
@example(LAUGHS.replace("a39:", "timeout:"))
@example("!!int ''")
@example("timeout: {action: retry, delay: 1e400}")
def test_a_policy_in_yaml(text: str) -> None:
    only_ours(lambda: FailurePolicy.from_yaml(text))


def test_a_policy_that_holds_itself_is_a_configuration_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for plain in ({"timeout": endless}, {"timeout": {"strategy": "circuit_breaker", "then": endless}}):
        with pytest.raises(ConfigurationError, match="contains itself"):
            FailurePolicy.from_dict(plain)


@quick
@given(st.one_of(st.binary(max_size=100), st.text("0123456789abcdefABCDEF=+/-_ \n:", max_size=100).map(str.encode)))
def test_a_key_file(data: bytes) -> None:
    only_ours(lambda: parse_keys(data, "file"))


@quick
@given(
    st.dictionaries(texts, st.one_of(st.binary(max_size=40), texts, st.none()), max_size=3), st.one_of(st.none(), texts)
)
def test_a_key_ring(keys: Any, write: Any) -> None:
    only_ours(lambda: KeyRing(keys, write=write))


@quick
@given(st.one_of(texts, st.lists(st.sampled_from(["a", "@", "#", ".", "7", "²", "9" * 5000, "1f9a3c2e"])).map("".join)))
def test_ids_of_checkpoints_and_requests(text: str) -> None:
    with MemoryStore() as store:
        for parse in (CheckpointId.parse, RequestId.parse, store.load, store.thread, store.latest):
            only_ours(lambda parse=parse: parse(text))  # type: ignore[misc]
        only_ours(lambda: store.history(text, cursor=text))
        only_ours(lambda: store.threads(cursor=text))
        only_ours(lambda: store.answer(text, "yes"))


@quick
@given(
    st.lists(st.sampled_from([":", "1", "²", "host", "9" * 5000, "4294967296", "99999999999999999999", "-1", "0"])).map(
        "".join
    )
)
@example("h:²:3:4:5:6")
@example(f"h:{'9' * 5000}:3:4:5:6")
def test_the_owner_of_a_lease(owner: str) -> None:
    Identity.parse(owner)
    named(owner)
    is_certainly_dead(owner)


@pytest.mark.parametrize("pid", ["0", "4294967296", "99999999999999999999", "²"])
def test_a_process_that_cannot_exist_is_not_asked_about(pid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = processes.identity()
    asked: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, _signal: asked.append(pid))
    is_certainly_dead(f"{here.host}:{pid}:{here.start}:{here.boot}:{here.space}:run")
    assert asked == []


@quick
@given(
    st.one_of(
        texts,
        st.lists(st.sampled_from(["marks/", "0" * 64, "a" * 32, "-", "0" * 12, "٣" * 12, "/", "\n"])).map("".join),
    )
)
def test_names_of_objects(name: str) -> None:
    for parse in (MarkName.parse, segment_version, blob_of):
        parse(name)


class _OneObject:
    """The calls of an object store in which there is one object."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def get(self, _name: str) -> tuple[bytes, str]:
        return self.content, "tag"


@pytest.mark.parametrize("content", [b"", b"x", b"\xff", b"9" * 5000, "٣".encode(), b"1", b"3"])
def test_the_format_of_an_object_store(content: bytes) -> None:
    calls: Any = _OneObject(content)
    with pytest.raises((Corrupt, IncompatibleCheckpoint)):
        check_format(calls)


@quick
@given(st.one_of(texts, json_scraps.map(json.dumps)))
@example("[" * DEEP)
@example("@/does/not/exist")
@example("@a\0b")
@example("9" * 5000)
def test_json_on_the_command_line(text: str) -> None:
    if text != "-":
        with suppress(click.UsageError):
            json_value(text)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("bundle") / "b"
    with MemoryStore() as store:
        store.save("t", {"plan": list(range(50)), "day": "x" * 100})
        store.append("t", "plan", (1, {2}))
        store.export("t", path)
    return path.read_bytes()


@quick
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 20), st.binary(max_size=20)), min_size=1, max_size=3))
def test_a_damaged_bundle(bundle: bytes, tmp_path: Path, damages: list[tuple[int, int, bytes]]) -> None:
    damaged = bytearray(bundle)
    for start, length, put in damages:
        damaged[start % len(bundle) : start % len(bundle) + length] = put
    import_damaged(tmp_path, bytes(damaged))


junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.just(2**70), st.text(max_size=5), st.binary(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=9)),
)


@quick
@given(st.integers(0, 50), st.integers(0, 50), junk)
def test_a_forged_bundle(bundle: bytes, tmp_path: Path, number: int, part: int, put: Any) -> None:
    frames = frames_of(bundle)
    frame = frames[number % len(frames)]
    keys = list(frame) if isinstance(frame, dict) else list(range(len(frame)))
    if part:
        frame[keys[part % len(keys)]] = put
    else:
        frames[number % len(frames)] = put
    path = tmp_path / "forged"
    with path.open("wb") as file:
        file.write(MAGIC)
        _write_frames(file, frames, None, bytes)
    import_damaged(tmp_path, path.read_bytes())


def frames_of(bundle: bytes) -> list[Any]:
    with TemporaryFile() as file:
        file.write(bundle)
        file.seek(len(MAGIC) + 2)
        reader = _Frames(Seal())
        return list(iter(lambda: reader.read(file), None))


def import_damaged(directory: Path, content: bytes) -> None:
    path = directory / "bundle"
    path.write_bytes(content)
    with MemoryStore() as store:
        only_ours(lambda: store.latest(store.import_(path)))
