"""Work of a runtime that every process can run by its name: `submit` creates its threads, `recover` resumes them."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from holdfast.history.entries import Started
from holdfast.ports import Ports, run_blocking
from holdfast.records.errors import ConfigurationError, KeyReused
from holdfast.runs.arguments import fingerprint_of
from holdfast.runs.durable import registry
from holdfast.runs.handles import BlockingHandle, Handle
from holdfast.runs.run import Run, for_plain_code
from holdfast.runs.store import Store
from holdfast.runs.submitting import Call, Service, Submission, submit
from holdfast.runs.threads import fresh_id
from holdfast.stores.writer import Place


class Runnable:
    """What a runtime runs under a name: see `Served`. Of those with one name the newest is run.

    `resume` runs a claimed thread, whose arguments are recorded. `pack` encodes what is submitted: in the form to
    record, then in others that mean the same. `refusal` says why only a caller can run it; empty if any process can.
    """

    def __init__(
        self,
        name: str,
        store: Callable[[], Store],
        service: Service,
        labels: Mapping[str, str],
        resume: Callable[[Run], Coroutine[Any, Any, Any]],
        pack: Callable[[Any], Sequence[bytes]],
        *,
        blocking: bool,
        refusal: str = "",
    ) -> None:
        self.name = self._place = name
        self._store, self._service, self._labels = store, service, labels
        self._resume, self._pack, self._blocking, self._refusal = resume, pack, blocking, refusal
        if not refusal:
            registry[name] = self

    @property
    def place(self) -> Place | None:
        """The place of a thread that it begins; None if no other process could resume that."""
        return None if self._refusal else self._service.place(self.name)

    def _serves(self, ports: Ports, version: int) -> bool:
        """True if it can resume threads of this version (0: not begun) there."""
        return version in (0, *self._service.versions) and (self._blocking or not ports.blocking)

    async def _execute(self, run: Run, _packed: bytes | None) -> Any:
        """Run a claimed thread: blocking work on a thread of its own, if this is an event loop."""
        if not self._blocking or run._ports.blocking:
            return await self._resume(run)
        plain = for_plain_code(run)
        return await run._ports.invoke(lambda: run_blocking(self._resume(plain)), (), {}, None)

    def _call(self, arguments: Sequence[Any], named: Mapping[str, Any], thread_id: str = "") -> Call:
        if self._refusal or len(arguments) != 1 or named:
            raise ConfigurationError(self._refusal or f"{self.name} takes one argument, and no keywords")
        forms = self._pack(arguments[0])
        fingerprints = [fingerprint_of(form, self.name) for form in forms]

        def compare(known: Started) -> KeyReused | None:
            if known.function == self.name and known.fingerprint in fingerprints:
                return None
            runs = f"thread {thread_id!r} runs {known.function}"
            return KeyReused(f"{runs}, or was started with something else; give another thread id")

        return Call(self.name, forms[0], fingerprints[0], self._service.queue, self._labels, compare)

    async def submit(self, given: Any, thread_id: str | None, options: Submission) -> tuple[Store, str]:
        """Create a thread, and return its store and its id."""
        store = self._store()
        name = fresh_id(store, self.name.partition(" ")[0]) if thread_id is None else thread_id
        await submit(store, name, self._call([given], {}, name), options)
        return store, name


class Submitter:
    """Submits work with options: see `Agent.options`."""

    def __init__(self, runnable: Runnable, options: Mapping[str, Any]) -> None:
        self._runnable, self._options = runnable, Submission.of(options)

    async def submit(self, given: Any, /, *, thread_id: str | None = None) -> Handle:
        """Create a thread that is due, and return a handle on it: see `Agent.submit`."""
        return Handle(*await self._runnable.submit(given, thread_id, self._options))


class BlockingSubmitter:
    """See `Submitter`."""

    def __init__(self, runnable: Runnable, options: Mapping[str, Any]) -> None:
        self._runnable, self._options = runnable, Submission.of(options)

    def submit(self, given: Any, /, *, thread_id: str | None = None) -> BlockingHandle:
        """See `Agent.submit`."""
        return BlockingHandle(*run_blocking(self._runnable.submit(given, thread_id, self._options)))
