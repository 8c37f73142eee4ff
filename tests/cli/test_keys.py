"""Keys on the command line: one or a ring, from a file or the environment; and what is shown without them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Call
from holdfast import sync
from holdfast.cli.arguments import parse_keys
from holdfast.records.errors import ConfigurationError

Document = Callable[..., Any]
OLD, NEW = b"o" * 32, b"n" * 32
SECRETS = ("ana", "mum", "boom")


@pytest.fixture
def sealed(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An encrypted store with a saved thread, one that failed, and one that waits."""
    monkeypatch.setenv("HOLDFAST_STORE", "sealed.db")
    with sync.open("sealed.db", keys=sync.KeyRing({"2025": OLD}, "2025")) as store:
        store.save("user-1", {"word": "mum"}, labels={"user": "ana"})
        with pytest.raises(ValueError, match="boom"), store.run("broken"):
            raise ValueError("boom")
        with pytest.raises(sync.Suspended), store.run("asking") as run:
            run.ask("what", "mum")
    return place


@pytest.mark.parametrize(
    "text", [f"2025:{OLD.hex()}\n", OLD.hex(), f"# unnamed\n\n{OLD.hex()}\n", f"any id: {OLD.hex()}"]
)
def test_a_key_is_found_whatever_its_id_in_the_store_is(
    sealed: Path, document: Document, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sealed / "ring").write_text(text)
    assert document("state", "user-1", "--key-file", "ring")["state"] == {"word": "mum"}
    monkeypatch.setenv("HOLDFAST_KEY", text)
    assert document("state", "user-1")["state"] == {"word": "mum"}
    assert document("threads", "--label", "user=ana")[0]["thread_id"] == "user-1"


def test_the_first_key_of_a_ring_writes_and_the_others_read(sealed: Path, document: Document) -> None:
    (sealed / "ring").write_text(f"# the keys of our agents\n\n2026:{NEW.hex()}\n2025:{OLD.hex()}\n")
    forked = document("fork", "user-1", "--to", "fork", "--key-file", "ring")["thread_id"]
    (sealed / "new").write_text(f"2026:{NEW.hex()}")
    assert document("state", forked, "--key-file", "new")["state"] == {"word": "mum"}
    assert document("state", "user-1", "--key-file", "new", code=1)["error"] == "KeyUnavailable"


