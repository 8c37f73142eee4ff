"""Tracebacks that show the user's code: where an error leaves Holdfast, our frames are removed."""

from types import TracebackType

from holdfast.records.errors import HoldfastError

OURS = tuple(
    f"holdfast.{room}." for room in ("records", "codec", "ports", "history", "stores", "runs", "runtimes", "sync")
)


def hide_our_frames(error: BaseException) -> None:
    """Remove our frames from an error's traceback.

    An unexpected error that our code raised keeps them all: they show where the bug is.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    if frames and _is_ours(frames[-1]) and not isinstance(error, HoldfastError):
        return
    shown: TracebackType | None = None
    for frame in reversed(frames):
        if not _is_ours(frame):
            shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    error.__traceback__ = shown


def _is_ours(trace: TracebackType) -> bool:
    return f"{trace.tb_frame.f_globals.get('__name__', '')}.".startswith(OURS)
