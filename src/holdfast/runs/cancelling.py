"""Ending a thread from outside: a live run is asked to stop; a thread that no run holds is ended here."""

from holdfast.records.errors import LeaseHeld, RunCancelled
from holdfast.runs.block import RunBlock, Terms, Tools
from holdfast.stores.claim import CANCEL, FINISHED
from holdfast.stores.reader import no_thread
from holdfast.stores.waking import call


async def cancel_thread(tools: Tools, thread_id: str) -> None:
    """Cancel a thread, unless it is finished; `NotFound` if it does not exist."""
    ports, reader, thread = tools.ports, tools.reader, tools.reader.key(thread_id)
    seen = await ports.perform(reader.seen, thread)
    if seen is None or seen.head.deleted:
        raise no_thread(thread_id)
    if seen.head.status in FINISHED:
        return
    live = tools.heartbeat.find(thread)
    if live is not None:
        live.cancelled = True
    while not await _end_unheld(tools, thread_id):
        await ports.perform(call, reader, thread, CANCEL, b"")
        seen = await ports.perform(reader.seen, thread)
        if seen is None or seen.head.held(ports.now()):
            return  # its run reads the message


async def _end_unheld(tools: Tools, thread_id: str) -> bool:
    """Cancel a thread that no run holds; False if one does."""
    try:
        async with RunBlock(tools, thread_id, None, Terms(wait=0, silent=True)) as run:
            run._ledger.claim.cancelled = True
    except LeaseHeld:
        return False
    except RunCancelled:
        pass
    return True
