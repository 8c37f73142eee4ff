"""Every command: where it is, and its one line of help. Nothing is imported until a command is called."""

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A command: `module:attribute` within this package, and what `holdfast --help` says about it."""

    target: str
    help: str


SECTIONS: Final[dict[str, dict[str, Entry]]] = {
    "Look": {
        "threads": Entry("threads:threads", "List threads, the newest first."),
    },
}
"""The commands by the section of the help page they stand in."""

COMMANDS: Final[dict[str, Entry]] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