def test_what_the_command_line_writes_with_an_unnamed_key_the_program_can_read(
    sealed: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", OLD.hex())
    call("fork", "user-1", "--to", "fork")
    with sync.open("sealed.db", keys=sync.KeyRing({"2025": OLD}, "2025")) as store:
        latest = store.latest("fork")
        assert latest is not None
        assert latest.state == {"word": "mum"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no key"),
        ("# nothing\n", "holds no key"),
        (f"2025:{OLD.hex()}\nsecret:zz\n", "line 2 of ring holds no key"),
        (f"a:{OLD.hex()}\na:{NEW.hex()}\n", "line 2 of ring: a second key has the id 'a'"),
        ("\udcff".encode(errors="surrogateescape"), "holds no key"),
    ],
)
def test_what_is_no_ring_is_refused_and_not_shown(text: str | bytes, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        parse_keys(text if isinstance(text, bytes) else text.encode(), "ring")
    assert "zz" not in str(caught.value)


def test_without_a_key_threads_are_listed_and_it_is_said_what_is_hidden(
    sealed: Path, call: Call, document: Document
) -> None:
    said = call("threads").stdout
    assert {"user-1", "broken", "asking"} <= set(said.split())
    assert "3 threads encrypted, with hidden labels; to see them give --key-file FILE" in said
    assert {thread["sealed_by"] for thread in document("threads")} == {"2025"}
    assert not any(secret in said for secret in SECRETS)
    assert "encrypted threads were not searched for labels" in call("threads", "--label", "user=ana").stdout


def test_without_a_key_a_thread_is_shown_as_far_as_it_is_not_encrypted(
    sealed: Path, call: Call, document: Document
) -> None:
    for thread_id, status in (("user-1", "idle"), ("broken", "failed"), ("asking", "input required")):
        said = call("show", thread_id[:-1]).stdout
        assert f"status   {status}" in said
        assert "steps and checkpoints are encrypted with key '2025'" in " ".join(said.split())
        assert not any(secret in said for secret in SECRETS)
    assert document("show", "broken")["checkpoints"] is None
    assert "--key-file" in call("state", "user-1", code=1).stderr


def test_with_another_key_it_is_said_which_keys_were_given(sealed: Path, call: Call) -> None:
    (sealed / "new").write_text(f"2026:{NEW.hex()}")
    advice = "give --key-file FILE or HOLDFAST_KEY with the missing key; the given one has only '2026'"
    for arguments in (["threads"], ["threads", "--label", "user=ana"], ["show", "broken"]):
        said = call(*arguments, "--key-file", "new").stdout
        assert advice in " ".join(said.split())


def test_a_ring_that_lacks_one_key_shows_the_other_threads(sealed: Path, document: Document) -> None:
    with sync.open("sealed.db", keys=NEW) as store:
        store.save("user-2", {}, labels={"user": "eve"})
    (sealed / "new").write_text(NEW.hex())
    shown = {thread["thread_id"]: thread["labels"] for thread in document("threads", "--key-file", "new")}
    assert (shown["user-2"], shown["user-1"]) == ({"user": "eve"}, {})


@pytest.mark.parametrize("given", [[], ["--key-file", "new"]], ids=["no key", "another key"])
def test_recover_without_the_key_says_which_key_is_missing(
    sealed: Path, call: Call, document: Document, given: list[str]
) -> None:
    (sealed / "new").write_text(NEW.hex())
    (sealed / "shop.py").write_text("import holdfast\n\n\n@holdfast.durable\nasync def buy(thread_id): ...\n")
    with sync.open("sealed.db", keys=OLD) as store:
        store.save("left", {}, status="working")
    report = document("recover", "--app", "shop", *given, code=1)
    assert report["failed"] == []
    assert "left" in report["damaged"]
    assert "'2025', which is missing; give --key-file FILE" in report["errors"]["asking"]
    assert "is missing; give --key-file" in " ".join(call("recover", "--app", "shop", *given, code=1).stdout.split())


def test_requests_and_labels_that_could_not_be_searched_are_named(sealed: Path, call: Call, document: Document) -> None:
    said = call("requests")
    assert "warning: not all requests are listed: thread 'asking'" in said.stderr
    assert "the key '2025' is missing" in said.stderr
    assert "were not searched for labels" in call("threads", "--label", "user=ana", "--json").stderr
    assert document("threads", "--label", "user=ana") == []


def test_a_thread_that_cannot_be_read_can_be_deleted(sealed: Path, call: Call, document: Document) -> None:
    call("delete", "broken", "--yes")
    assert {thread["thread_id"] for thread in document("threads")} == {"user-1", "asking"}


def test_stats_need_no_key(sealed: Path, document: Document) -> None:
    assert document("stats")["statuses"] == {"idle": 1, "failed": 1, "input_required": 1}


def test_ids_are_completed_without_a_key(sealed: Path) -> None:
    from cli.test_offers import offered

    assert list(offered("show", "us")) == ["user-1"]


@pytest.mark.parametrize("kind", ["named pipe", "directory"])
def test_a_key_file_that_is_no_file_is_refused_at_once(kind: str, sealed: Path, call: Call) -> None:
    path = sealed / "keys"
    if kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    said = call("threads", "--key-file", str(path), code=2).output
    assert f"cannot read the key file {path}: a {kind} is in the place of a regular file" in said


def test_a_key_file_may_be_a_link(sealed: Path, call: Call) -> None:
    """Secrets are mounted that way."""
    (sealed / "mounted").write_text(OLD.hex())
    (sealed / "keys").symlink_to("mounted")
    assert call("threads", "--key-file", "keys").exit_code == 0
