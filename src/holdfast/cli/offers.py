"""What a shell offers where an id is to be typed. Whatever goes wrong here is silent: a person is in mid-line."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from holdfast.cli.session import Session

if TYPE_CHECKING:
    from holdfast.sync import Store

LOOKED_AT = 1000
"""So many of the newest are looked at: a person waits."""
OFFERED = 100
Offers = Iterable[tuple[str, str]]
"""Ids, each with a word about it."""


def _threads(store: "Store", start: str) -> Offers:
    page = store.threads(limit=LOOKED_AT)
    return ((info.thread_id, info.status.value) for info in page if info.thread_id.startswith(start))


def _checkpoints(store: "Store", start: str) -> Offers:
    """Threads; and behind an `@`, the checkpoints of the one before it."""
    yield from _threads(store, start)
    thread_id, separator, _ = start.rpartition("@")
    if separator:
        for info in store.history(thread_id, limit=LOOKED_AT):
            yield f"{thread_id}@{info.seq}", info.cause.value


def _requests(store: "Store", start: str) -> Offers:
    page = store.requests(limit=LOOKED_AT)
    return ((request.id, request.name) for request in page if request.id.startswith(start))


def _offering(find: Callable[["Store", str], Offers]) -> Callable[..., list[CompletionItem]]:
    def offer(ctx: click.Context, _param: click.Parameter, start: str) -> list[CompletionItem]:
        session = ctx.ensure_object(Session)
        try:
            return [CompletionItem(name, help=word) for name, word in islice(_typable(find, session, start), OFFERED)]
        except Exception:  # noqa: BLE001  no store, no key, no connection: there is nothing to offer
            return []
        finally:
            session.close()

    return offer


def _typable(find: Callable[["Store", str], Offers], session: Session, start: str) -> Iterator[tuple[str, str]]:
    """What begins so, and can be typed as it is, in every shell."""
    for name, word in find(session.store, start):
        if name.startswith(start) and name.isprintable() and not set(name) & set(" \\'\"`$&|;<>()*?[]{}!"):
            yield name, word


def thread_argument(name: str = "thread", metavar: str = "ID", **options: Any) -> Callable[[Any], Any]:
    """An argument that takes the id of a thread."""
    return click.argument(name, metavar=metavar, shell_complete=_offering(_threads), **options)


def checkpoint_argument(name: str = "checkpoint", metavar: str = "ID[@SEQ]") -> Callable[[Any], Any]:
    """An argument that takes a checkpoint, or a thread for its newest one."""
    return click.argument(name, metavar=metavar, shell_complete=_offering(_checkpoints))


def request_argument() -> Callable[[Any], Any]:
    """An argument that takes a request that is open."""
    return click.argument("request", metavar="REQUEST", shell_complete=_offering(_requests))
