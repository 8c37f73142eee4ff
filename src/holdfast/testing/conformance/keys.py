"""Keys of threads: any bytes, each its own thread, however similar they look."""

from holdfast.records.rows import Drop
from holdfast.testing.conformance.kit import Kit
from holdfast.testing.conformance.listings import listed
from holdfast.testing.conformance.samples import Line, blobs, head, key, row

LONGEST = key("x" * 512, "n" * 128)
HOSTILE_KEYS: tuple[bytes, ...] = tuple(
    dict.fromkeys(
        [
            *(
                key(name)
                for name in ("..", "../x", "../../etc/passwd", "/", "a/b", "a/b/", "a//b", "~", ".", "a.", "a ")
            ),
            *(
                key(name)
                for name in ("a", "A", "a\0", "a\0b", "\0", "\0\0", "aa", "aaa", "ab", "b", "con", "nul", "%00")
            ),
            *(
                key(name)
                for name in ("\u00e9", "e\u0301", "\u0435", "e", "\ufb01", "fi", "\u200b", "\u202e", "\U0001f600")
            ),
            *(
                key(name)
                for name in ("'", '"', "; drop table heads", "a*", "a?", "[a]", "{a}", "a\nb", "a\\b", "-rf", "$x")
            ),
            *(key("a", namespace) for namespace in ("a", "aa", "\0", "/", "..")),
            key("aa", "a"),
            b"\x00\xff",
            b"\x00\xff\xff",
            b"\x00" + bytes(range(256)),
            LONGEST,
            LONGEST[:-1],
            LONGEST[:-1] + b"y",
        ]
    )
)
"""Keys that a careless encoding would confuse, cut off, or write outside of its root."""


class Keys(Kit):
    """Test that keys are opaque, and never confused."""

    def test_the_longest_key_has_641_bytes(self) -> None:
        """A key of full length works like any other."""
        assert len(LONGEST) == 641
        line = Line(self.opened(), LONGEST)
        line.put(head(), (row(1),), blobs(1))
        assert line.backend.rows(LONGEST, 1) == [row(1)]
        assert listed(line.backend) == [LONGEST]

    def test_no_key_reaches_the_data_of_another(self) -> None:
        """Every thread has its own head, rows, blobs and messages."""
        backend = self.opened()
        lines = [Line(backend, thread) for thread in HOSTILE_KEYS]
        for number, line in enumerate(lines):
            assert line.encoded is None
            assert line.seqs == []
            line.put(head(1, token=number), (row(1, body=b"%d" % number),), {b"i" * 16: b"%d" % number})
            assert backend.post(line.key, "k", b"%d" % number)
        for number, line in enumerate(lines):
            assert line.encoded == line.stored
            assert backend.rows(line.key, 1) == [row(1, body=b"%d" % number)]
            assert backend.blobs(line.key, [b"i" * 16]) == {b"i" * 16: b"%d" % number}
            assert backend.inbox(line.key) == {"k": b"%d" % number}
        assert sorted(listed(backend, limit=7)) == sorted(HOSTILE_KEYS)

    def test_deleting_one_of_them_leaves_the_others(self) -> None:
        """Each delete removes only its own thread."""
        backend = self.opened()
        lines = [Line(backend, thread) for thread in HOSTILE_KEYS]
        for line in lines:
            line.put(head(), (row(1),))
        for line in lines[::2]:
            line.put(head(0, deleted=True, status=""), drop=Drop(everything=True))
        for number, line in enumerate(lines):
            assert line.seqs == ([1] if number % 2 else [])
        assert sorted(listed(backend)) == sorted(line.key for line in lines[1::2])
