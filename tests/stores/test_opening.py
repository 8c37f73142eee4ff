"""From a URL to a store: paths, schemes, the environment, shared backends, and clear refusals."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast import sync
from holdfast.records.words import Durability
from holdfast.stores.locations import locate
from patience import GIVE_UP_SECONDS


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths are below the test's own directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)


def kind_and_files(url: str | Path | None) -> tuple[str, set[str]]:
    with sync.open(url) as store:
        store.save("t", 1)
        return store.guarantee().store, {path.name for path in Path().iterdir()} - {"store.db-lock"}


@pytest.mark.parametrize(
    ("url", "kind", "name"),
    [
        ("agents.db", "sqlite", "agents.db"),
        ("agents", "sqlite", "agents"),
        ("./a.b:c", "sqlite", "a.b:c"),
        (Path("path.db"), "sqlite", "path.db"),
        ("sqlite:named.db", "sqlite", "named.db"),
        ("sqlite:with%20sign.db", "sqlite", "with%20sign.db"),
        ("file:directory", "file", "directory"),
    ],
)
def test_a_url_names_a_place(url: str | Path, kind: str, name: str) -> None:
    found, files = kind_and_files(url)
    assert found == kind
    assert name in files
    with sync.open(url) as store:
        latest = store.latest("t")
        assert latest is not None


def test_urls_with_an_authority_name_absolute_paths(tmp_path: Path) -> None:
    for url, kind in ((f"sqlite://{tmp_path}/an%20absolute.db", "sqlite"), (f"file://{tmp_path}/absolute", "file")):
        assert kind_and_files(url)[0] == kind
    assert (tmp_path / "an absolute.db").is_file()
    assert (tmp_path / "absolute").is_dir()


def test_memory_is_private_to_each_handle() -> None:
    with sync.open("memory:") as one, sync.open("memory:") as other, sync.MemoryStore() as third:
        one.save("t", 1)
        assert other.latest("t") is None
        assert third.latest("t") is None
        assert one.guarantee().level == Durability.NONE
    assert list(Path().iterdir()) == []


def test_a_sqlite_memory_is_private_to_its_object() -> None:
    with sync.SQLiteStore(":memory:") as one, sync.SQLiteStore(":memory:") as other:
        one.save("t", 1)
        assert other.latest("t") is None


def test_without_a_url_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "file:from-environment")
    assert kind_and_files(None) == ("file", {"from-environment"})


def test_without_a_url_and_environment_there_is_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "")
    assert "holdfast.db" in kind_and_files(None)[1]


def test_nothing_is_touched_before_the_first_use() -> None:
    store = sync.open("later.db")
    assert list(Path().iterdir()) == []
    store.save("t", 1)
    assert Path("later.db").exists()
    store.close()


@pytest.mark.parametrize("url", ["mysql://host/db", "http://host", "nonsense:"])
def test_an_unknown_scheme_says_what_is_known(url: str) -> None:
    with pytest.raises(sync.ConfigurationError, match=r"memory:.*file:.*sqlite:"):
        sync.open(url)


@pytest.mark.parametrize("text", ["host=db password=secret dbname=x", "password=secret host=db"])
def test_a_connection_string_is_not_taken_for_a_file(text: str) -> None:
    with pytest.raises(sync.ConfigurationError, match="PostgresStore") as caught:
        sync.open(text)
    assert "secret" not in str(caught.value)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("redis://localhost", "redis", "redis"),
        ("postgresql://localhost", "psycopg", "postgres"),
        ("s3://bucket/prefix", "obstore", "s3"),
    ],
)
def test_a_missing_driver_names_its_extra(url: str, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith((f"{driver}.", f"holdfast.stores.{extra}"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(sync.ConfigurationError, match=rf"extra '{extra}': pip install '\.\[{extra}\]' in its checkout"):
        sync.open(url)


@pytest.mark.parametrize("url", ["sqlite:", "file:", "", "a\0b"])
def test_a_url_without_a_path_is_refused(url: str) -> None:
    if url:
        with pytest.raises(sync.ConfigurationError):
            sync.open(url)
    else:
        with pytest.raises(sync.ConfigurationError):
            sync.SQLiteStore(url)


def test_an_unknown_level_names_the_known_ones() -> None:
    with pytest.raises(sync.ConfigurationError, match="none, process, durable, replicated"):
        sync.open("a.db", durability="forever")


@pytest.mark.parametrize("level", ["durable", "process", "replicated"])
def test_memory_cannot_be_durable(level: str) -> None:
    with pytest.raises(sync.ConfigurationError):
        sync.open("memory:", durability=level)


@pytest.mark.parametrize("level", ["none", "replicated"])
def test_files_are_neither_nothing_nor_replicated(level: str) -> None:
    with pytest.raises(sync.ConfigurationError):
        sync.open("file:directory", durability=level)


@pytest.mark.parametrize("url", ["shared.db", "file:shared"])
def test_handles_on_one_place_share_a_backend_and_close_only_themselves(url: str) -> None:
    one, other = sync.open(url), sync.open(url)
    one.save("t", 1)
    assert other._store._backend is one._store._backend
    one.close()
    with pytest.raises(sync.StoreClosed):
        one.save("t", 2)
    assert other.save("t", 2).seq == 2
    third = sync.open(url)
    other.close()
    assert third.save("t", 3).seq == 3
    third.close()
    fourth = sync.open(url)
    assert fourth._store._backend is not one._store._backend
    assert [info.seq for info in fourth.history("t")] == [3, 2, 1]
    fourth.close()


def test_handles_of_one_place_by_other_names_share_a_backend(tmp_path: Path) -> None:
    handles = [sync.open(url) for url in ("a.db", "./a.db", f"sqlite:{tmp_path}/a.db", tmp_path / "a.db")]
    assert len({id(handle._store._backend) for handle in handles}) == 1
    for handle in handles:
        handle.close()


def test_handles_of_other_levels_do_not_share() -> None:
    with sync.open("a.db", durability="process") as one, sync.open("a.db") as other:
        assert one._store._backend is not other._store._backend
        one.save("t", 1)
        assert other.save("t", 2).seq == 2


def test_closing_twice_releases_once() -> None:
    one, other = sync.open("a.db"), sync.open("a.db")
    one.close()
    one.close()
    assert other.save("t", 1).seq == 1
    other.close()


def test_a_closed_handle_stays_closed() -> None:
    store = sync.open("a.db")
    store.save("t", 1)
    store.close()
    for call in (lambda: store.latest("t"), lambda: store.save("t", 2), store.threads, store.verify):
        with pytest.raises(sync.StoreClosed):
            call()
    with pytest.raises(sync.StoreClosed), store:
        pass


def test_handles_of_both_worlds_see_each_other() -> None:
    async def main() -> None:
        async with holdfast.open("a.db") as store:
            with sync.open("a.db") as other:
                await store.save("t", {"n": 1})
                assert other.save("t", {"n": 2}).seq == 2
                latest = await store.latest("t")
                assert latest is not None
                assert latest.state == {"n": 2}

    asyncio.run(main())


def test_options_that_cannot_be_leave_nothing_open() -> None:
    """A refused open must not keep the place from being closed later."""
    from holdfast.stores import locations

    before = set(locations._shared)
    with pytest.raises(sync.ConfigurationError):
        sync.open("a.db", keys=b"too short")
    with pytest.raises(sync.ConfigurationError, match="retention"):
        sync.open("a.db", sweep=1)
    with pytest.raises(sync.ConfigurationError, match="more than 0 s"):
        sync.open("a.db", sweep=0, retention=sync.Retention(keep_last=1))
    with pytest.raises(sync.InvalidId):
        sync.open("a.db", namespace="n" * 129)
    assert set(locations._shared) == before


def test_a_sweeper_prunes_in_the_background() -> None:
    """It wakes up by itself; its first sweep is waited for, not slept for."""
    from threading import Event

    swept = Event()
    with sync.open("memory:", retention=sync.Retention(keep_last=1), sweep=timedelta(milliseconds=5)) as store:
        for number in range(5):
            store.save("t", number)
        sweeper = store._store._sweeper  # type: ignore[attr-defined]
        sound = sweeper.sweep

        def watched() -> object:
            freed = sound()
            swept.set()
            return freed

        sweeper.sweep = watched
        assert swept.wait(GIVE_UP_SECONDS)
        assert [info.seq for info in store.history("t")] == [5]


def test_a_sweep_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    from threading import Event

    tried: list[int] = []
    enough = Event()
    with sync.open("memory:", retention=sync.Retention(keep_last=1), sweep=0.001) as store:

        def failing() -> None:
            tried.append(1)
            if len(tried) == 3:
                enough.set()
            raise sync.StoreUnavailable("not now")

        store._store._sweeper.sweep = failing  # type: ignore[attr-defined]
        assert enough.wait(GIVE_UP_SECONDS)
    assert "a sweep failed" in caplog.text


@pytest.mark.parametrize("wrong", ["agents.db?mode=ro", "c:\\agents.db"])
def test_odd_paths_are_paths(wrong: str) -> None:
    with sync.open(wrong) as store:
        store.save("t", 1)
    assert Path(wrong).exists()


@pytest.mark.parametrize("rest", ["://host", "s://host", "+cluster://a,b", "s+sentinel://host/main"])
def test_valkey_is_spoken_to_as_redis_is(rest: str) -> None:
    assert locate(f"valkey{rest}") == ("redis", f"redis{rest}")
    with pytest.raises(sync.ConfigurationError, match="unknown store 'valkeyhole:x'"):
        locate("valkeyhole:x")
