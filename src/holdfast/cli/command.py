"""What all commands have in common: their options, how their answer is printed, and how an error becomes an exit."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any, Final

import click

from holdfast.cli.answer import Answer
from holdfast.cli.exits import EXIT_INTERRUPTED, Failure
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.codec.opaque import unknown_as_opaque
from holdfast.records.errors import HoldfastError, HoldfastWarning

Flag = tuple[str, str, dict[str, Any]]


def _files(ctx: click.Context, param: click.Parameter, start: str) -> list[Any]:
    from holdfast.cli.offers import offer_files

    return offer_files(ctx, param, start)


COMMON: Final[tuple[Flag, ...]] = (
    (
        "--store",
        "URL",
        {"help": "The store: a path or a URL. Else $HOLDFAST_STORE, else holdfast.db.", "shell_complete": _files},
    ),
    ("--namespace", "NAME", {"help": "The namespace within the store."}),
    (
        "--key-file",
        "FILE",
        {
            "help": "A file with the key of an encrypted store, or a ring of keys. Else $HOLDFAST_KEY.",
            "shell_complete": _files,
        },
    ),
    ("--limits", "NAME=N,…", {"help": "Limits of the store, as in memory=1GiB: see docs/limits.md."}),
    ("--json", "", {"is_flag": True, "default": None, "help": "One JSON document on standard output."}),
    ("--utc", "", {"is_flag": True, "default": None, "help": "Times in full, in UTC, instead of relative ones."}),
    ("--debug", "", {"is_flag": True, "default": None, "help": "Show the traceback of an error."}),
)
"""May stand before or after the name of a command; the later one counts."""


def add_common_options(command: click.Command, store_help: str = "") -> None:
    """Give a command the options of all; for one with a default store of its own, --store says which."""
    for name, metavar, common in COMMON:
        settings = {**common, "help": store_help} if store_help and name == "--store" else common
        option = click.Option([name], metavar=metavar or None, expose_value=False, callback=_keep, **settings)
        command.params.append(option)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    session = ctx.ensure_object(Session)
    if value is not None:
        session.settings[str(param.name)] = value


def quiet_logs(*, debug: bool) -> None:
    """What the library logs is for programs; here it would be a second voice beside the answer."""
    logger = logging.getLogger("holdfast")
    if debug:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
    elif not logger.handlers:
        logger.addHandler(logging.NullHandler())


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print warnings of the library as a line on standard error, like errors."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def echo(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
            if issubclass(category, HoldfastWarning):
                click.echo(f"warning: {printable(str(message))}", err=True)
            else:
                show(message, category, *place, **rest)

        warnings.simplefilter("always", HoldfastWarning)
        warnings.showwarning = echo
        yield


class Command(click.Command):
    """A command whose function gets the session first, and returns an `Answer`, which is printed here."""

    def __init__(self, *args: Any, runs_code: bool = False, store_help: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self._runs_code = runs_code
        add_common_options(self, store_help)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, print what it returned, and leave with its exit code."""
        session = ctx.ensure_object(Session)
        ctx.call_on_close(session.close)
        quiet_logs(debug=session.debug)
        try:
            with nullcontext() if self._runs_code else unknown_as_opaque(), printed_warnings():
                with redirect_stdout(sys.stderr) if self._runs_code and session.as_json else nullcontext():
                    answer = super().invoke(ctx)  # what the user's code prints is no part of the document
                if isinstance(answer, Answer):
                    session.print(answer)
                    ctx.exit(answer.exit_code)
        except HoldfastError as error:
            if session.debug:
                raise
            raise Failure(error, as_json=session.as_json) from error
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            ctx.exit(EXIT_INTERRUPTED)


def command(
    name: str, *, runs_code: bool = False, store_help: str = ""
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function of (session, ...) a command.

    Objects of classes that nobody registered here are shown as data, unless the command runs the user's own code.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        made: click.Command = click.command(name, cls=Command, runs_code=runs_code, store_help=store_help)(
            click.make_pass_decorator(Session)(function)
        )
        return made

    return decorate
