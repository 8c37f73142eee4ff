"""A store with all kinds of threads, made once and copied for each test; and a way to call the command line."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast import sync
from holdfast.cli import main
from holdfast.runs.durable import registry

APP = Path(__file__).with_name("shop.py")
HOSTILE = "evil\x1b[2J\n\x00\u202e"
Call = Callable[..., Result]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store, closed."""
    place = tmp_path_factory.mktemp("template")
    sys.path.insert(0, str(APP.parent))
    try:
        import shop  # type: ignore[import-not-found]

        with sync.open(place / "holdfast.db") as store:
            fill(store, shop)
    finally:
        sys.path.remove(str(APP.parent))
        sys.modules.pop("shop", None)
    return place / "holdfast.db"


def fill(store: sync.Store, shop: Any) -> None:
    for messages in ([], ["hello"], ["hello", "who is there?"]):
        store.save("user-42", {"plan": ["search"], "messages": messages}, labels={"user": "ana"})
    store.save("user-43", {"order": shop.Order(7, {"kelp"})}, metadata={"note": HOSTILE})
    store.save(HOSTILE, {HOSTILE: HOSTILE}, labels={"name": HOSTILE})
    shop.refund._use(store._store)
    with pytest.raises(sync.Suspended):
        shop.refund.run("ticket-1", 40)
    with pytest.raises(ValueError, match="boom"):
        fail(store)


def fail(store: sync.Store) -> None:
    with store.run("broken") as run:
        run.step("one", lambda: HOSTILE)
        raise ValueError("boom " + HOSTILE)


@pytest.fixture(autouse=True)
def own_functions() -> Iterator[None]:
    """A process knows the durable functions of its own program only, not those of other tests."""
    others = dict(registry)
    registry.clear()
    yield
    registry.clear()
    registry.update(others)


@pytest.fixture
def place(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own, with a copy of the store as the default one and the application beside it."""
    shutil.copy(template, tmp_path / "holdfast.db")
    shutil.copy(APP, tmp_path / "shop.py")
    monkeypatch.chdir(tmp_path)
    for name in ("HOLDFAST_STORE", "HOLDFAST_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def call(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Call the command line in this process; nothing but its own errors may come out."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def invoke(*arguments: str, code: int = 0, text: str | None = None) -> Result:
        result = CliRunner().invoke(main, list(arguments), input=text)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    yield invoke
    sys.modules.pop("shop", None)


@pytest.fixture
def document(call: Call) -> Callable[..., Any]:
    """What a command says with `--json`: one document on standard output."""

    def invoke(*arguments: str, code: int = 0) -> Any:
        return json.loads(call(*arguments, "--json", code=code).stdout)

    return invoke
