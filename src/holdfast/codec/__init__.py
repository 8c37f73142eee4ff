"""Values to bytes and back, exactly; then bytes to sealed bytes (compressed, encrypted) and back.

Pure functions: no clock, no randomness except for new keys, no I/O. May import `holdfast.records` only.
"""

from holdfast.codec.decoding import decode
from holdfast.codec.encoding import encode
from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import DEFAULT, Limits
from holdfast.codec.pieces import Kind, container, container_header, split
from holdfast.codec.registry import migration, register, storable
from holdfast.codec.seal import Entropy, Seal

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
