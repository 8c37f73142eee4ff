"""The five calls of an object store, over obstore. Outages are retried; only this file reads obstore's errors.

A put without a reply is sent again unchanged. If that is refused, the object is read to see whether the first attempt
succeeded; if that does not settle it, `OutcomeUnknown` is raised.
"""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, PreconditionError, UnauthenticatedError

from holdfast.records.errors import OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.stores.attempts import attempts
from holdfast.stores.objects.calls import PAGE, Names
from holdfast.stores.s3.places import Place

PATIENCE_SECONDS = 10.0

REFUSED = (AlreadyExistsError, PreconditionError)
"""412, 409 and, of an object to be replaced, 404: the condition did not hold, and nothing was written."""

BUSY = 429
MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")
_STATUS = re.compile(r"status code: (\d{3})")
_REPLY = re.compile(r"(status code: \d{3}[^:]*|error response): .*", re.DOTALL)
_CODE_AND_MESSAGE = re.compile(r"<(?:Code|Message)>([^<]*)<")
_NOT_RETRIED = re.compile(r"\bretries: 0\b")

T = TypeVar("T")


class Client:
    """The interface of `Objects` over a bucket. Retries an outage for up to `patience` seconds.

    Does not retry before the first answer: what is wrong then is most likely the address or the credentials.
    """

    process = 0
    """The process in which obstore made its first call: its threads exist there, and in no forked child."""

    def __init__(self, place: Place, patience: float) -> None:
        self._place = place
        self._bucket: Any = place.bucket
        self._patience = patience
        self._has_answered = False

    # Reading and deleting: safe to repeat

    def get(self, name: str) -> tuple[bytes, str] | None:
        """See `Objects.get`."""
        return self._repeated(lambda: self._get(name))

    def _get(self, name: str) -> tuple[bytes, str] | None:
        found = self._bucket.get(name)
        return bytes(found.bytes()), _tag(found.meta)

    def list(self, prefix: str, after: str = "", limit: int = PAGE) -> Names:
        """See `Objects.list`. 1 request for each thousand names of the prefix's directory, until there are enough."""
        return self._repeated(lambda: self._list(prefix, after, limit)) or []

    def _list(self, prefix: str, after: str, limit: int) -> Names:
        names: Names = []
        directory = prefix.rpartition("/")[0] or None
        for page in self._bucket.list(directory, offset=after or None, chunk_size=limit):
            names += [each["path"] for each in page if each["path"].startswith(prefix) and each["path"] > after]
            if len(names) >= limit:
                break
        return names[:limit]

    def delete(self, name: str) -> None:
        """See `Objects.delete`."""
        self._repeated(lambda: self._bucket.delete(name))

    def _repeated(self, call: Callable[[], T]) -> T | None:
        """Return what the call returns; None if the object does not exist."""
        for is_last in self._attempts():
            try:
                return self._answered(call)
            except Exception as error:
                if is_missing(error):
                    return None
                if is_last or not is_transient(error):
                    raise translated(error, self._place) from error
        raise AssertionError  # the last attempt returned or raised

    # Writing: the outcome of each attempt matters

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        """See `Objects.put_if_absent`."""
        return self._put(name, data, "create")

    def put_if_match(self, name: str, data: bytes, tag: str) -> str | None:
        """See `Objects.put_if_match`."""
        return self._put(name, data, _condition(tag))

    def _put(self, name: str, data: bytes, mode: Any) -> str | None:
        in_doubt = False
        for is_last in self._attempts():
            try:
                return self._answered(lambda: _tag(self._bucket.put(name, data, mode=mode, use_multipart=False)))
            except REFUSED as error:
                return self._settled(name, data, error) if in_doubt or was_retried(error) else None
            except Exception as error:
                in_doubt = in_doubt or (is_transient(error) and not is_unsent(error))
                if is_last or not is_transient(error):
                    if in_doubt:
                        return self._settled(name, data, error)
                    raise translated(error, self._place) from error
        raise AssertionError  # the last attempt returned or raised

    def _settled(self, name: str, data: bytes, error: Exception) -> str:
        """Return the tag of the object if it holds what was put. Else raise `OutcomeUnknown`: others may write too."""
        try:
            found = self.get(name)
        except StoreUnavailable:
            found = None
        if found is None or found[0] != data:
            raise translated(error, self._place, in_doubt=True) from error
        return found[1]

    # Attempts

    def _answered(self, call: Callable[[], T]) -> T:
        try:
            answer = call()
        except BaseException as error:
            self._has_answered = self._has_answered or isinstance(error, (FileNotFoundError, *REFUSED))
            raise
        self._has_answered = True
        return answer

    def _attempts(self) -> Iterator[bool]:
        """See `attempts`. A forked child gets an error: it would wait forever for threads that do not exist there."""
        if Client.process not in {0, os.getpid()}:
            raise StoreUnavailable(
                "obstore cannot be used in a process that was forked after its first use: open the store in the child"
                " alone, or start children with 'spawn' or 'forkserver'"
            )
        Client.process = os.getpid()
        return attempts(self._patience if self._has_answered else 0)


