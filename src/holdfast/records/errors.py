"""Every error of Holdfast, grouped by what the caller can do about it.

    HoldfastError
    ├── StoreError                  the store refused, or could not
    │   ├── StoreUnavailable        nothing was written; try again later
    │   ├── StoreClosed             the handle was closed
    │   ├── OutcomeUnknown          the reply was lost; the same write may be sent again
    │   ├── Conflict                somebody else wrote first
    │   ├── Fenced                  this run lost its claim
    │   ├── LeaseHeld               a live run holds the thread (.owner, .remaining)
    │   ├── Deleted                 the thread was deleted; revive() brings its id back
    │   ├── InvalidId               also a ValueError
    │   ├── NotFound                also a LookupError
    │   ├── Corrupt                 stored bytes are damaged (.record names them)
    │   ├── IncompatibleCheckpoint  written by another version of the program or of Holdfast
    │   └── KeyUnavailable          encrypted, and the key ring lacks the key (.key_id)
    ├── CodecError                  a value cannot become bytes, or bytes a value
    │   ├── UnstorableValue         refused at save (.path, .value)
    │   ├── UnknownType             stored by a class that is not registered here (.name)
    │   ├── LimitExceeded           too large, too deep, too many
    │   └── SecretInState           a value that must never be written (.path)
    ├── RunError                    a run, or one of its steps, ended otherwise than asked
    │   ├── StepFailed (StepTimeout) · StepInDoubt · RunCancelled · KeyReused · Diverged · Suspended
    │   ├── RequestExpired · InvalidAnswer · Finished · Escalated · Aborted · BudgetExceeded
    │   └── TurnLimitExceeded · SuperstepLimit · ExecutorFailed
    └── ConfigurationError          the program asked for something that cannot be

Foreign errors are translated once, where a backend meets its driver, with the cause kept.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.records.failure import FailureContext
    from holdfast.records.request import Request


class HoldfastError(Exception):
    """The root of all errors raised by Holdfast."""


class HoldfastWarning(UserWarning):
    """A call that works and hardly does what was meant: nothing is recorded. Given once per function."""


class StoreError(HoldfastError):
    """A store refused an operation or could not perform it."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or is out of space; nothing was written."""


class StoreClosed(StoreError):
    """The store handle was closed."""


class OutcomeUnknown(StoreError):
    """The reply to a write was lost: it may or may not have happened. The same write may be sent again."""


class Conflict(StoreError):
    """Somebody else wrote to the thread first."""


class Fenced(StoreError):
    """The run's claim on the thread was taken over; its writes are refused."""


class LeaseHeld(StoreError):
    """A live run holds the thread. `owner` says who, `remaining` for how many seconds at least."""

    def __init__(self, message: str, *, owner: str = "", remaining: float = 0.0) -> None:
        super().__init__(message)
        self.owner = owner
        self.remaining = remaining


class Deleted(StoreError):
    """The thread was deleted. `store.revive(thread_id)` brings its id back, empty."""


class InvalidId(StoreError, ValueError):
    """An id that no store can keep exactly."""


class NotFound(StoreError, LookupError):
    """There is no such thread, checkpoint or request."""


class Corrupt(StoreError):
    """Stored bytes are damaged. `record` names what was damaged."""

    def __init__(self, message: str, *, record: str = "") -> None:
        super().__init__(message)
        self.record = record


class IncompatibleCheckpoint(StoreError):
    """Written by another version of the program, or by a newer version of Holdfast."""


class KeyUnavailable(StoreError):
    """The bytes are encrypted under a key that the key ring does not hold. `key_id` names it."""

    def __init__(self, message: str, *, key_id: str = "") -> None:
        super().__init__(message)
        self.key_id = key_id


class CodecError(HoldfastError):
    """A value cannot become bytes, or bytes cannot become a value."""


class UnstorableValue(CodecError):
    """A value that cannot be stored exactly. `path` says where it is, e.g. `state["plan"][3].client`.

    `value` is the whole result of a session's turn or of an agent, which was paid for; elsewhere None.
    """

    def __init__(self, message: str, *, path: str = "", value: object = None) -> None:
        super().__init__(message)
        self.path = path
        self.value = value


class UnknownType(CodecError):
    """Stored by a class that is not registered in this program. `name` is its registered name."""

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class LimitExceeded(CodecError):
    """A value, or stored bytes, beyond a limit on size, depth, items or expansion."""


class SecretInState(CodecError):
    """A value that must never be written. `path` says where it is."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class RunError(HoldfastError):
    """A run, or one of its steps, ended otherwise than asked."""


class StepFailed(RunError):
    """A step failed after its last attempt. `type` and `message` describe the error it ended with, `key` the step."""

    def __init__(self, text: str, *, type: str = "", message: str | None = None, key: str = "") -> None:  # noqa: A002  the public name of the field
        super().__init__(text)
        self.type = type
        self.message = text if message is None else message
        self.key = key


class StepTimeout(StepFailed):
    """A step took longer than its timeout."""


class StepInDoubt(RunError):
    """An effect was started and its result never recorded: it may have happened."""


class RunCancelled(RunError):
    """The run was cancelled from outside."""


class KeyReused(RunError):
    """The same key came again with other content."""


class Diverged(RunError):
    """A resumed function called an effect, or asked a question, with other arguments than were recorded.

    `name` is that of the step or question; `given` and `recorded` are short texts of both arguments.
    """

    def __init__(self, message: str, *, name: str = "", given: str = "", recorded: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.given = given
        self.recorded = recorded


class Suspended(RunError):
    """The run waits for an answer. `thread_id` and `requests` say where and for what."""

    def __init__(self, message: str, *, thread_id: str = "", requests: "tuple[Request, ...]" = ()) -> None:
        super().__init__(message)
        self.thread_id = thread_id
        self.requests = requests


class RequestExpired(RunError):
    """A request's deadline passed without an answer and without a default."""


class InvalidAnswer(RunError):
    """An answer that is not among the request's choices."""


class Finished(RunError):
    """The thread is complete; new work needs `reopen=True`."""


class Escalated(RunError):
    """Recovery gave up and hands the failure to a person. `context` is what is known about it."""

    def __init__(self, message: str, *, context: "FailureContext | None" = None) -> None:
        super().__init__(message)
        self.context = context


class Aborted(RunError):
    """A policy ended the run. `context` is what is known about the failure."""

    def __init__(self, message: str, *, context: "FailureContext | None" = None) -> None:
        super().__init__(message)
        self.context = context


class BudgetExceeded(RunError):
    """The thread's budget of money or tokens is used up."""


class TurnLimitExceeded(RunError):
    """The session took its last allowed turn."""


class SuperstepLimit(RunError):
    """The workflow took its last allowed superstep."""


class ExecutorFailed(RunError):
    """An executor of a workflow failed: the one with the id `executor`, in `superstep` of thread `thread_id`.

    The superstep is 0 if it failed to restore what it had saved.
    """

    def __init__(self, message: str, *, executor: str = "", thread_id: str = "", superstep: int = 0) -> None:
        super().__init__(message)
        self.executor = executor
        self.thread_id = thread_id
        self.superstep = superstep


class ConfigurationError(HoldfastError):
    """The program asked for something that cannot be; the message says what to change."""
