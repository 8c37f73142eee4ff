"""What a person decides about a thread: to retry it, or how a step in doubt ended.

Both leave the thread without an owner, `queued` or `working`, so that the next recovery resumes it.
"""

from typing import Any

from holdfast.codec import encode
from holdfast.history.entries import Attempted, Begun, Noted, StepDone, StepError
from holdfast.history.journal import Journal
from holdfast.records.arguments import check_texts
from holdfast.records.errors import ConfigurationError, Conflict, HoldfastError, InvalidAnswer, NotFound, StepInDoubt
from holdfast.records.words import Status
from holdfast.runs.keys import name_of, part
from holdfast.runs.ledger import packed_metadata
from holdfast.runs.run import Run
from holdfast.runs.steps import DOUBT_CHOICES
from holdfast.stores.writer import Intent

RETRIED = "retried"
"""The kind of note that records a retry. Like every note it resets the attempts that a recovery counts."""


def check_failed(thread_id: str, status: str | None) -> None:
    """Raise `Conflict` unless the thread has failed. Also called before the claim, so that an error writes nothing."""
    if status != Status.FAILED.value:
        raise Conflict(f"thread {thread_id!r} is {status}, and only a failed one can be retried")


async def put_back(run: Run) -> None:
    """Make a recovery resume a failed thread."""
    try:
        check_failed(run.thread_id, run._ledger.claim.found.status)
    except Conflict as error:  # another process changed it meanwhile
        raise _refused(run, error) from None
    note = Noted(RETRIED, encode(None), run._ports.now())
    await run._ledger.commit(run._ports, Intent(journal=True, metadata=packed_metadata({RETRIED: True})), note)
    run._ledger.resumes_at = 0
    if run._ledger.claim.found.route:
        run._ledger.status = Status.QUEUED.value


def check_named(step: str, by: str) -> None:
    """Raise `ConfigurationError` unless these are texts, and the step has a name."""
    check_texts(step=step, by=by)
    if not step:
        raise ConfigurationError("`step` must be the key of the step, as `holdfast show` prints it, got ''")


async def settle_step(run: Run, key: str, choice: str, value: Any, by: str) -> None:
    """Record how a step in doubt ended; or that it did not happen, so that it is executed again with the same key.

    `key` is the key in the thread, the one given to `run.step`, or the name of the only step of that name in doubt.
    """
    key = _key_of(run._ledger.journal, key)
    refusal = _refusal(run, key, choice)
    if refusal is not None:
        raise _refused(run, refusal)
    begun = run._ledger.journal.memos[key]
    assert isinstance(begun, Begun)  # noqa: S101  it is in doubt
    entry, cause = _verdict(begun, choice, value, by, run._ports.now())
    said = {"step": key, "settled": choice, **({"by": by} if by else {})}
    intent = Intent(journal=choice == "retry", cause=cause, metadata=packed_metadata(said))
    await run._ledger.commit(run._ports, intent, entry)
    run._ledger.resumes_at = 0


def _verdict(begun: Begun, choice: str, value: Any, by: str, now: int) -> tuple[StepDone | StepError | Attempted, str]:
    """Return the entry that ends the doubt, and the cause of its row. A retry does not count the doubtful attempt."""
    key, fingerprint, kind = begun.key, begun.fingerprint, StepInDoubt.__name__
    text, name, inputs = f"settled as {choice} by {by or 'a person'}", name_of(key), (begun.arguments, begun.inputs)
    if choice == "done":
        encoded = encode(value, path=f"result of step {key!r}")
        return StepDone(key, fingerprint, name, encoded, now, 0, *inputs), "event"
    if choice == "fail":
        return StepError(key, fingerprint, name, kind, text, begun.attempt, now, *inputs), "error"
    return Attempted(key, fingerprint, begun.attempt - 1, kind, text, now, now), "event"


def _key_of(journal: Journal, given: str) -> str:
    """Return the key of a step, given by its key, or by its name if only one step of that name is in doubt."""
    for key in (given, str(part(given))):
        if key in journal.memos:
            return key
    begun = [memo.key for memo in journal.memos.values() if isinstance(memo, Begun)]
    named = [key for key in begun if name_of(key) == given]
    return named[0] if len(named) == 1 else given


def _refusal(run: Run, key: str, choice: str) -> HoldfastError | None:
    """Return why the step cannot be settled."""
    journal, name = run._ledger.journal, run.thread_id
    if choice not in DOUBT_CHOICES:
        return InvalidAnswer(f"a step is settled as one of {', '.join(DOUBT_CHOICES)}, not {choice!r}")
    if run.finished:
        return Conflict(f"thread {name!r} is {run.status.value}: none of its steps can be settled")
    memo = journal.memos.get(key)
    if isinstance(memo, StepDone | StepError):
        return Conflict(f"step {key!r} of thread {name!r} has ended: it is not in doubt")
    if not isinstance(memo, Begun):
        return NotFound(f"thread {name!r} has no step {key!r} in doubt; in doubt: {_in_doubt(journal)}")
    for request in journal.open_requests(run._ledger.claim.log.binding):
        if request.choices == DOUBT_CHOICES and request.payload.get("step") == key:
            return Conflict(f"step {key!r} of thread {name!r} is asked about: answer request {request.id} instead")
    return None


def _in_doubt(journal: Journal) -> str:
    return ", ".join(repr(memo.key) for memo in journal.memos.values() if isinstance(memo, Begun)) or "none"


def _refused(run: Run, error: HoldfastError) -> HoldfastError:
    """Return the error, and leave the thread as it was found."""
    run._ledger.untouched = True
    return error
