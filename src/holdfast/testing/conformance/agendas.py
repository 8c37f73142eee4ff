"""The agenda: every thread that has a place in it is found when it is due, by one caller at a time."""

from typing import Any

from msgspec.structs import replace

from holdfast.records.errors import ConfigurationError
from holdfast.records.head import FORMAT, Head
from holdfast.records.identity import namespace_prefix
from holdfast.records.rows import Drop
from holdfast.stores.agenda import HIDE, PARKED, TELL, Agenda, Announcing, Pace, QueueLimits, agrees, entry_of
from holdfast.stores.listed_agenda import ListedAgenda, agenda_of
from holdfast.testing.conformance.kit import Kit, needs_reopen
from holdfast.testing.conformance.samples import Line, head, key, rows

ROUTE, OTHER = b"route 1 ", b"route 2 "
HOUR = 3_600_000_000
PREFIX = namespace_prefix("")


def queued(**fields: Any) -> Head:
    """Return the head of a submitted thread; `fields` replace its defaults."""
    given: dict[str, Any] = {
        "status": "queued",
        "queue": "q",
        "route": ROUTE,
        "format": FORMAT,
        "updated_at": 1_000,
        **fields,
    }
    return head(**given)


class Agendas(Kit):
    """Test what `Agenda` promises; of a backend without one, the agenda that lists its threads."""

    def _agenda(self) -> Agenda:
        self._kept = self.opened()
        return agenda_of(self._kept)

    def _line(self, name: str, after: Head, namespace: str = "") -> Line:
        line = Line(self._kept, key(name, namespace))
        line.put(after, rows(1))
        return line

    @staticmethod
    def _names(agenda: Agenda, most: int = 10, after: bytes = b"", queue: str = "q") -> list[bytes]:
        taken = agenda.take(PREFIX, queue, [ROUTE], most, after)
        return [due.thread for due in taken.entries]

    def test_a_submitted_thread_is_taken_with_its_head(self) -> None:
        """A due thread is given with its entry and the bytes of its head."""
        agenda = self._agenda()
        line = self._line("a", queued())
        (due,) = agenda.take(PREFIX, "q", [ROUTE], 10).entries
        assert (due.thread, due.head, due.entry) == (line.key, line.stored, entry_of(queued()))

    def test_a_taken_thread_is_hidden_from_others(self) -> None:
        """Nobody is given a thread again before it was hidden for a while."""
        agenda = self._agenda()
        self._line("a", queued())
        assert len(self._names(agenda)) == 1
        assert self._names(agenda) == []
        taken = agenda.take(PREFIX, "q", [ROUTE], 10)
        assert 0 < taken.next_due - agenda.now() <= HIDE

    def test_a_plain_thread_has_no_entry(self) -> None:
        """A thread without a route is in no queue, whatever its status."""
        agenda = self._agenda()
        for status in ("queued", "working", "idle"):
            self._line(status, head(status=status))
        assert agenda.entries(PREFIX) == {}

    def test_a_thread_that_ended_has_no_entry(self) -> None:
        """A thread leaves the agenda as it ends, or is idle."""
        agenda = self._agenda()
        for status in ("idle", "complete", "failed", "cancelled"):
            line = self._line(status, queued())
            line.put(queued(seq=2, status=status), rows(2))
        assert agenda.entries(PREFIX) == {}
        assert self._names(agenda) == []

    def test_a_deleted_thread_has_no_entry(self) -> None:
        """A tombstone is in no queue."""
        agenda = self._agenda()
        self._line("a", queued()).put(head(0, deleted=True, status=""), drop=Drop(everything=True))
        assert agenda.entries(PREFIX) == {}
        assert self._names(agenda) == []

    def test_a_thread_is_not_taken_before_it_is_due(self) -> None:
        """A delayed thread is not given; it is the next that is due."""
        agenda = self._agenda()
        later = agenda.now() + HOUR
        self._line("a", queued(expires_at=later))
        taken = agenda.take(PREFIX, "q", [ROUTE], 10)
        assert (list(taken.entries), taken.next_due) == ([], later)

    def test_without_entries_nothing_is_ever_due(self) -> None:
        """An empty agenda has no next due time."""
        taken = self._agenda().take(PREFIX, "q", [ROUTE], 10)
        assert (list(taken.entries), taken.next_due) == ([], PARKED)

    def test_only_the_routes_asked_for_are_taken(self) -> None:
        """What a process cannot run is never given to it, and does not stand in its way."""
        agenda = self._agenda()
        for number in range(5):
            self._line(f"other {number}", queued(route=OTHER, priority=2))
        mine = self._line("mine", queued(updated_at=2_000))
        assert self._names(agenda, 1) == [mine.key]
        assert agenda.take(PREFIX, "q", [ROUTE], 10).entries == []

    def test_queues_and_namespaces_are_apart(self) -> None:
        """Only threads of the queue and the namespace asked for are given."""
        agenda = self._agenda()
        self._line("a", queued(queue="other"))
        self._line("b", queued(), "elsewhere")
        mine = self._line("c", queued())
        assert self._names(agenda) == [mine.key]
        assert list(agenda.entries(namespace_prefix("elsewhere"))) == [key("b", "elsewhere")]

    def test_priority_comes_first_then_age(self) -> None:
        """Threads are given by priority, then by their due time."""
        agenda = self._agenda()
        order = {"old": queued(updated_at=1_000), "new": queued(updated_at=2_000)}
        order |= {"low": queued(priority=-1), "high": queued(priority=1, updated_at=3_000)}
        for name, after in order.items():
            self._line(name, after)
        looks = [agenda.take(PREFIX, "q", [ROUTE], 1) for _ in range(4)]
        taken = [due.thread for look in looks for due in look.entries]
        assert taken == [key("high"), key("old"), key("new"), key("low")]
        assert [look.has_more for look in looks] == [True, True, True, False]

    def test_lanes_take_turns(self) -> None:
        """If more is due than fits, each lane gets one before any gets a second, from the lane after the last on."""
        agenda = self._agenda()
        for number in range(6):
            self._line(f"a{number}", queued(lane=b"a", updated_at=1_000 + number))
        self._line("b", queued(lane=b"b", updated_at=9_000))
        self._line("c", queued(lane=b"c", updated_at=9_001))
        first = agenda.take(PREFIX, "q", [ROUTE], 2, b"a")
        assert ([due.entry.lane for due in first.entries], first.last_lane) == ([b"b", b"c"], b"c")
        assert self._names(agenda, 2, first.last_lane) == [key("a0"), key("a1")]

    def test_a_live_run_is_left_alone(self) -> None:
        """A thread that a run holds is not given before its lease ends."""
        agenda = self._agenda()
        line = self._line("a", queued())
        line.put(queued(status="working", token=1, owner="me", expires_at=agenda.now() + HOUR))
        assert self._names(agenda) == []

    def test_a_dead_run_is_found_first(self) -> None:
        """A thread whose lease has ended is given, before threads that nobody holds."""
        agenda = self._agenda()
        self._line("a", queued(updated_at=1))
        line = self._line("b", queued())
        line.put(queued(status="working", token=1, owner="me", expires_at=5_000))
        assert self._names(agenda, 1) == [line.key]

    def test_a_claim_of_a_taken_thread_moves_its_entry(self) -> None:
        """After the claim the entry is due at the end of the lease, and held."""
        agenda = self._agenda()
        line = self._line("a", queued())
        self._names(agenda)
        held = queued(status="working", token=1, owner="me", expires_at=agenda.now() + HOUR)
        line.put(held)
        look = agenda.take(PREFIX, "q", [ROUTE], 10)
        assert list(look.entries) == []
        agenda.look_again(line.key, PARKED)
        assert agenda.entries(PREFIX) == {line.key: entry_of(held)}

    def test_a_released_thread_is_due_again(self) -> None:
        """A run that releases its thread says when it is due."""
        agenda = self._agenda()
        line = self._line("a", queued(status="working", token=1, owner="me", expires_at=PARKED // 8))
        line.put(queued(status="working", token=1, expires_at=7_000))
        assert self._names(agenda) == [line.key]

    def test_a_question_parks_a_thread_until_it_is_looked_at_again(self) -> None:
        """A thread that waits for an answer is due at its deadline, or when somebody says so."""
        agenda = self._agenda()
        line = self._line("a", queued(status="input_required"))
        taken = agenda.take(PREFIX, "q", [ROUTE], 10)
        assert (list(taken.entries), taken.next_due) == ([], PARKED)
        agenda.look_again(line.key, agenda.now())
        assert self._names(agenda) == [line.key]
        self._line("b", queued(status="input_required", expires_at=5_000))
        assert self._names(agenda) == [key("b")]

    def test_a_message_makes_its_thread_due(self) -> None:
        """A thread is due with the message that was left for it; a second message under the key is refused."""
        agenda = self._agenda()
        line = self._line("a", queued(status="input_required"))
        assert agenda.call(line.key, "key", b"first")
        assert self._names(agenda) == [line.key]
        assert not agenda.call(line.key, "key", b"second")
        assert self._kept.inbox(line.key) == {"key": b"first"}

    def test_a_message_that_a_release_has_not_heard_makes_the_thread_due(self) -> None:
        """Between its last look at the messages and its release, a run can miss none."""
        agenda = self._agenda()
        if isinstance(agenda, ListedAgenda):
            return  # it looks at the messages themselves
        cases = {"new": frozenset(["old"]), "old": frozenset(["old"]), f"{TELL}other": frozenset[str](), "any": None}
        for message, heard in cases.items():
            line = self._line(message, queued(status="working", token=1, owner="me", expires_at=PARKED // 8))
            self._kept.post(line.key, message, b"")
            swap = line.swap(queued(status="input_required", token=1, updated_at=agenda.now()))
            assert self._kept.swap([replace(swap, heard=heard)]) == [True]
        assert self._names(agenda) == [key("new")]

    def test_a_look_never_makes_an_entry_late(self) -> None:
        """To look again at a later time than the head says means to look when the head says."""
        agenda = self._agenda()
        line = self._line("a", queued())
        self._names(agenda)
        agenda.look_again(line.key, agenda.now() + HOUR)
        assert self._names(agenda) == [line.key]

    def test_a_look_at_a_thread_without_an_entry_makes_none(self) -> None:
        """Threads that ended, or never were, get no entry."""
        agenda = self._agenda()
        line = self._line("a", queued(status="complete"))
        agenda.look_again(line.key, 0)
        agenda.look_again(key("none"), 0)
        assert agenda.entries(PREFIX) == {}

    def test_a_thread_that_cannot_be_read_is_given_and_then_left_alone(self) -> None:
        """A damaged head is given once, holds no place, and is due again much later."""
        agenda = self._agenda()
        if isinstance(agenda, ListedAgenda):
            return
        line = Line(self._kept, key("a"))
        assert self._kept.swap([replace(line.swap(queued(), rows(1)), replacement=b"damaged")]) == [True]
        assert self._names(agenda) == [line.key]
        taken = agenda.take(PREFIX, "q", [ROUTE], 10)
        assert list(taken.entries) == []
        assert taken.next_due > agenda.now() + HIDE
        assert agenda.depth(PREFIX, "q").running == 0

    def test_no_write_makes_an_entry_late(self) -> None:
        """After any write the entry agrees with the head: as it says, or earlier."""
        agenda = self._agenda()
        line, now = self._line("a", queued()), agenda.now()
        mine: dict[str, Any] = {"status": "working", "token": 1, "owner": "me"}
        writes: list[dict[str, Any]] = [
            {"updated_at": 5_000},
            {"expires_at": now + HOUR},
            {"expires_at": 6_000},
            {**mine, "expires_at": now + HOUR},
            {**mine, "expires_at": now + 2 * HOUR},
            {**mine, "expires_at": now + HOUR // 2},
            {**mine, "expires_at": now + HOUR, "route": OTHER},
            {"status": "input_required", "token": 1},
            {"status": "queued", "priority": 1, "lane": b"x"},
            {"status": "failed"},
            {"status": "queued", "queue": "other"},
        ]
        for seq, fields in enumerate(writes, 2):
            line.put(queued(seq=seq, **fields), rows(seq))
            assert agrees(agenda.entries(PREFIX).get(line.key), entry_of(line.head), now), fields

    def test_a_refused_swap_leaves_the_agenda_alone(self) -> None:
        """Only an accepted swap changes an entry."""
        agenda = self._agenda()
        line = self._line("a", queued())
        before = agenda.entries(PREFIX)
        swap = line.swap(queued(seq=2, status="complete"), rows(2))
        line.refused(replace(swap, expected=swap.replacement))
        assert agenda.entries(PREFIX) == before

    # QueueLimits

    def _limited(self, agenda: Agenda) -> bool:
        """True if the backend has limits; one that lists its threads must refuse them."""
        if not isinstance(agenda, ListedAgenda):
            return True
        for refused in (
            lambda: agenda.take(PREFIX, "q", [ROUTE], 1, limits=QueueLimits(concurrency=1)),
            lambda: agenda.spend(b"bucket", 1, 0),
        ):
            try:
                refused()
            except ConfigurationError:
                continue
            raise AssertionError("a limit was neither kept nor refused")
        return False

    def test_no_more_of_a_queue_are_held_than_its_concurrency(self) -> None:
        """What is held counts, whatever its route; what was held and is due has its place, and counts once."""
        agenda = self._agenda()
        if not self._limited(agenda):
            return
        mine = queued(status="working", token=1, owner="me", expires_at=agenda.now() + HOUR)
        self._line("live", mine)
        self._line("other", replace(mine, route=OTHER))
        dead = self._line("dead", replace(mine, expires_at=5_000))
        for number in range(4):
            self._line(f"t{number}", queued(updated_at=1_000 + number))
        limits = QueueLimits(concurrency=4)
        first = agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits)
        assert [due.thread for due in first.entries] == [dead.key, key("t0")]
        second = agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits)
        assert (list(second.entries), second.has_more) == ([], True), "there is more, and the limit holds it back"
        assert agenda.now() < second.next_due <= agenda.now() + HIDE, "when one that is held is due"
        assert len(agenda.take(PREFIX, "q", [ROUTE], 10, limits=QueueLimits(concurrency=6)).entries) == 2

    def test_a_call_leaves_a_taken_thread_its_place(self) -> None:
        """Between the take and the claim of a thread nobody gets its place, even if the thread is called."""
        agenda = self._agenda()
        if not self._limited(agenda):
            return
        waits = queued(status="working", token=1)
        line, limits = self._line("a", waits), QueueLimits(concurrency=1)
        assert len(agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits).entries) == 1
        self._line("b", queued())
        agenda.look_again(line.key, agenda.now())
        assert agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits).entries == []
        line.put(queued(status="working", token=2, owner="me", expires_at=agenda.now() + HOUR))
        line.put(queued(status="input_required", token=2))
        agenda.look_again(line.key, 500)
        assert [due.thread for due in agenda.take(PREFIX, "q", [ROUTE], 1, limits=limits).entries] == [line.key]

    def test_a_place_is_free_again_when_a_thread_ends(self) -> None:
        """A thread that ends, waits or is released gives its place to another one."""
        agenda = self._agenda()
        if not self._limited(agenda):
            return
        lines = {key(name): self._line(name, queued(updated_at=at)) for at, name in enumerate("abcd", 1_000)}
        limits, ends = QueueLimits(concurrency=1), ("complete", "input_required", "failed", "cancelled")
        for status in ends:
            (due,) = agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits).entries
            assert agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits).entries == []
            lines[due.thread].put(queued(status="working", token=1, owner="me", expires_at=agenda.now() + HOUR))
            assert agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits).entries == []
            lines[due.thread].put(queued(seq=2, status=status, token=1), rows(2))
        assert agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits).entries == []

    def test_no_more_of_a_lane_are_held_than_each(self) -> None:
        """A lane at its limit is passed over; the others go on, also with another priority."""
        agenda = self._agenda()
        if not self._limited(agenda):
            return
        busy = queued(lane=b"a", status="working", token=1, owner="me", expires_at=agenda.now() + HOUR)
        self._line("busy", busy)
        for number in range(4):
            self._line(f"a{number}", queued(lane=b"a", priority=number % 2, updated_at=1_000 + number))
            self._line(f"b{number}", queued(lane=b"b", updated_at=2_000 + number))
        limits = QueueLimits(each=2)
        taken = agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits)
        assert sorted(due.thread for due in taken.entries) == sorted([key("a1"), key("b0"), key("b1")])
        again = agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits)
        assert (list(again.entries), again.next_due > agenda.now(), again.has_more) == ([], True, True)

    def test_a_pace_holds_back_only_threads_that_begin(self) -> None:
        """Beginnings are charged, one unit each; threads that had begun go on."""
        agenda = self._agenda()
        if not self._limited(agenda):
            return
        for number in range(4):
            self._line(f"new{number}", queued(updated_at=1_000 + number))
            self._line(f"old{number}", queued(route=OTHER, updated_at=2_000 + number))
        pace = Pace(b"bucket", HOUR, HOUR)
        limits = QueueLimits(pace=pace, unbegun=frozenset([ROUTE]))
        taken = agenda.take(PREFIX, "q", [ROUTE, OTHER], 10, limits=limits)
        names = [due.thread for due in taken.entries]
        assert sorted(names) == sorted([key(name) for name in ("new0", "new1", "old0", "old1", "old2", "old3")])
        again = agenda.take(PREFIX, "q", [ROUTE], 10, limits=limits)
        assert (list(again.entries), again.next_due > agenda.now(), again.has_more) == ([], True, True)
        assert agenda.spend(b"bucket", 1, 0) > HOUR, "the bucket of `spend` is the same one"

    def test_a_bucket_is_charged_or_says_how_long_to_wait(self) -> None:
        """A bucket grants what it has; it may be overdrawn once, and what follows waits."""
        agenda = self._agenda()
        if not self._limited(agenda):
            return
        assert agenda.spend(b"a", HOUR, HOUR) == 0
        assert agenda.spend(b"a", 10 * HOUR, HOUR) == 0, "one unit ahead is allowed, and it may overdraw"
        wait = agenda.spend(b"a", HOUR, HOUR)
        assert 9 * HOUR < wait <= 10 * HOUR
        assert agenda.spend(b"a", HOUR, HOUR) <= wait, "what was refused is not charged"
        assert agenda.spend(b"b", HOUR, 0) == 0, "another bucket"
        assert agenda.spend(b"a", -10 * HOUR, PARKED) == 0
        assert agenda.spend(b"a", HOUR, HOUR) == 0, "what was returned can be spent"

    # Announcements

    def test_an_announcement_is_heard(self) -> None:
        """A listener hears what is announced after it began to listen."""
        agenda = self._agenda()
        if not isinstance(self._kept, Announcing):
            return
        listener = self._kept.listener(PREFIX)
        try:
            while listener.wait(0.2):
                """What was announced while it connected is not ours."""
            self._line("a", queued())
            self._kept.announce(PREFIX)
            assert listener.wait(10), "nothing was heard"
        finally:
            listener.close()
            listener.close()
        assert len(self._names(agenda)) == 1

    def test_a_queue_is_measured(self) -> None:
        """The depth of a queue counts its threads by what they wait for."""
        agenda = self._agenda()
        soon = agenda.now() + HOUR
        for name, after in {
            "ready": queued(),
            "older": queued(updated_at=500),
            "delayed": queued(expires_at=soon),
            "running": queued(status="working", token=1, owner="me", expires_at=soon),
            "waiting": queued(status="input_required"),
            "elsewhere": queued(queue="other"),
        }.items():
            self._line(name, after)
        depth = agenda.depth(PREFIX, "q")
        assert (depth.ready, depth.delayed, depth.running, depth.waiting) == (2, 1, 1, 1)
        assert depth.oldest_ready == 500

    @needs_reopen
    def test_entries_are_there_after_a_close(self) -> None:
        """The agenda has the durability of the threads."""
        agenda = self._agenda()
        self._line("a", queued())
        before = agenda.entries(PREFIX)
        self._kept.close()
        assert agenda_of(self.reopened(self._kept)).entries(PREFIX) == before
