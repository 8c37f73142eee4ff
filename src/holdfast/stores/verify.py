"""Checking everything that is stored. Blocking; damage is reported, not raised."""

from collections.abc import Callable, Iterator

from holdfast.codec.opaque import unknown_as_opaque
from holdfast.history.advance import inspect
from holdfast.history.cells import Cell, rope
from holdfast.history.entries import JOURNAL, message_key, unpack_answer
from holdfast.history.format import Header, all_blob_ids, damaged
from holdfast.history.journal import Journal
from holdfast.history.lazy_steps import check_entry
from holdfast.history.log import Log
from holdfast.history.meta import checkpoint_info
from holdfast.history.prune import needed_rows
from holdfast.ports import Ports
from holdfast.records.errors import CodecError, Corrupt, HoldfastError, NotFound, StoreError
from holdfast.records.head import LOST_HEAD, decode_head
from holdfast.records.identity import shown_id_of
from holdfast.records.reports import Problem, Report
from holdfast.stores.agenda import Agenda, Entry, agrees, entry_of
from holdfast.stores.backend import readable_head
from holdfast.stores.listing import Listings, thread_info
from holdfast.stores.reader import Reader, Seen

ATTEMPTS = 4


class Verifier:
    """Counts the records it checked and collects the problems it found."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.checked = 0
        self.problems: list[Problem] = []
        self.errors: list[HoldfastError] = []
        """The error behind each problem of a thread."""

    async def check_all(self, ports: Ports, progress: Callable[[int, int], object] | None) -> Report:
        """Check the backend and every thread; call `progress` with the number of threads done, and of all."""
        await ports.perform(self.check_backend)
        threads = await ports.perform(self.threads)
        await ports.perform(self.check_agenda)
        for number, thread in enumerate(threads, 1):
            await ports.perform(self.check_thread, thread)
            if progress is not None:
                progress(number, len(threads))
        return Report(checked=self.checked, problems=self.problems)

    def check_backend(self) -> None:
        """Check the backend's own structures."""
        for message in self._reader.backend.check():
            self.problems.append(Problem(thread_id="", record=self._reader.backend.kind, message=message))

    def check_agenda(self) -> None:
        """Compare the head of every thread with its entry in the agenda. What changes meanwhile is compared again."""
        reader, agenda = self._reader, self._reader.backend
        if not isinstance(agenda, Agenda):
            return
        wrong: list[bytes] = []
        try:
            threads = dict(Listings(reader).all_heads())
            for _ in range(ATTEMPTS):
                entries, now = agenda.entries(reader.bindings.prefix), agenda.now()
                present = dict(zip(threads, reader.backend.heads(list(threads)), strict=True))
                wrong = [
                    thread
                    for thread in (wrong or {*threads, *entries})
                    if not agrees(entries.get(thread), _wanted(thread, present.get(thread)), now)
                ]
                if not wrong:
                    return
                threads = dict.fromkeys(wrong, b"")
        except StoreError:
            return  # of a store that cannot be listed or read, the other checks report why
        for thread in sorted(wrong):
            text = "differs from its head; any run of the thread, such as by store.recover(), puts it right"
            name = shown_id_of(thread)
            self.problems.append(Problem(thread_id=name, record="agenda", message=f"the entry of {name!r} {text}"))

    def threads(self) -> list[bytes]:
        """Return the threads to check. A listing that fails, and a head that it lost, are noted as problems."""
        found: list[bytes] = []
        try:
            for thread, encoded in Listings(self._reader).all_heads():
                found.append(thread)
                if encoded == LOST_HEAD:
                    self._check_head(thread, encoded)
        except StoreError as error:
            self.problems.append(Problem(thread_id="", record=self._reader.backend.kind, message=str(error)))
        return found

    def _check_head(self, thread: bytes, encoded: bytes) -> None:
        try:
            decode_head(thread, encoded)
        except StoreError as error:
            self._note(thread, error)

    def check_thread(self, thread: bytes) -> None:
        """Check one thread: that its head, rows, blobs and waiting answers are whole and can be decoded."""
        try:
            with unknown_as_opaque():  # to check the bytes of an object takes no class
                self._walk(thread)
        except (StoreError, CodecError) as error:
            self._note(thread, error)

    def _note(self, thread: bytes, error: HoldfastError) -> None:
        record = error.record if isinstance(error, Corrupt) else ""
        problem = Problem(thread_id=shown_id_of(thread), record=record, message=str(error))
        if problem not in self.problems:
            self.problems.append(problem)
            self.errors.append(error)

    def _walk(self, thread: bytes) -> None:
        for _ in range(ATTEMPTS):
            try:
                seen, headers = self._reader.survey(thread)
            except NotFound:
                return
            thread_info(self._reader, thread, seen.head)
            # A prune cut short may leave rows that nothing needs, without those they are built on.
            needed = needed_rows(headers, seen.head, seen.head.marks)
            checked, found = self._check_rows(thread, seen, [header for header in headers if header.seq in needed])
            again = self._reader.seen(thread)
            if not found or (again is not None and again.encoded == seen.encoded):
                break
        self.checked += checked
        for error in found:
            self._note(thread, error)

    def _check_rows(self, thread: bytes, seen: Seen, headers: list[Header]) -> tuple[int, list[HoldfastError]]:
        """Count the records checked, and collect errors; the caller looks again if the head has changed meanwhile."""
        checked, found = 1, list[HoldfastError]()
        after, journal = None, Cell("list", 0, 0, rope([]), rope([]))
        for group in _groups(headers):
            try:
                log = self._check_group(thread, seen, group, after, bytes(journal.body()))
                journal = max(journal, log.document.get(JOURNAL, journal), key=lambda cell: cell.size)
                checked += len(group) + len(all_blob_ids(group))
            except (StoreError, CodecError) as error:
                found.append(error)
            after = group[-1]
        return checked, found

    def _check_group(self, thread: bytes, seen: Seen, group: list[Header], after: Header | None, journal: bytes) -> Log:
        """Check the rows of one keyframe, newest first, and return the log at their end.

        `after` is the keyframe above, and `journal` one whose values were checked.
        """
        binding = self._reader.binding(thread, seen.head)
        for header in group:
            checkpoint_info(binding, header)
        wanted, seq = all_blob_ids(group), group[0].seq
        rows, stored = self._reader.backend.rows(thread, seq), self._reader.backend.blobs(thread, wanted)
        for blob in sorted(wanted):
            binding.unseal_blob(blob, stored.get(blob))
        log = inspect(binding, rows, seq, stored, self._reader.backend.tuning, journal)
        if seq == seen.head.seq and log.digest != seen.head.digest:
            raise Corrupt(f"{binding.row_name(seq)} is not what the head says", record=binding.row_name(seq))
        if after is not None and after.seq == seq + 1 and after.parent not in {b"", log.digest}:
            raise damaged(seq, binding.thread_id, f"it is not the row that row {after.seq} followed")
        self._check_journal(thread, log, is_newest=seq == seen.head.seq)
        return log

    def _check_journal(self, thread: bytes, log: Log, *, is_newest: bool) -> None:
        """Fold the entries of a journal; for the newest row also read the answers to its open requests."""
        open_numbers = Journal.of(log.document).open_numbers()
        inbox = self._reader.backend.inbox(thread) if is_newest and open_numbers else {}
        for number in open_numbers:
            if message := inbox.get(message_key(number)):
                check_entry(unpack_answer(log.binding, number, message))


def _wanted(thread: bytes, encoded: bytes | None) -> Entry | None:
    head = readable_head(thread, encoded) if encoded else None
    return None if head is None else entry_of(head)


def _groups(headers: list[Header]) -> Iterator[list[Header]]:
    """Group rows by keyframe, newest first."""
    group: list[Header] = []
    for header in headers:
        if group and header.base != group[0].base:
            yield group
            group = []
        group.append(header)
    if group:
        yield group
