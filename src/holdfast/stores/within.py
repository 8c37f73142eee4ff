"""A claim's write within a transaction of the user's: it is there exactly if what the user wrote is there.

Only the swap and the commit are made while other writes of the claim are kept back; the user's own code ran before.
"""

from holdfast.ports import Ports
from holdfast.records.errors import OutcomeUnknown, StoreUnavailable
from holdfast.stores.backend import Transaction
from holdfast.stores.claim import Claim, Pending
from holdfast.stores.writer import Intent


async def write_within(ports: Ports, claim: Claim, intent: Intent, transaction: Transaction) -> None:
    """Write a row in a transaction that was begun, and commit it. Whatever is raised, either both are there or neither.

    `OutcomeUnknown` ends the claim: the next run that claims the thread waits for the end of the transaction.
    """
    pending = await _held(ports, claim, intent)
    try:
        while not pending.settled and pending.proposal is not None:
            proposal = pending.proposal
            landed = await transaction.swap(proposal.swap)
            if landed:
                await transaction.commit()
            await ports.perform(proposal.settle, landed)
    except OutcomeUnknown as doubt:
        await ports.perform(claim.find_out, pending, doubt)
    except BaseException as error:
        _withdraw(pending, error)
        raise
    finally:
        claim.pass_on()
    pending.result()


async def _held(ports: Ports, claim: Claim, intent: Intent) -> Pending:
    """The write, once all before it are settled."""
    while (pending := claim.hold(intent)) is None:
        if (gate := claim.gate) is not None:
            await ports.wait(gate)
        for other in claim.unsettled():
            await ports.settle(other, claim.committer)
    return pending


def _withdraw(pending: Pending, error: BaseException) -> None:
    if pending.proposal is not None and not pending.settled:
        pending.proposal.settle(StoreUnavailable(f"the transaction was rolled back: {error}"))
