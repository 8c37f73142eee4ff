"""The site of the documents: all pages in the navigation, all public names in the reference. `make docs` builds it."""

import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import holdfast
from holdfast import stores, sync, testing

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
DIRECTIVE = re.compile(r"^::: (holdfast[\w.]*)\.(\w+)$", re.MULTILINE)
DIRECTIVES = [found for page in REFERENCE for found in DIRECTIVE.findall(page.read_text())]


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads mkdocs.yml without making what its tags name."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def config() -> Any:
    return yaml.load((ROOT / "website" / "mkdocs.yml").read_text(), Loader)


def pages(entries: Any) -> Iterator[str]:
    """The pages in a navigation, or in a part of it."""
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from pages(entry)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = Counter(pages(config()["nav"]))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    outside = config()["extra"]["project"]
    assert set(listed) == written | {place for place in outside.values() if place.endswith(".md")}
    assert set(listed.values()) == {1}
    assert all((ROOT / name).is_file() for name in outside)


def test_every_page_is_linked_from_the_index() -> None:
    linked = set(re.findall(r"\]\(([^)#]+\.md)", (DOCS / "index.md").read_text()))
    top = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert top <= linked


@pytest.mark.parametrize("module", [holdfast, testing, stores], ids=lambda module: module.__name__)
def test_every_public_name_is_in_the_reference_once(module: Any) -> None:
    listed = Counter(name for path, name in DIRECTIVES if path == module.__name__)
    assert set(listed) == set(module.__all__) - {"__version__"}
    assert set(listed.values()) == {1}


@pytest.mark.parametrize(("module", "name"), DIRECTIVES, ids=".".join)
def test_every_name_in_the_reference_can_be_imported(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)


def test_the_reference_names_what_differs_in_sync() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", (DOCS / "reference" / "sync.md").read_text(), re.MULTILINE)
    listed = Counter(name for row in rows for name in re.findall(r"`(\w+)`", row))
    differs = {name for name in holdfast.__all__ if getattr(holdfast, name) is not getattr(sync, name)}
    assert set(listed) == differs
    assert set(listed.values()) == {1}


def test_warnings_are_errors_and_nothing_comes_from_the_network() -> None:
    site = config()
    assert site["strict"] is True
    assert site["theme"]["font"] is False
    assert {"search", "offline"} <= {plugin for plugin in site["plugins"] if isinstance(plugin, str)}
    assert any("iframe-worker" in script and "//" not in script for script in site["extra"]["polyfills"])


def test_the_logo_leads_to_a_page_and_not_to_a_directory() -> None:
    assert config()["extra"]["homepage"] == "index.html"
