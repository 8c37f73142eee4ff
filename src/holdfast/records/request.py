"""Requests to the outside, each with one answer."""

from datetime import datetime
from typing import Any

import msgspec


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request: given once, consumed once."""

    choice: str | None
    value: Any = None
    by: str = ""
    comment: str = ""
    at: datetime


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A question a run asks: an approval, an input."""

    id: str
    thread_id: str
    name: str
    payload: Any
    choices: tuple[str, ...]
    created_at: datetime
    deadline: datetime | None = None
    status: str = "open"
    answer: Answer | None = None
    takes: str = ""
    """The type of the answer's value, such as `int` or `Decision(approved: bool)`; empty for any."""
