"""Check new code against the open threads of a store, before it is deployed."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli import apps
from holdfast.cli.arguments import duration
from holdfast.cli.command import EXIT_ERROR, EXIT_OK, STORE_OF_APP, command
from holdfast.cli.output import COLOURS, Answer, Screen, counted, printable, progress_bar
from holdfast.cli.session import Session, require_store
from holdfast.records.outcome import ThreadCheck
from holdfast.runs.durable import registry
from holdfast.runtimes.agent.memory import AGENT

if TYPE_CHECKING:
    from holdfast.runs.store import Store

VERDICTS = {"differs": "failed", "unserved": "input_required", "fits": "complete"}
"""The verdicts in the order they are listed, and the status whose colour each has."""


@command(runs_code=True, only_reads=True, store_help=STORE_OF_APP)
@click.argument("modules", metavar="APP...", nargs=-1, required=True)
@click.option(
    "--timeout", default="10s", show_default=True, type=duration, metavar="DURATION", help="Limit each thread's replay."
)
def check(session: Session, modules: tuple[str, ...], timeout: timedelta) -> Answer:
    """Check whether the code of APP, a module or file, fits the open threads: replay each, and execute nothing.

    Steps, effects and questions return what was recorded; a replay ends at the first new one, and nothing is written.
    The code between steps does run. Agents, workflows and loops are not replayed. Exit code 1 if a thread differs.
    """
    agents = [agent for module in modules for agent in apps.agents_in(apps.load(apps.module_of(module)))]
    stores = [None] if session.requested_store else list(dict.fromkeys(map(apps.store_of, registry.values()))) or [None]
    with progress_bar("check", quiet=session.as_json) as progress:
        found = [each for store in stores for each in _checked(session, store, timeout, progress)]
    ours = {AGENT + apps.core_of(agent).name for agent in agents}
    threads = sorted((each for each in found if each.function not in ours), key=_place)
    counts = {verdict: sum(each.verdict == verdict for each in threads) for verdict in VERDICTS}
    document = {**counts, "threads": threads}
    return Answer(document, _lines(session.screen, threads), EXIT_ERROR if counts["differs"] else EXIT_OK)


def _checked(
    session: Session, app_store: "Store | None", timeout: timedelta, progress: Callable[[int, int], object]
) -> list[ThreadCheck]:
    """Check one store; None is the requested one."""
    session.use(app_store)
    if app_store is None:
        require_store(session.url)

    async def act(store: "Store") -> list[ThreadCheck]:
        return await store.check(timeout=timeout, progress=progress)

    return apps.call_with_store(session, act, blocking=apps.worlds_of(registry.values())[0])


def _place(each: ThreadCheck) -> tuple[int, str]:
    return [*VERDICTS].index(each.verdict), each.thread_id


def _lines(screen: Screen, threads: list[ThreadCheck]) -> Iterator[str]:
    """Show the threads that do not fit, then how many there are of each kind."""
    for each in threads:
        if each.verdict != "fits":
            word = screen.style(each.verdict.ljust(8), fg=COLOURS.get(VERDICTS[each.verdict]))
            yield f"{word} {printable(f'{each.thread_id}: {each.reason}')}"
    counted_words = [f"{sum(each.verdict == verdict for each in threads)} {verdict}" for verdict in VERDICTS]
    yield f"{counted(len(threads), 'open thread')}: {', '.join(counted_words)}"
