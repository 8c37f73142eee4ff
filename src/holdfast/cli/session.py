"""One call of the command line: its settings, the store it opens, and the screen it prints on."""

import os
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cached_property
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import Answer, Screen, dump
from holdfast.records.errors import ConfigurationError, NotFound
from holdfast.records.urls import redacted

if TYPE_CHECKING:
    from holdfast.codec.keys import KeyRing
    from holdfast.records.words import Durability
    from holdfast.runs.store import Store as AwaitableStore
    from holdfast.sync import Store


class Session:
    """The settings of one call, named in `command.py`. `store` opens at first use, and never creates a store."""

    url: str | None = None
    namespace: str = ""
    key_file: str | None = None
    limits: str | None = None
    as_json: bool = False
    utc: bool = False
    debug: bool = False
    only_reads: bool = False
    """The command writes nothing, so its store may have any durability."""

    def __init__(self) -> None:
        self.app_store: AwaitableStore | None = None
        """The store that an application works on, if that is the one to use."""
        self._stack = ExitStack()

    @property
    def requested_store(self) -> str:
        """How the user named a store, without credentials; empty if not at all."""
        from holdfast.stores.locations import VARIABLE

        if self.url is not None:
            return f"--store {redacted(self.url)}"
        if os.environ.get(VARIABLE):
            return f"{VARIABLE}={redacted(os.environ[VARIABLE])}"
        return f"--namespace {self.namespace}" if self.namespace else ""

    @cached_property
    def keys(self) -> "KeyRing | None":
        """The keys of --key-file or HOLDFAST_KEY, if any."""
        from holdfast.cli.arguments import find_keys

        return find_keys(self.key_file)

    @property
    def screen(self) -> Screen:
        """Standard output as it is now."""
        terminal = is_terminal()
        return Screen(
            width=max(get_terminal_size((80, 24)).columns, 40),
            narrow=terminal,
            colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
            utc=self.utc,
            now=datetime.now(UTC),
        )

    @cached_property
    def store(self) -> "Store":
        """The store to work on; `NotFound` if it does not exist."""
        if self.app_store is None:
            return self.open(self.url)
        return self._stack.enter_context(blocking_handle(self.app_store))

    def use(self, app_store: "AwaitableStore | None") -> None:
        """Work on the store of an application from now on; with None, on the requested one."""
        self.__dict__.pop("store", None)
        self.app_store = app_store

    def open(self, url: str | None, *, create: bool = False, advice: str = "") -> "Store":
        """Open a store until the end of the session. With `create`, its first write creates it."""
        import holdfast.sync
        from holdfast.cli.arguments import parse_limits

        if not create:
            require_store(url, advice)
        limits = parse_limits(self.limits)
        level = lowest_level(url) if self.only_reads else None
        store = holdfast.sync.open(url, keys=self.keys, namespace=self.namespace, limits=limits, durability=level)
        if create:
            self._stack.callback(store.close)
            return store
        return self._stack.enter_context(store)

    def close(self) -> None:
        """Close what was opened."""
        self._stack.close()

    def print(self, answer: Answer) -> None:
        """Print an answer as a document or as lines."""
        for line in [dump(answer.document)] if self.as_json else answer.lines:
            click.echo(line)


def blocking_handle(store: "AwaitableStore") -> "Store":
    """Return a blocking handle on an application's store, awaitable or blocking. It does not close that store."""
    import holdfast.sync
    from holdfast.ports import BlockingPorts
    from holdfast.runs.store import twin

    handle = holdfast.sync.Store.__new__(holdfast.sync.Store)
    handle._store = twin(store, BlockingPorts())  # noqa: SLF001  as holdfast.sync.open makes one
    return handle


def is_terminal() -> bool:
    """True if standard output is a terminal."""
    return sys.stdout.isatty()


def lowest_level(url: str | None) -> "Durability | None":
    """Return the durability that every server of this kind has; None for stores that have what they are asked for."""
    from holdfast.records.words import Durability
    from holdfast.stores.locations import locate

    return Durability.NONE if locate(url)[0] in {"postgres", "redis"} else None


def require_store(url: str | None, advice: str = "") -> None:
    """Raise `NotFound` if opening the URL would create a store."""
    from holdfast.stores.locations import DEFAULT_SCHEMA, is_there, locate, schema_of

    kind, place = locate(url)
    if kind == "sqlite" and os.path.isdir(place):  # noqa: PTH112  a plain name is what the user gave
        raise ConfigurationError(f"{place} is a directory; file:{place} names a store in one")
    if kind == "memory" or place == ":memory:":
        raise ConfigurationError("a memory store is empty in a new process; give --store the URL of another one")
    if not is_there(url):
        schema = f"schema {schema_of(place)[1] or DEFAULT_SCHEMA!r} of " if kind == "postgres" else ""
        where = f"in {schema}{redacted(place)}" if schema else f"at {place}"
        raise NotFound(f"no store {where}; {advice or 'give --store URL, or set HOLDFAST_STORE'}")
