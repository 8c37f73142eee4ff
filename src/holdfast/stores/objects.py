"""Threads in an object store, over five calls (`Objects`): the base of the S3 store, and of stores that users write.

A swap puts new blobs and rows side by side, and then the head object, on the condition that nobody else did: 2 calls for
a row, 1 for a head alone. A restore costs 1 call for the head, 1 listing, and 1 for each row and blob, side by side.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from secrets import randbelow, token_hex
from time import sleep

from msgspec.structs import replace

from holdfast.history.binding import SEQ_BYTES
from holdfast.history.tuning import Tuning
from holdfast.records.errors import Corrupt, OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.records.head import decode_head
from holdfast.records.reports import Guarantee
from holdfast.records.rows import Drop, Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.backend import Listing, matches
from holdfast.stores.object_calls import PAGE, Calls, Objects
from holdfast.stores.object_heads import Heads, Kept
