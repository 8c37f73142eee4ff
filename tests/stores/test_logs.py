"""What a log shows of an encrypted store: names and ids, as documented, and nothing that was stored."""

import logging
from pathlib import Path

import pytest

from holdfast import sync

CANARY = "canary-3141592"


def refuse() -> None:
    raise ValueError(CANARY)


def test_a_log_shows_names_and_ids_and_no_content(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    with sync.open(tmp_path / "store.db", keys=b"k" * 32) as store:
        store.save("thread-7", {"state": CANARY}, labels={"user": CANARY}, metadata={"note": CANARY})
        with store.run("thread-8") as run:
            run.step("draft-letter", str.upper, CANARY)
        with pytest.raises(sync.Suspended), store.run("thread-8") as run:
            run.ask("approve-letter", {"question": CANARY})
        with pytest.raises(sync.StepFailed), store.run("thread-9") as run:
            run.step("send-letter", refuse)
    records = [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
    text = "\n".join(records)
    assert all(name in text for name in ("thread-7", "thread-8", "draft-letter", "approve-letter", "send-letter"))
    assert CANARY not in text
    assert CANARY.upper() not in text
