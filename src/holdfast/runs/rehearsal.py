"""A rehearsal: a run that replays what its thread recorded. It claims, executes and writes nothing.

What is new, or has no recorded end, stops the code there, as a run that waits is suspended. Steps, questions, sleeps
and waits call `Ledger.stop_rehearsal`; every write is refused by `Ledger.write`.
"""

from collections.abc import Awaitable, Callable, Mapping

from holdfast.ports import Ports
from holdfast.records.errors import CodecError, Diverged, KeyReused, NotFound
from holdfast.runs.block import RunBlock, Terms, Tools
from holdfast.runs.ledger import Ledger
from holdfast.runs.run import Run
from holdfast.runs.scope import Frame, Scope, current_frame, rehearsing
from holdfast.stores.claim import Claim
from holdfast.stores.events import Events
from holdfast.stores.writer import Writer

QUIET_US = 1_000_000
"""After how long without a call the other branches are taken to wait for something that no replay provides."""
LOOK_SECONDS = 0.01


class Rehearsal:
    """How far a rehearsed run came."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.reached = ""
        """The first new thing that the code asked for."""
        self.difference = ""
        """Why the code does not fit, if a call said so itself."""
        self.has_failed = False
        """True if a call raised an error, recorded or not: it may have ended other branches early."""

    def note(self, error: Exception) -> None:
        """Note an error that a call raised: the code may catch it."""
        self.has_failed = True
        if isinstance(error, Diverged):
            text = f"the code calls {error.name!r} with {error.given}, and the thread recorded {error.recorded}"
            self.difference = self.difference or text
        elif isinstance(error, KeyReused | CodecError):
            self.difference = self.difference or str(error)

    async def wait_for_branches(self, ports: Ports) -> None:
        """Let other branches ask for what is recorded, before this one stops them all."""
        ledger, replay, frame = self._ledger, self._ledger.replay, current_frame.get()
        if replay is None or frame is None or frame.run._ledger is not ledger:
            return
        count, since = -1, ports.now()
        while ledger.suspension is None and replay.has_branches(frame.run) and replay.unasked_steps():
            if replay.asked_count != count:
                count, since = replay.asked_count, ports.now()
            elif ports.now() - since > QUIET_US:
                return
            await ports.sleep(LOOK_SECONDS)


class RehearsedBlock(RunBlock):
    """The block of a rehearsal: the thread is read, and neither claimed nor released."""

    async def enter(self) -> Run:
        """Return a run on the thread as it is stored. A thread that does not exist is new to an outer rehearsal."""
        tools, ports, outer = self._tools, self._tools.ports, rehearsing()
        await tools.open()
        try:
            claim = await ports.perform(self._pretended)
        except NotFound:
            if outer is not None:
                await outer.stop_rehearsal(ports, "a thread that does not exist yet")
            raise
        ledger = Ledger(claim, Events(ports), reopen=False, keep_inputs=tools.keep_inputs)
        ledger.rehearsal = Rehearsal(ledger)
        self._run = run = Run(ledger, ports, tools.reader, Scope(branch=ports.branch()), keyed=self._terms.keyed)
        self._outer = current_frame.get()
        current_frame.set(Frame(run, run._scope))
        return run

    def _pretended(self) -> Claim:
        """Return what the code takes for its claim: the thread as it is, with no lease. Blocking."""
        tools = self._tools
        loaded = tools.reader.load_head(self._thread)
        writer = Writer(tools.reader, self._thread, loaded.seen, loaded.log)
        return Claim(tools.ports, tools.reader, tools.committer, writer, 0, loaded.seen.head)

    async def leave(self, error: BaseException | None) -> None:
        """Leave the thread as it is."""
        assert self._run is not None  # noqa: S101  entered
        self._restore_frame(self._run._ledger)


def block_of(
    tools: Tools,
    thread_id: str,
    labels: Mapping[str, str] | None,
    terms: Terms,
    check_held: Callable[[], Awaitable[None]] | None = None,
) -> RunBlock:
    """Return the block of a run on a thread; for code that is rehearsed itself, of another rehearsal."""
    if rehearsing() is not None:
        return RehearsedBlock(tools, thread_id, None, terms)
    return RunBlock(tools, thread_id, labels, terms, check_held)
