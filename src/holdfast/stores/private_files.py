"""Files and directories that Holdfast creates and opens: private to their owner, and regular files only.

Symbolic links are never followed, unless the caller of Holdfast named them. Opening never blocks: a named pipe, a
socket or a device in the place of a file is refused at once. Failures raise `OSError`, which stores translate.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EINVAL
from typing import BinaryIO

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700

_GUARDED = os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegular(OSError):
    """Something other than a regular file is in the place of one."""


def open_regular(path: str, flags: int, *, directory: int | None = None, follow: bool = False) -> int:
    """Open a regular file, or create one with mode 0600.

    With `directory`, look the last part of the path up there. `follow` allows links: only for a path that the caller of
    Holdfast chose, and only for reading.
    """
    name = path if directory is None else os.path.basename(path)
    guarded = flags | _GUARDED | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(name, guarded, PRIVATE_FILE, dir_fd=directory)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:
        refuse_irregular(path, directory=directory)
        raise
    try:
        _require_regular(os.fstat(fd), path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def refuse_irregular(path: str, *, directory: int | None = None) -> None:
    """Raise `NotRegular` if something other than a regular file has this name. Opens nothing."""
    name = path if directory is None else os.path.basename(path)
    with suppress(FileNotFoundError):
        _require_regular(os.stat(name, dir_fd=directory, follow_symlinks=False), path)


def _require_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(EINVAL, f"{_kind(status)} is in the place of a regular file; remove it, or name another", path)


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "something else")


def remove_name(name: str, directory: int) -> None:
    """Remove a file, a link or an empty directory of this name. Follows no link."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        os.rmdir(name, dir_fd=directory)


def open_to_read(path: str) -> BinaryIO:
    """Open a file that the caller of Holdfast named. Follows links."""
    return os.fdopen(open_regular(path, os.O_RDONLY, follow=True), "rb")


def create(path: str, mode: int = PRIVATE_FILE) -> bool:
    """Create an empty file with this mode, whatever the umask; False if the name is taken."""
    try:
        fd = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return False
    try:
        os.fchmod(fd, mode)
    finally:
        os.close(fd)
    return True


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Write a file that is renamed to `path` once it is complete and on disk; after an error nothing has changed.

    It is written under a random name in the same directory. It has mode 0600, or that of the file it replaces if this
    user owns that.
    """
    mode = _mode_to_keep(path)
    directory = os.path.dirname(path) or os.curdir
    temporary = os.path.join(directory, f".holdfast-{os.urandom(8).hex()}.part")
    fd = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_directory(directory)


def _mode_to_keep(path: str) -> int:
    """Return the mode of the file at `path` if this user owns it, else 0600. A link there is replaced, not followed."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return PRIVATE_FILE
    if stat.S_ISLNK(status.st_mode):
        return PRIVATE_FILE
    _require_regular(status, path)
    return stat.S_IMODE(status.st_mode) if status.st_uid == os.geteuid() else PRIVATE_FILE


@contextmanager
def directory_below(root: str, *names: str) -> Iterator[int]:
    """Open a directory below `root`. The root may be a symbolic link, as the user chose it; nothing below it may."""
    with ExitStack() as opened:
        fd, path = os.open(root, _DIRECTORY), root
        opened.callback(os.close, fd)
        for name in names:
            path = f"{path}/{name}"
            fd = _enter(fd, name, path)
            opened.callback(os.close, fd)
        yield fd


def _enter(parent: int, name: str, path: str) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            raise
        problem = f"{_kind(status)} is in the place of a directory; remove it"
        raise OSError(EINVAL, problem, path) from error


def sync_directory(path: str) -> None:
    """Sync the names in a directory to disk."""
    fd = os.open(path, _DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
