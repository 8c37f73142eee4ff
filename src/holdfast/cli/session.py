"""One call of the command line: its settings, the store it opened, and the screen it prints on."""

import os
import sys
from datetime import UTC, datetime
from functools import cached_property
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.answer import Answer
from holdfast.cli.plain import dump
from holdfast.cli.screen import Screen
from holdfast.records.errors import ConfigurationError, NotFound
from holdfast.records.urls import redacted

if TYPE_CHECKING:
    from holdfast.codec.keys import KeyRing
    from holdfast.runs.store import Store as AwaitableStore
    from holdfast.sync import Store


class Session:
    """Made for each call; `store` opens at its first use, and only a store that is there."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.own: AwaitableStore | None = None
        """The store that an application was given, if that is the one to use."""
        self._opened: list[Store] = []

    @property
    def as_json(self) -> bool:
        """True if the answer is a document for a program."""
        return bool(self.settings.get("json"))

    @property
    def debug(self) -> bool:
        """True if errors show their traceback."""
        return bool(self.settings.get("debug"))

    @property
    def url(self) -> str | None:
        """The store that was asked for; None for the default."""
        return self.settings.get("store")

    @property
    def named_store(self) -> str:
        """How a store was asked for, as it may be shown to anybody; empty if the default one is meant."""
        from holdfast.stores.locations import VARIABLE

        if self.url is not None:
            return f"--store {redacted(self.url)}"
        if os.environ.get(VARIABLE):
            return f"{VARIABLE}={redacted(os.environ[VARIABLE])}"
        return f"--namespace {self.namespace}" if self.namespace else ""

    @property
    def namespace(self) -> str:
        """The namespace that was asked for."""
        return str(self.settings.get("namespace", ""))

    @cached_property
    def keys(self) -> "KeyRing | None":
        """The keys that were given, if any."""
        from holdfast.cli.keys import find_keys

        return find_keys(self.settings.get("key_file"))

    def fresh_screen(self) -> Screen:
        """Standard output, as a person sees it now."""
        terminal = is_terminal()
        return Screen(
            width=max(get_terminal_size((80, 24)).columns, 40),
            narrow=terminal,
            colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
            utc=bool(self.settings.get("utc")),
            now=datetime.now(UTC),
        )

    @cached_property
    def store(self) -> "Store":
        """The store that was asked for; `NotFound` if there is none: looking never makes one."""
        return self.open(self.url) if self.own is None else blocking_handle(self.own)

    def use(self, own: "AwaitableStore | None") -> None:
        """Look at the store that an application was given from now on; None for the one that was asked for."""
        self.__dict__.pop("store", None)
        self.own = own

    def open(self, url: str | None, *, create: bool = False, advice: str = "") -> "Store":
        """A store by its URL, closed at the end of the session."""
        import holdfast.sync
        from holdfast.cli.limits import parse_limits

        if not create:
            refuse_missing(url, advice)
        limits = parse_limits(self.settings.get("limits"))
        opened = holdfast.sync.open(url, keys=self.keys, namespace=self.namespace, limits=limits)
        self._opened.append(opened)
        return opened

    def close(self) -> None:
        """Close what was opened."""
        while self._opened:
            self._opened.pop().close()

    def print(self, answer: Answer) -> None:
        """Print an answer in the form that was asked for."""
        if self.as_json:
            click.echo(dump(answer.document))
            return
        for line in answer.lines(self.fresh_screen()):
            click.echo(line)


def blocking_handle(own: "AwaitableStore") -> "Store":
    """A blocking handle on a store of either world, which does not close it."""
    import holdfast.sync
    from holdfast.ports import BlockingPorts
    from holdfast.runs.store import Store as AwaitableStore
    from holdfast.runs.store import tools_of

    tools = tools_of(own)
    handle = holdfast.sync.Store.__new__(holdfast.sync.Store)
    handle._store = AwaitableStore(  # noqa: SLF001  as holdfast.sync.open makes one
        tools.reader.backend,
        committer=tools.committer,
        ports=BlockingPorts(),
        keys=tools.reader.bindings.ring,
        namespace=tools.reader.bindings.namespace,
        limits=tools.reader.bindings.limits,
        on_close=lambda: None,
    )
    return handle


def is_terminal() -> bool:
    """True if a person reads standard output, and no file or program."""
    return sys.stdout.isatty()


CHOOSING = "give --store URL, or set HOLDFAST_STORE"


def refuse_missing(url: str | None, advice: str = "") -> None:
    """`NotFound` if opening the URL would make a store: looking never does."""
    from holdfast.stores.locations import is_there, locate

    kind, place = locate(url)
    if kind == "sqlite" and os.path.isdir(place):  # noqa: PTH112  a plain name is what the user gave
        raise ConfigurationError(f"{place} is a directory; file:{place} names a store in one")
    if not is_there(url):
        raise NotFound(f"there is no store at {place}; {advice or CHOOSING}")
