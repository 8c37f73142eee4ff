"""What is left of a URL when it is shown, and which URLs are taken apart in one way only."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.records.errors import ConfigurationError
from holdfast.records.urls import redacted, well_formed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("holdfast.db", "holdfast.db"),
        ("/srv/agents/a@b.db", "/srv/agents/a@b.db"),
        ("tenant=5/agents.db", "tenant=5/agents.db"),
        ("memory:", "memory:"),
        ("sqlite:agents.db", "sqlite:agents.db"),
        ("file:///srv/agents", "file:///srv/agents"),
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis+cluster://[::1]:7000,b:7001", "redis+cluster://[::1]:7000,b:7001"),
        ("postgresql://ana:secret@host/db", "postgresql://***@host/db"),
        ("postgresql://secret@host/db", "postgresql://***@host/db"),
        ("redis://:p@ss@host", "redis://***@host"),
        ("redis://host/0?password=secret", "redis://host/0?***"),
        ("redis://host/0?password=se@cret", "redis://host/0?***"),
        ("unix://ana:secret@/run/redis.sock?db=1", "unix://***@/run/redis.sock?***"),
        ("s3://bucket/prefix?endpoint=http://a:secret@host", "s3://bucket/prefix?***"),
        ("redis://ana:sec/ret@host", "redis://***"),
        ("redis://ana:12?sec@host", "redis://***"),
        ("redis://ana:secret", "redis://***"),
        ("redis:ana:secret@host", "redis:***"),
        ("redis//ana:secret@host", "***"),
        ("ana:secret@host", "ana:***"),
        ("host=h password=secret", "host=***"),
        ("password = secret", "password=***"),
        ("sslmode=require user=ana password='se cret'", "sslmode=***"),
    ],
)
def test_credentials_are_not_shown(text: str, shown: str) -> None:
    assert redacted(text) == shown


SCHEMES = st.sampled_from(["redis", "rediss", "postgresql", "s3", "unix", "redis+sentinel", "mysql", "h2"])
PASSWORDS = st.text(min_size=6).map(lambda text: f"Q7{text}7Q")


@given(
    SCHEMES,
    PASSWORDS,
    st.sampled_from(["//a:{}@host/0", "//:{}@[::1]:80", "//{}@h?db=1", ":{}@host", "//h?password={}"]),
)
@example("redis", "Q7/@x7Q", "//a:{}@host/0")
def test_no_part_of_a_password_is_shown_whatever_it_holds(scheme: str, password: str, place: str) -> None:
    shown = redacted(f"{scheme}:{place.format(password)}")
    assert "Q7" not in shown
    assert "7Q" not in shown


def test_an_at_sign_in_a_password_is_percent_encoded() -> None:
    assert well_formed("redis://a:p@s@h:1/0?x=y@z") == "redis://a:p%40s@h:1/0?x=y@z"
    assert well_formed("postgresql:///db?host=/run") == "postgresql:///db?host=/run"
    assert well_formed("redis://a:p%2Fs@h") == "redis://a:p%2Fs@h"


@pytest.mark.parametrize("place", ["a:p/s@h", "a:p#s@h", "a:1?s@h", "a:p%zz@h", "[::1", "h:port", "a:secret"])
def test_a_malformed_url_is_refused_with_what_to_do_and_without_its_password(place: str) -> None:
    with pytest.raises(ConfigurationError, match="percent-encode") as refused:
        well_formed(f"redis://{place}")
    assert str(refused.value).startswith("'redis://***'")
