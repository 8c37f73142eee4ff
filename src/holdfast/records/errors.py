"""Every error of Holdfast, grouped by what the caller can do about it.

    HoldfastError
    ├── StoreError                  the store refused, or could not
    │   ├── StoreUnavailable        nothing was written; retry later
    │   ├── StoreClosed             the handle was closed
    │   ├── OutcomeUnknown          the reply was lost; it is safe to send the same write again
    │   ├── Conflict                a conflicting write won
    │   ├── Fenced                  this run lost its claim
    │   ├── LeaseHeld               a live run holds the thread (.owner, .remaining)
    │   ├── Deleted                 the thread was deleted; revive() brings its id back
    │   ├── QueueFull               a queue has as many waiting threads as it may
    │   ├── InvalidId               also a ValueError
    │   ├── NotFound                also a LookupError
    │   ├── Corrupt                 stored bytes are damaged (.record names them)
    │   ├── IncompatibleCheckpoint  written by another version of the program or of Holdfast
    │   └── KeyUnavailable          encrypted, and the key ring lacks the key (.key_id)
    ├── CodecError                  a value cannot become bytes, or bytes a value
    │   ├── UnstorableValue         refused at save (.path, .value)
    │   ├── UnknownType             stored by a class that is not registered here (.name)
    │   ├── LimitExceeded           too large, too deep, too many
    │   └── SecretInState           a value that must never be stored (.path)
    ├── RunError                    a run, or one of its steps, did not end as asked
    │   ├── StepFailed (StepTimeout) · StepInDoubt · ThreadFailed · RunCancelled · KeyReused · Diverged · Suspended
    │   ├── RequestExpired · InvalidAnswer · Finished · Escalated · Aborted · BudgetExceeded
    │   └── TurnLimitExceeded · SuperstepLimit · ExecutorFailed
    └── ConfigurationError          an argument or option is wrong

Errors of drivers are translated once, in the backend, and kept as the cause.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.records.failure import FailureContext
    from holdfast.records.request import Request


class HoldfastError(Exception):
    """The root of all errors raised by Holdfast."""


class HoldfastWarning(UserWarning):
    """A call works but probably does not do what was meant: nothing is recorded. Issued once per function."""


class StoreError(HoldfastError):
    """A store refused an operation, or could not perform it."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or is out of space; nothing was written."""


class StoreClosed(StoreError):
    """The store handle was closed."""


class OutcomeUnknown(StoreError):
    """The reply to a write was lost: it may or may not have happened. It is safe to send the same write again."""


class Conflict(StoreError):
    """A conflicting write to the thread won."""


class QueueFull(StoreError):
    """A queue has as many waiting threads as its `max_waiting`; nothing was submitted."""


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
    """An id cannot be stored exactly."""


class NotFound(StoreError, LookupError):
    """The thread, checkpoint or request does not exist."""


class Corrupt(StoreError):
    """Stored bytes are damaged. `record` names what was damaged."""

    def __init__(self, message: str, *, record: str = "") -> None:
        super().__init__(message)
        self.record = record


class IncompatibleCheckpoint(StoreError):
    """Written by another version of the program, or by a newer version of Holdfast."""


class KeyUnavailable(StoreError):
    """The bytes are encrypted under a key that is not in the key ring. `key_id` names it."""

    def __init__(self, message: str, *, key_id: str = "") -> None:
        super().__init__(message)
        self.key_id = key_id


class CodecError(HoldfastError):
    """A value cannot become bytes, or bytes cannot become a value."""


class UnstorableValue(CodecError):
    """A value cannot be stored exactly. `path` says where it is, e.g. `state["plan"][3].client`.

    `value` is the whole result of a session's turn or of an agent, so that it is not lost; otherwise None.
    """

    def __init__(self, message: str, *, path: str = "", value: object = None) -> None:
        super().__init__(message)
        self.path = path
        self.value = value


class UnknownType(CodecError):
    """A stored object's class is not registered in this program. `name` is its registered name."""

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class LimitExceeded(CodecError):
    """A value, or stored bytes, exceed a limit on size, depth, memory or expansion."""


class SecretInState(CodecError):
    """A value that must never be stored. `path` says where it is."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class RunError(HoldfastError):
    """A run, or one of its steps, did not end as asked."""


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
    """An effect was started and its result was never recorded: it may have happened."""


class ThreadFailed(RunError):
    """A thread that was waited for has failed. `type` and `message` describe the error it ended with."""

    def __init__(self, text: str, *, type: str = "", message: str = "") -> None:  # noqa: A002  the public name of the field
        super().__init__(text)
        self.type = type
        self.message = message


class RunCancelled(RunError):
    """The run was cancelled from outside."""


class KeyReused(RunError):
    """A key was used again with different content."""


class Diverged(RunError):
    """A resumed function called an effect, or asked a question, with arguments that differ from the recorded ones.

    `name` is the step or question; `given` and `recorded` are short texts of both arguments.
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
    """An answer is not one of the request's choices, or not of its type."""


class Finished(RunError):
    """The thread is complete; new work needs `reopen=True`."""


class Escalated(RunError):
    """Recovery gave up: a person has to decide. `context` is what is known about the failure."""

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
    """An argument or option is wrong; the message says what to change."""


def missing_extra(needs: str, extra: str) -> ConfigurationError:
    """Return the error for a package that is not installed: what needs it, and the extra that brings it."""
    return ConfigurationError(f"{needs}: install Holdfast's extra '{extra}': pip install '.[{extra}]' in its checkout")
