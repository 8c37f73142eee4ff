"""Values of users for people: on one line, or laid out. Whatever they hold, only printable text comes out."""

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from holdfast.cli.plain import plain
from holdfast.cli.screen import Screen, span
from holdfast.cli.text import printable
from holdfast.records.checkpoint import Step


def inline(value: Any) -> str:
    """A value on one line."""
    return printable(json.dumps(plain(value), ensure_ascii=False))


def laid_out(value: Any) -> Iterable[str]:
    """A value over several lines, as JSON that people can read."""
    for line in json.dumps(plain(value), ensure_ascii=False, indent=2).split("\n"):
        yield printable(line)


def path_of(path: Iterable[Any]) -> str:
    """A place in a state: `plan[1].name`; keys that are no plain words in quotes."""
    text = ""
    for part in path:
        if isinstance(part, str) and part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{inline(part)}]"
    return printable(text) or "state"


def arguments_of(step: Step) -> str:
    """What a step was called with, as far as its row tells."""
    text = step.metadata.get("arguments")
    return printable(text) if isinstance(text, str) else ""


def took(step: Step) -> str:
    """How long a step took, if that is known."""
    seconds = step.metadata.get("seconds")
    return span(timedelta(seconds=seconds)) if isinstance(seconds, int | float) else ""


def outcome_of(step: Step) -> str:
    """What came out of a step: its error, or its output."""
    if step.error is not None:
        return step.error
    shown = step.tool_output if step.tool_output is not None else step.llm_output
    return "" if shown is None else inline(shown)


def clipped(screen: Screen, indent: str, value: Any) -> str:
    """A value on one line, on a terminal cut to what is left of it after the indent."""
    return indent + screen.cut(inline(value), max(screen.width - len(indent), 10))
