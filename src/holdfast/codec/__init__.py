"""Values to bytes and back, exactly; then bytes to sealed bytes (compressed, encrypted) and back.

Pure functions: no clock, no randomness of its own, no I/O. Nothing enters but `holdfast.records`.
"""

from typing import TYPE_CHECKING, Any

from holdfast.codec.decoding import decode
from holdfast.codec.encoding import encode
from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import DEFAULT, Limits
from holdfast.codec.pieces import Kind, container, container_header, split
from holdfast.codec.seal import Entropy, Seal

if TYPE_CHECKING:
    from holdfast.codec.registry import migration, register, storable


def __getattr__(name: str) -> Any:
    """Load the registry with the first class that is registered."""
    if name not in {"migration", "register", "storable"}:
        raise AttributeError(f"module 'holdfast.codec' has no attribute {name!r}")
    from holdfast.codec import registry

    return getattr(registry, name)


__all__ = [
    "DEFAULT",
    "Entropy",
    "KeyRing",
    "Kind",
    "Limits",
    "Seal",
    "container",
    "container_header",
    "decode",
    "encode",
    "migration",
    "register",
    "split",
    "storable",
]
