"""Shell completion: the script for a shell, and the ids to offer. Errors are silent: the user is typing a line."""

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from threading import Thread
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from holdfast.cli.command import command
from holdfast.cli.lookup import PAGE, all_threads, every, is_thread, read_work, status_of
from holdfast.cli.output import Answer, printable
from holdfast.cli.session import Session
from holdfast.records.errors import HoldfastWarning
from holdfast.sync import Store

VARIABLE: Final = "_HOLDFAST_COMPLETE"
"""Set by click's scripts: it asks for completions instead of running a command."""
RECIPES: Final = {
    "bash": 'eval "$(holdfast completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(holdfast completion zsh)"   # in ~/.zshrc',
    "fish": "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
}
SECONDS: Final = 1.0
"""How long to look before offering what was found."""
MOST_OFFERED: Final = 100
SHELL_CHARACTERS: Final = frozenset(" \\'\"`$&|;<>()*?[]{}!")
SHELL_PREFIXES: Final = ("-", "~", "#")
Offers = Iterable[tuple[str, str]]
"""Ids, each with a word about it."""
Find = Callable[[Store, click.Context, str], Offers]


@command()
@click.argument("shell", type=click.Choice(list(RECIPES)))
def completion(_session: Session, shell: str) -> Answer:
    """Print the script that makes a shell complete commands, options and ids.

    In bash: eval "$(holdfast completion bash)"
    """
    from holdfast.cli.group import main

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  click knows the shells of the choice above
    script = kind(main, {}, "holdfast", VARIABLE).source()
    return Answer({"shell": shell, "script": script, "use": RECIPES[shell]}, [script])


def _threads(store: Store, _ctx: click.Context, _start: str) -> Offers:
    return ((info.thread_id, status_of(info)) for info in all_threads(store))


def _checkpoints(store: Store, ctx: click.Context, start: str) -> Offers:
    """Offer the checkpoints of the thread before an `@`, then threads."""
    thread_id, separator, _ = start.rpartition("@")
    if separator and is_thread(store, thread_id):
        for info in every(store.history(thread_id, limit=PAGE)):
            yield f"{thread_id}@{info.seq}", info.cause.value
    yield from _threads(store, ctx, start)


def _requests(store: Store, _ctx: click.Context, _start: str) -> Offers:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)  # printing one would spoil the line being typed
        return [(request.id, request.name) for request in every(store.requests(limit=PAGE))]


def _steps_in_doubt(store: Store, ctx: click.Context, _start: str) -> Offers:
    """Offer the steps in doubt of the thread that was typed before."""
    return ((key, "in doubt") for key in read_work(store, str(ctx.params.get("thread", ""))).begun)


def _offering(find: Find) -> Callable[..., list[CompletionItem]]:
    def offer(ctx: click.Context, _param: click.Parameter, start: str) -> list[CompletionItem]:
        found: list[CompletionItem] = []
        looking = Thread(target=_look, args=(find, ctx, start, found), daemon=True)
        looking.start()
        looking.join(SECONDS)
        return found[:]

    return offer


def _look(find: Find, ctx: click.Context, start: str, found: list[CompletionItem]) -> None:
    """Collect the ids that begin with `start` and can be typed without quotes."""
    session = ctx.ensure_object(Session)
    try:
        fitting = ((name, word) for name, word in find(session.store, ctx, start) if _fits(name, start))
        for name, word in islice(fitting, MOST_OFFERED):
            found.append(CompletionItem(name, help=printable(word)))  # zsh reads an item as three lines
    except Exception:  # noqa: BLE001  no store, no key, no connection: there is nothing to offer
        found.clear()
    finally:
        session.close()


def _fits(name: str, start: str) -> bool:
    if not name.startswith(start) or not name.isprintable():
        return False
    return SHELL_CHARACTERS.isdisjoint(name) and not name.startswith(SHELL_PREFIXES)


# Arguments that are completed; `checkpoint_argument` also takes a thread, for its newest one.
thread_argument = partial(click.argument, metavar="ID", shell_complete=_offering(_threads))
checkpoint_argument = partial(click.argument, metavar="ID[@SEQ]", shell_complete=_offering(_checkpoints))
request_argument = click.argument("request", metavar="REQUEST", shell_complete=_offering(_requests))
step_argument = click.argument("step", metavar="STEP", shell_complete=_offering(_steps_in_doubt))