def _tag(meta: Any) -> str:
    """Return the tag of an object: S3 and Azure compare the ETag, Google the generation (obstore: version)."""
    return f"{meta['e_tag'] or ''}\n{meta['version'] or ''}"


def _condition(tag: str) -> dict[str, str]:
    e_tag, _, version = tag.partition("\n")
    return {"e_tag": e_tag, "version": version} if version else {"e_tag": e_tag}


# Errors. Only their text has the status of the reply, and whether a request was sent at all.


def status_of(error: Exception) -> int:
    """Return the status of the reply; 0 if there was none."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def is_missing(error: Exception) -> bool:
    """True if an object does not exist; False if its bucket does not, which says nothing about the object."""
    return isinstance(error, FileNotFoundError) and not _is_bucket_missing(error)


def _is_bucket_missing(error: Exception) -> bool:
    return any(text in str(error) for text in MISSING_BUCKET)


def is_unsent(error: Exception) -> bool:
    """True if there was no connection: the request was certainly not sent."""
    return "kind: Connect" in str(error)


def is_transient(error: Exception) -> bool:
    """True if another attempt may succeed: the server is overloaded, away, or did not answer."""
    status = status_of(error)
    return status >= 500 or status == BUSY or (not status and "HTTP error" in str(error))


def was_retried(error: Exception) -> bool:
    """True if obstore itself made more than one attempt, so that its own first one may have caused a refusal."""
    text = str(error)
    return "retries: " in text and not _NOT_RETRIED.search(text)


def translated(error: Exception, place: object, *, in_doubt: bool = False) -> StoreError:
    """Return the error to raise; `in_doubt` if a put was sent and its outcome is unknown.

    Removes the body of the reply from obstore's error, the cause: S3 repeats the request in it, session token included.
    """
    text = " ".join(str(error).partition("\n\nDebug source")[0].split())
    text = ": ".join([_REPLY.sub(r"\1", text), *_CODE_AND_MESSAGE.findall(text)])
    found = _described(error, f"{place}", text, in_doubt=in_doubt)
    error.args = (text,)
    return found


def _described(error: Exception, place: str, text: str, *, in_doubt: bool) -> StoreError:
    if in_doubt:
        return OutcomeUnknown(f"{place}: a put was sent, and its outcome is not known: {text}")
    if _is_bucket_missing(error):
        return StoreUnavailable(f"{place}: the bucket does not exist at this endpoint; create it ({text})")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return StoreUnavailable(
            f"{place}: access denied: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the"
            f" variables of your service; they must allow get, put, list and delete ({text})"
        )
    if is_unsent(error):
        return StoreUnavailable(f"{place}: no connection: check that the endpoint is right, and up ({text})")
    return StoreUnavailable(f"{place}: {text}")
