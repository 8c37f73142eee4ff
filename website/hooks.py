"""Fit the repository's Markdown to the site: files from outside of docs/, links, and what the theme cannot show.

Links are written for the repository, relative to the file they are in. The site has the files of `docs/` at its root,
and others where `extra.project` of mkdocs.yml says; here each link is turned from one tree into the other.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
SAVED_AS = re.compile(r"^<!-- saved as (\S+) -->\n```python$", re.MULTILINE)
DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
TRANSITION = re.compile(r"^\s*(\w+) --> (\w+): (.*)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures from outside of docs/."""
    for name, place in config.extra["project"].items():
        source = ROOT / name
        content = source.read_bytes() if source.suffix == ".svg" else source.read_text() + _program(source)
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Turn links, file names of programs and diagrams into what the site shows."""
    here, project = page.file.src_uri, config.extra["project"]
    prose = FENCE.split(markdown)
    fences = [*FENCE.findall(markdown), ""]
    linked = (LINK.sub(lambda link: _on_site(link, here, project), text) for text in prose)
    markdown = "".join(text + fence for text, fence in zip(linked, fences, strict=True))
    markdown = SAVED_AS.sub(r'```python title="\1"', markdown)
    return DIAGRAM.sub(_table, markdown)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Refuse a page that loads something from the network."""
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from the network: {found[0]}")
    return output


def _program(readme: Path) -> str:
    """Return the programs of an example, to show below its text."""
    programs = sorted(readme.parent.glob("*.py")) if readme.parent.parent.name == "examples" else []
    return "".join(f'\n## {path.name}\n\n```python title="{path.name}"\n{path.read_text()}```\n' for path in programs)


def _on_site(link: re.Match[str], here: str, project: dict[str, str]) -> str:
    """Turn a link of the repository into one of the site."""
    start, target, end = link.groups()
    if "://" in target:
        return link[0]
    file = next((name for name, place in project.items() if place == here), f"docs/{here}")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
    place = project.get(wanted, wanted.removeprefix("docs/"))
    return f"{start}{posixpath.relpath(place, posixpath.dirname(here) or '.')}{end}"


def _table(diagram: re.Match[str]) -> str:
    """Show a state diagram as a table: drawing it in the browser would take a library of 3 MB."""
    rows = (f"| `{source}` | `{target}` | {when} |" for source, target, when in TRANSITION.findall(diagram[1]))
    return "\n".join(["| from | to | when |", "|---|---|---|", *rows])
