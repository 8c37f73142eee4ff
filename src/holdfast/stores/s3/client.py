"""The five calls of an object store, over obstore: attempts are repeated while an outage lasts, and counted truly.

A put that was sent and not answered is sent again as it was. If that is refused, the object itself tells whether it was
by our own first attempt; if it does not, `OutcomeUnknown` is raised.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from holdfast.records.errors import StoreUnavailable
from holdfast.stores.attempts import attempts
from holdfast.stores.objects.calls import PAGE, Names
from holdfast.stores.s3.errors import REFUSED, is_missing, is_passing, is_unsent, translated, was_repeated
from holdfast.stores.s3.places import Place

PATIENCE_SECONDS = 10.0

T = TypeVar("T")


class Used:
    """In which process obstore has made its first call: its threads are there, and in no child that was forked."""

    process = 0

    @classmethod
    def here(cls) -> None:
        """Refuse to wait forever for threads that are not there."""
        process = os.getpid()
        if cls.process not in {0, process}:
            raise StoreUnavailable(
                "obstore cannot be used in a process that was forked after its first use: open the store in the child"
                " alone, or start children with 'spawn' or 'forkserver'"
            )
        cls.process = process


class Client:
    """The interface of `Objects` over a bucket. An outage is retried for up to `patience` seconds.

    Before the first answer nothing is waited for: what is wrong then is most likely the address or the credentials.
    """

    def __init__(self, place: Place, patience: float) -> None:
        self._place = place
        self._bucket: Any = place.bucket
        self._patience = patience
        self._has_answered = False

    # Reading and deleting: repeated at will

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
        """What a call returns that does no harm if it is made twice; None if the object is not there."""
        for is_last in self._attempts():
            try:
                return self._answered(call)
            except Exception as error:
                if is_missing(error):
                    return None
                if is_last or not is_passing(error):
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
                return self._settled(name, data, error) if in_doubt or was_repeated(error) else None
            except Exception as error:
                in_doubt = in_doubt or (is_passing(error) and not is_unsent(error))
                if not in_doubt and (is_last or not is_passing(error)):
                    raise translated(error, self._place) from error
                if is_last or not is_passing(error):
                    return self._settled(name, data, error)
        raise AssertionError  # the last attempt returned or raised

    def _settled(self, name: str, data: bytes, error: Exception) -> str:
        """The tag of the object if it holds what was put. Otherwise the outcome is unknown: others may write it too."""
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
        """See `attempts`."""
        Used.here()
        return attempts(self._patience if self._has_answered else 0)


def _tag(meta: Any) -> str:
    """The tag of an object: S3 and Azure compare the ETag, Google the generation, which obstore calls a version."""
    return f"{meta['e_tag'] or ''}\n{meta['version'] or ''}"


def _condition(tag: str) -> dict[str, str]:
    e_tag, _, version = tag.partition("\n")
    return {"e_tag": e_tag, "version": version} if version else {"e_tag": e_tag}
