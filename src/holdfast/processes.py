"""Name this process as the owner of a lease, and check whether the owner of a lease is certainly dead.

Only this host's kernel knows that, for a process of the same boot and the same process namespace. In any doubt (another
host, another container, a system without /proc) an owner counts as alive, and its lease has to expire. The name holds
the host, the boot and the namespace, so it works for leases in a server store that many hosts share.
"""

import os
import re

import msgspec

_PROC = "/proc"
_START_FIELD = 22
_ZOMBIE = "Z"
_PID = re.compile("[1-9][0-9]{0,8}")  # as a kernel writes it


class Identity(msgspec.Struct, frozen=True):
    """A process of one boot of one host. An empty `boot` or `space` means that its death cannot be known."""

    host: str
    pid: int
    start: str
    boot: str
    space: str

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.start}:{self.boot}:{self.space}"

    @classmethod
    def parse(cls, text: str) -> "Identity | None":
        """Parse an owner's name, an identity followed by a suffix for each run; None if it is something else."""
        parts = text.rsplit(":", 5)
        if len(parts) < 6 or not _PID.fullmatch(parts[1]):
            return None
        return cls(parts[0], int(parts[1]), *parts[2:5])


def _read(path: str) -> str:
    try:
        with open(f"{_PROC}/{path}") as file:
            return file.read().strip()
    except OSError:
        return ""


def _state_and_start(pid: int) -> tuple[str, str]:
    """Return the state and the start time of a process. Its name, before them in parentheses, can hold anything."""
    fields = _read(f"{pid}/stat").rpartition(")")[2].split()
    return (fields[0], fields[_START_FIELD - 3]) if len(fields) > _START_FIELD - 3 else ("", "")


def identity() -> Identity:
    """Return the identity of this process."""
    boot = _read("sys/kernel/random/boot_id")[:8]
    try:
        space = os.readlink(f"{_PROC}/self/ns/pid").partition("[")[2].rstrip("]")
    except OSError:
        space = ""
    pid = os.getpid()
    return Identity(os.uname().nodename.replace(":", "-"), pid, _state_and_start(pid)[1], boot, space)


def tagged(tag: str, suffix: str) -> str:
    """Return the suffix of an owner's name with a tag, if there is one."""
    return f"{tag}.{suffix}" if tag else suffix


def has_tag(owner: str, tag: str) -> bool:
    """True if an owner's name has this tag."""
    return bool(tag) and owner.rpartition(":")[2].rpartition(".")[0] == tag


def named(owner: str) -> str:
    """Return an owner's name for people: its process id and host."""
    known = Identity.parse(owner)
    name = owner if known is None else f"pid {known.pid} on {known.host}"
    return name if name.isprintable() else ascii(name)[1:-1]


def is_certainly_dead(owner: str) -> bool:
    """True if the process in an owner's name certainly does not run any more."""
    other, here = Identity.parse(owner), identity()
    if other is None or not here.boot or not here.space:
        return False
    if (other.host, other.boot, other.space) != (here.host, here.boot, here.space):
        return False
    try:
        os.kill(other.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    state, start = _state_and_start(other.pid)
    return state == _ZOMBIE or (bool(start) and start != other.start)
