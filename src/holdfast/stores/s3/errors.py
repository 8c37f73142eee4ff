"""What obstore's errors mean for a caller: read here, and nowhere else.

obstore says in its text what it does not say in types: the status of the reply, and whether a request was sent at all.
"""

import re

from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, PreconditionError, UnauthenticatedError

from holdfast.records.errors import OutcomeUnknown, StoreError, StoreUnavailable

REFUSED = (AlreadyExistsError, PreconditionError)
"""412, 409 and, of an object to be replaced, 404: the condition did not hold, and nothing was written."""

BUSY = 429
_STATUS = re.compile(r"status code: (\d{3})")
_REPLY = re.compile(r"(status code: \d{3}[^:]*|error response): .*", re.DOTALL)
_SAID = re.compile(r"<(?:Code|Message)>([^<]*)<")
_NOT_REPEATED = re.compile(r"\bretries: 0\b")


def status_of(error: Exception) -> int:
    """The status of the reply; 0 if there was none."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def is_missing(error: Exception) -> bool:
    """True if an object is not there; False if its bucket is not, which says nothing about the object."""
    return isinstance(error, FileNotFoundError) and not _is_bucket_missing(error)


def _is_bucket_missing(error: Exception) -> bool:
    return any(word in str(error) for word in ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"))


def is_unsent(error: Exception) -> bool:
    """True if there was no connection: the request was certainly not made."""
    return "kind: Connect" in str(error)


def is_passing(error: Exception) -> bool:
    """True if another attempt may fare better: the server is overloaded, away, or did not answer."""
    status = status_of(error)
    return status >= 500 or status == BUSY or (not status and "HTTP error" in str(error))


def was_repeated(error: Exception) -> bool:
    """True if obstore itself made more than one attempt, so that a refusal may be due to its own first one."""
    text = str(error)
    return "retries: " in text and not _NOT_REPEATED.search(text)


def translated(error: Exception, place: object, *, in_doubt: bool = False) -> StoreError:
    """The error to raise; `in_doubt` if a put was sent and its outcome is unknown.

    Its cause, obstore's error, loses the body of the reply: S3 sends back the request there, session token included.
    """
    text = _without_reply(" ".join(str(error).partition("\n\nDebug source")[0].split()))
    found = _described(error, f"{place}", text, in_doubt=in_doubt)
    error.args = (text,)
    return found


def _described(error: Exception, place: str, text: str, *, in_doubt: bool) -> StoreError:
    if in_doubt:
        return OutcomeUnknown(f"{place}: a put was sent, and its outcome is not known: {text}")
    if _is_bucket_missing(error):
        return StoreUnavailable(f"{place}: there is no such bucket, or no such endpoint: create it ({text})")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return StoreUnavailable(
            f"{place}: access was refused: look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or"
            f" what the service takes for them; it needs get, put, list and delete ({text})"
        )
    if is_unsent(error):
        return StoreUnavailable(f"{place}: no connection: is the endpoint right, and up? ({text})")
    return StoreUnavailable(f"{place}: {text}")


def _without_reply(text: str) -> str:
    """The text with no more of the reply's body than the code and the message that it names."""
    said = _SAID.findall(text)
    return ": ".join([_REPLY.sub(r"\1", text), *said])
