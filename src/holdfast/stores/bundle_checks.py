"""Checking a thread that is to be imported, as `verify` checks a stored one, before anything of it is stored."""

from msgspec.structs import replace

from holdfast.records.errors import Corrupt, LimitExceeded
from holdfast.records.rows import Swap
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.reader import Reader
from holdfast.stores.verify import Verifier


def check_import(reader: Reader, swap: Swap, path: str) -> None:
    """Read every record of the thread that `swap` makes; `Corrupt` if any cannot be read.

    `LimitExceeded` if one is beyond the limits of this store: the store that wrote the bundle may have had higher ones.
    """
    backend = MemoryBackend()
    backend.swap([replace(swap, expected=b"")])
    verifier = Verifier(Reader(backend, reader.sealing))
    verifier.check_thread(swap.thread)
    for why in verifier.errors:
        if isinstance(why, LimitExceeded):
            raise LimitExceeded(f"{path} is beyond the limits of this store, and nothing was imported: {why}") from why
        raise Corrupt(
            f"{path} is not a bundle that export wrote, and nothing was imported: {why}", record="bundle"
        ) from why
