"""What a shell offers where an id is to be typed. Whatever goes wrong here is silent: a person is in mid-line."""

import warnings
from collections.abc import Callable, Iterable
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from holdfast.cli.find import every, is_thread, standing
from holdfast.cli.heads import PAGE, list_threads
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.cli.work import read_work
from holdfast.records.errors import HoldfastWarning

if TYPE_CHECKING:
    from holdfast.sync import Store

SECONDS: Final = 1.0
"""Then what was found by now is offered: a person waits."""
OFFERED: Final = 100
READ_BY_SHELLS: Final = frozenset(" \\'\"`$&|;<>()*?[]{}!")
READ_AT_THE_START: Final = ("-", "~", "#")
Offers = Iterable[tuple[str, str]]
"""Ids, each with a word about it."""
Find = Callable[["Store", str], Offers]


def _threads(store: "Store", _start: str) -> Offers:
    return ((info.thread_id, standing(info)) for info in list_threads(store))


def _checkpoints(store: "Store", start: str) -> Offers:
    """Behind an `@` the checkpoints of the thread before it; and threads."""
    thread_id, separator, _ = start.rpartition("@")
    if separator and is_thread(store, thread_id):
        for info in every(store.history(thread_id, limit=PAGE)):
            yield f"{thread_id}@{info.seq}", info.cause.value
    yield from _threads(store, start)


def _requests(store: "Store", _start: str) -> Offers:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)  # a line on standard error would spoil the line being typed
        return [(request.id, request.name) for request in every(store.requests(limit=PAGE))]


def _doubts(store: "Store", thread_id: str) -> Offers:
    return ((key, "in doubt") for key in read_work(store, thread_id).begun)


def _offer_doubts(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """The steps in doubt of the thread that was typed before."""
    thread = str(ctx.params.get("thread", ""))
    return _offering(lambda store, _start: _doubts(store, thread))(ctx, param, start)


def _offering(find: Find) -> Callable[..., list[CompletionItem]]:
    def offer(ctx: click.Context, _param: click.Parameter, start: str) -> list[CompletionItem]:
        found: list[CompletionItem] = []
        looking = Thread(target=_look, args=(find, ctx.ensure_object(Session), start, found), daemon=True)
        looking.start()
        looking.join(SECONDS)
        return found[:]

    return offer


def _look(find: Find, session: Session, start: str, found: list[CompletionItem]) -> None:
    """Collect what begins so, and can be typed as it is."""
    try:
        fitting = ((name, word) for name, word in find(session.store, start) if _fits(name, start))
        for name, word in islice(fitting, OFFERED):
            found.append(CompletionItem(name, help=printable(word)))  # zsh reads an item as three lines
    except Exception:  # noqa: BLE001  no store, no key, no connection: there is nothing to offer
        found.clear()
    finally:
        session.close()


def _fits(name: str, start: str) -> bool:
    if not name.startswith(start) or not name.isprintable():
        return False
    return READ_BY_SHELLS.isdisjoint(name) and not name.startswith(READ_AT_THE_START)


def offer_files(_ctx: click.Context, _param: click.Parameter, start: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(start, type="file")]


def thread_argument(name: str = "thread", metavar: str = "ID", **options: Any) -> Callable[[Any], Any]:
    """An argument that takes the id of a thread."""
    return click.argument(name, metavar=metavar, shell_complete=_offering(_threads), **options)


def checkpoint_argument(name: str = "checkpoint", metavar: str = "ID[@SEQ]") -> Callable[[Any], Any]:
    """An argument that takes a checkpoint, or a thread for its newest one."""
    return click.argument(name, metavar=metavar, shell_complete=_offering(_checkpoints))


def doubt_argument() -> Callable[[Any], Any]:
    """An argument that takes a step in doubt, behind the thread."""
    return click.argument("step", metavar="STEP", shell_complete=_offer_doubts)


def request_argument() -> Callable[[Any], Any]:
    """An argument that takes a request that is open."""
    return click.argument("request", metavar="REQUEST", shell_complete=_offering(_requests))
