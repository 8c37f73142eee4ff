"""Exit codes, and errors as one line."""

from typing import IO, Any, Final

import click

from holdfast.cli.plain import dump
from holdfast.cli.text import printable
from holdfast.records.errors import (
    ConfigurationError,
    Conflict,
    Deleted,
    Fenced,
    Finished,
    HoldfastError,
    InvalidAnswer,
    InvalidId,
    KeyReused,
    KeyUnavailable,
    LeaseHeld,
    LimitExceeded,
    NotFound,
    RequestExpired,
    StepInDoubt,
    Suspended,
    UnknownType,
)

EXIT_OK: Final = 0
EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_CONFLICT: Final = 4
EXIT_WAITS: Final = 5
EXIT_INTERRUPTED: Final = 130

CODES: Final[tuple[tuple[type[HoldfastError], int], ...]] = (
    (Suspended, EXIT_WAITS),
    (NotFound, EXIT_NOT_FOUND),
    (Deleted, EXIT_NOT_FOUND),
    (Conflict, EXIT_CONFLICT),
    (LeaseHeld, EXIT_CONFLICT),
    (Fenced, EXIT_CONFLICT),
    (KeyReused, EXIT_CONFLICT),
    (Finished, EXIT_CONFLICT),
    (RequestExpired, EXIT_CONFLICT),
    (ConfigurationError, EXIT_USAGE),
    (InvalidAnswer, EXIT_USAGE),
    (InvalidId, EXIT_USAGE),
)


def exit_code(error: HoldfastError) -> int:
    """The exit code that an error stands for."""
    return next((code for kind, code in CODES if isinstance(error, kind)), EXIT_ERROR)


def advice(error: HoldfastError) -> str:
    """What helps on the command line, where the message speaks to programs."""
    if isinstance(error, KeyUnavailable):
        return " (here: --key-file FILE, or HOLDFAST_KEY)"
    if isinstance(error, StepInDoubt):
        return " (here: holdfast settle ID STEP with --done JSON, --retry or --fail)"
    if isinstance(error, LimitExceeded):
        return " (here: --limits, as in --limits memory=1GiB)"
    if isinstance(error, UnknownType) or isinstance(error.__cause__, UnknownType):
        return " (here: --app MODULE names the module)"
    return ""


class Failure(click.ClickException):
    """An error of ours: one line on standard error, and with `--json` the document too."""

    def __init__(self, error: HoldfastError, *, as_json: bool) -> None:
        super().__init__(printable(str(error) + advice(error)))
        self.exit_code: int = exit_code(error)  # type: ignore[misc]  # click reads it from the instance
        self._kind = type(error).__name__
        self._as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it."""
        click.echo(f"error: {self.message}", file=file, err=True)
        if self._as_json:
            document = {"error": self._kind, "message": self.message, "exit_code": self.exit_code}
            click.echo(dump(document))
