"""The group of all commands: `COMMANDS` lists them with their help, so `--help` loads none of them."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from keyword import iskeyword
from typing import Any, Final

import click

from holdfast.cli.command import add_common_options, usage_errors

SECTIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Try": {
        "demo": ("trials", "Watch an agent crash and resume, in seconds."),
        "chaos": ("trials", "Kill your own function at every effect, and compare the results."),
    },
    "Inspect": {
        "threads": ("threads", "List threads, newest first."),
        "show": ("show", "Show a thread: its status, requests and checkpoints."),
        "result": ("threads", "Print the result of a thread, its error, or what it waits for."),
        "steps": ("checkpoints", "List the recorded steps of a thread."),
        "state": ("checkpoints", "Print the state of a checkpoint."),
        "diff": ("checkpoints", "Compare the states of two checkpoints."),
        "tail": ("threads", "Follow new rows in all threads, or in one."),
        "stats": ("threads", "Count threads, rows and bytes."),
        "queues": ("workers", "List queues and what waits in them."),
    },
    "Answer": {
        "requests": ("requests", "List the requests of threads."),
        "answer": ("requests", "Answer a request."),
        "approve": ("requests", "Answer a request with `approve`."),
        "reject": ("requests", "Answer a request with `reject`."),
    },
    "Resume": {
        "submit": ("submitting", "Submit work to a durable function."),
        "worker": ("workers", "Run what is due, until told to end."),
        "resume": ("runs", "Resume a thread."),
        "recover": ("runs", "Resume every resumable thread."),
        "retry": ("runs", "Put failed threads back, to be resumed."),
        "settle": ("runs", "Record how a step in doubt ended."),
        "fork": ("checkpoints", "Start a new thread from a checkpoint."),
        "cancel": ("runs", "Cancel a thread."),
    },
    "Maintain": {
        "verify": ("maintenance", "Read and check all stored data."),
        "doctor": ("doctor", "Examine a store, and say what to fix."),
        "gc": ("maintenance", "Delete old threads and checkpoints."),
        "export": ("maintenance", "Write a thread to a file."),
        "import": ("maintenance", "Read a thread from a file."),
        "delete": ("maintenance", "Delete a thread, or one checkpoint."),
        "revive": ("maintenance", "Free the id of a deleted thread."),
        "backup": ("maintenance", "Copy the whole store into a new SQLite file."),
        "copy": ("maintenance", "Copy all threads to another store."),
    },
    "Shell": {
        "completion": ("completion", "Print the script for shell completion."),
    },
}
"""The module and the help of each command, by the section of the help page. The function is named like the command."""

COMMANDS: Final = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

SYNONYMS: Final = {
    "threads": ("list", "ls", "ps"),
    "show": ("checkpoints", "history", "inspect", "log"),
    "result": ("output",),
    "requests": ("inbox",),
    "resume": ("run",),
    "retry": ("requeue",),
    "settle": ("resolve",),
    "fork": ("replay", "restore", "rewind", "rollback"),
    "gc": ("prune",),
    "delete": ("rm",),
    "revive": ("undelete",),
}
"""What other tools call our commands."""


class LazyGroup(click.Group):
    """A group that loads a command when it is called."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._as_json = False
        add_common_options(self)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Remember whether a document is wanted: a wrong command line may fail before its options are read."""
        given = list(sys.argv[1:] if args is None else args)
        self._as_json = "--json" in takewhile(lambda each: each != "--", given)
        return super().main(args, *rest, **options)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the options before the command's name."""
        with usage_errors(as_json=self._as_json):
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the rest, and run the command."""
        with usage_errors(as_json=self._as_json):
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command by its name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"holdfast.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown name, raise an error that names the nearest one."""
        given = args[0]  # click may empty the list
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = [name for name, words in SYNONYMS.items() if given in words]
            near = meant or get_close_matches(given, COMMANDS, 1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean `holdfast {near[0]}`?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, section by section."""
        width = max(map(len, COMMANDS))
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in entries.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(package_name="holdfast", message="holdfast %(version)s")
def main() -> None:
    """Inspect threads, answer their requests, resume and fork them, and maintain their store."""
