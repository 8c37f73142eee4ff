"""How bytes travel between this process and the server of a store, in the words of `Guarantee.details`."""

from collections.abc import Iterable
from ipaddress import ip_address

LOCAL = "local"
VERIFIED = "TLS, server verified"


def transport(hosts: Iterable[str], weakness: str) -> str:
    """Return `LOCAL`, `VERIFIED`, or the `weakness` of the connection to these hosts (empty if it has none)."""
    remote = [host for host in hosts if not is_local(host)]
    if not remote:
        return LOCAL
    return f"{weakness} to {', '.join(remote)}" if weakness else VERIFIED


def is_local(host: str) -> bool:
    """True for a loopback address, and for the path of a Unix socket."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in {"", "localhost"} or host.startswith(("/", "@"))
