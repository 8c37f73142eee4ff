"""What all commands share: their options, how an answer is printed, and how an error becomes an exit code."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import IO, Any, Final

import click

from holdfast.cli.output import Answer, dump, printable
from holdfast.cli.session import Session
from holdfast.codec.opaque import unknown_as_opaque
from holdfast.records import errors
from holdfast.records.errors import HoldfastError, HoldfastWarning

EXIT_OK: Final = 0
EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_CONFLICT: Final = 4
EXIT_WAITS: Final = 5
EXIT_INTERRUPTED: Final = 130

EXIT_CODES: Final[dict[int, tuple[type[HoldfastError], ...]]] = {
    EXIT_WAITS: (errors.Suspended,),
    EXIT_NOT_FOUND: (errors.NotFound, errors.Deleted),
    EXIT_CONFLICT: (
        errors.Conflict,
        errors.LeaseHeld,
        errors.Fenced,
        errors.KeyReused,
        errors.Finished,
        errors.RequestExpired,
    ),
    EXIT_USAGE: (errors.ConfigurationError, errors.InvalidAnswer, errors.InvalidId),
}
ADVICE: Final[dict[type[HoldfastError], str]] = {
    errors.KeyUnavailable: "--key-file FILE, or HOLDFAST_KEY",
    errors.StepInDoubt: "holdfast settle ID STEP with --done JSON, --retry or --fail",
    errors.LimitExceeded: "--limits, as in --limits memory=1GiB",
    errors.UnknownType: "--app MODULE names the module",
}
"""What to do on the command line, for errors whose message speaks to programs."""


yes_option = click.option("--yes", is_flag=True, help="Do it. Without this, only say what would be done.")


def offer_files(_ctx: click.Context, _param: click.Parameter, start: str) -> list[Any]:
    """Let the shell complete the name of a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(start, type="file")]


COMMON: Final[tuple[dict[str, Any], ...]] = (
    {
        "param_decls": ["--store", "url"],
        "metavar": "URL",
        "help": "Use this store: a path or a URL. Default: $HOLDFAST_STORE, else holdfast.db.",
        "shell_complete": offer_files,
    },
    {"param_decls": ["--namespace"], "metavar": "NAME", "help": "Use this namespace of the store."},
    {
        "param_decls": ["--key-file"],
        "metavar": "FILE",
        "help": "Read the key of an encrypted store, or a ring of keys, from a file. Default: $HOLDFAST_KEY.",
        "shell_complete": offer_files,
    },
    {
        "param_decls": ["--limits"],
        "metavar": "NAME=N,…",
        "help": "Set limits of the store, as in memory=1GiB: see docs/limits.md.",
    },
    {"param_decls": ["--json", "as_json"], "is_flag": True, "default": None, "help": "Print one JSON document."},
    {"param_decls": ["--utc"], "is_flag": True, "default": None, "help": "Print full times in UTC."},
    {"param_decls": ["--debug"], "is_flag": True, "default": None, "help": "Show the log, and tracebacks of errors."},
)
"""The options of every command: attributes of `Session`. They come before or after its name; the last one counts."""
STORE_OF_APP = "Use this store: a path or a URL. Default: $HOLDFAST_STORE, else that of your functions."


def add_common_options(command: click.Command, store_help: str = "") -> None:
    """Add the options that all commands have; `store_help` is for commands with another default store."""
    for settings in COMMON:
        option = click.Option(expose_value=False, callback=_keep, **settings)
        if store_help and option.name == "url":
            option.help = store_help
        command.params.append(option)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None:
        setattr(ctx.ensure_object(Session), str(param.name), value)


def exit_code(error: HoldfastError) -> int:
    """Return the exit code of an error."""
    return next((code for code, kinds in EXIT_CODES.items() if isinstance(error, kinds)), EXIT_ERROR)


class Failure(click.ClickException):
    """A HoldfastError: printed as one line on standard error, and with `--json` as a document too."""

    def __init__(self, error: HoldfastError, *, as_json: bool) -> None:
        causes = (error, error.__cause__)
        advice = [text for kind, text in ADVICE.items() if any(isinstance(each, kind) for each in causes)]
        super().__init__(printable(f"{error} (here: {advice[0]})" if advice else str(error)))
        self.exit_code: int = exit_code(error)  # type: ignore[misc]  # click reads it from the instance
        self._kind = type(error).__name__
        self._as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it."""
        click.echo(f"error: {self.message}", file=file, err=True)
        if self._as_json:
            click.echo(dump({"error": self._kind, "message": self.message, "exit_code": self.exit_code}))


class UsageFailure(click.UsageError):
    """A wrong command line with `--json`: a document too."""

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(error.format_message(), error.ctx)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it."""
        super().show(file)
        click.echo(dump({"error": "UsageError", "message": self.message, "exit_code": self.exit_code}))


@contextmanager
def usage_errors(*, as_json: bool) -> Iterator[None]:
    """Let a wrong command line be a document too."""
    try:
        yield
    except click.UsageError as error:
        if as_json:
            raise UsageFailure(error) from error
        raise


def _set_up_logs(*, debug: bool, logs: bool) -> None:
    """Show the library's log with --debug, and drop it otherwise; with `logs` its warnings are shown, as by default."""
    logger = logging.getLogger("holdfast")
    if debug:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
    elif not logs and not logger.handlers:
        logger.addHandler(logging.NullHandler())


@contextmanager
def _printed_warnings() -> Iterator[None]:
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
    """A command whose function takes the session first and returns an `Answer`, which is printed here."""

    def __init__(
        self,
        *args: Any,
        runs_code: bool = False,
        only_reads: bool = False,
        logs: bool = False,
        store_help: str = "",
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._runs_code = runs_code
        self._only_reads = only_reads
        self._logs = logs
        add_common_options(self, store_help)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, print its answer, and exit with its code."""
        session = ctx.ensure_object(Session)
        session.only_reads = self._only_reads
        ctx.call_on_close(session.close)
        _set_up_logs(debug=session.debug, logs=self._logs)
        try:
            with nullcontext() if self._runs_code else unknown_as_opaque(), _printed_warnings():
                # What the user's code prints must not mix with the document.
                with redirect_stdout(sys.stderr) if self._runs_code and session.as_json else nullcontext():
                    answer = super().invoke(ctx)
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
    *, runs_code: bool = False, only_reads: bool = False, logs: bool = False, store_help: str = ""
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function of (session, ...) the command of its name. List it in `group.py`.

    Objects of unregistered classes are shown as data, unless the command runs the user's code. A command that
    only reads opens a store of any durability. One that `logs` shows the library's warnings.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        name = function.__name__.rstrip("_")
        options = {"runs_code": runs_code, "only_reads": only_reads, "logs": logs, "store_help": store_help}
        made: click.Command = click.command(name, cls=Command, **options)(click.make_pass_decorator(Session)(function))
        return made

    return decorate
