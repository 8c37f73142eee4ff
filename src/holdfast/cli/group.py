"""The group of all commands, each loaded by name when it is called."""

from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

import click

from holdfast.cli.catalogue import COMMANDS, SECTIONS
from holdfast.cli.command import add_common_options

SYNONYMS: Final = {
    "checkpoints": "show",
    "history": "show",
    "inbox": "requests",
    "inspect": "show",
    "output": "result",
    "list": "threads",
    "log": "show",
    "ls": "threads",
    "prune": "gc",
    "ps": "threads",
    "replay": "fork",
    "requeue": "retry",
    "resolve": "settle",
    "restore": "fork",
    "rewind": "fork",
    "rm": "delete",
    "rollback": "fork",
    "run": "resume",
    "undelete": "revive",
}
"""What other tools call it."""


class LazyGroup(click.Group):
    """A group that knows its commands by the catalogue, so that `--help` loads none of them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        add_common_options(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, loaded."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(import_module(f"holdfast.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; for a name that is none, an error that says the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = SYNONYMS.get(args[0]) or next(iter(get_close_matches(args[0], COMMANDS, 1)), None)
            if near is None:
                raise
            raise click.UsageError(f"{error.message} Did you mean `holdfast {near}`?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The catalogue, section by section."""
        width = max(map(len, COMMANDS))
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), entry.help) for name, entry in entries.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(package_name="holdfast", message="holdfast %(version)s")
def main() -> None:
    """Look at threads, go back in them, answer what they ask, and keep their store in shape."""
