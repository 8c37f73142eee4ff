"""What is kept of an error: its text, and which failed steps it came from."""

from collections.abc import Iterator

from holdfast.records.errors import StepFailed

STEP = "__holdfast_step__"
"""Which step an error comes from that is raised as itself."""
LONGEST_TEXT = 8192
"""The error of a thread is in its head, which every write replaces."""


def text_of(error: object) -> str:
    """The text of an error, as one that can be stored: its beginning, if it is a very long one."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  a user's __str__ may raise anything
        return "(its text could not be read)"
    kept = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text)} characters)"
    return kept.encode(errors="backslashreplace").decode()


def explain(error: BaseException | None, plain_step: str) -> None:
    """Say in a note which step was awaited by mistake, if that is what the error is about."""
    if plain_step and isinstance(error, TypeError) and "can't be used in 'await' expression" in str(error):
        error.add_note(f"step {plain_step!r} is a plain function: call it without await, or make it an async def")


def failed_steps(error: object) -> tuple[str, ...]:
    """The keys of the failed steps behind an error: those it was raised from, and those in a group."""
    return tuple(dict.fromkeys(filter(None, map(_step_of, _origins(error, set())))))


def mark_failed(error: Exception, key: str) -> None:
    """Keep in an error which step it comes from: if it leaves the run, that step is executed again."""
    vars(error)[STEP] = key


def _step_of(error: BaseException) -> str:
    found: str = error.key if isinstance(error, StepFailed) else vars(error).get(STEP, "")
    return found


def _origins(error: object, seen: set[int]) -> Iterator[BaseException]:
    if not isinstance(error, BaseException) or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _origins(each, seen)
    yield from _origins(error.__cause__ or error.__context__, seen)
