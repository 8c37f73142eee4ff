"""Disks that are full: a server whose files may not grow gets the same error."""

import resource


def limit_files(process: int, size: int | None) -> None:
    """Let no file of a process grow beyond `size` bytes; None for no limit."""
    limit = resource.RLIM_INFINITY if size is None else size
    resource.prlimit(process, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
