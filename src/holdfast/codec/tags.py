"""The extension codes of the encoding. Part of the storage format: a code never changes its meaning.

Plain data (None, bool, int up to 64 bits, float, str, bytes, list, dict with str keys) is plain msgpack. All else is a
msgpack extension with one of these codes. UTC datetimes use msgpack's own timestamp extension (code -1).
"""

# Extensions around one nested msgpack value. SET and FROZENSET hold an array sorted by encoding, MAPPING an array of
# alternating keys and values, as ORDERED_DICT and COUNTER; OBJECT the array [name, version, fields], DEQUE
# [longest, items], DEFAULTDICT [factory, alternating keys and values], RANGE [start, stop, step].
TUPLE = 1
SET = 2
FROZENSET = 3
MAPPING = 4
OBJECT = 5
DEQUE = 6
DEFAULTDICT = 7
ORDERED_DICT = 8
COUNTER = 9
RANGE = 10
NESTED = frozenset({TUPLE, SET, FROZENSET, MAPPING, OBJECT, DEQUE, DEFAULTDICT, ORDERED_DICT, COUNTER, RANGE})
HEADED = frozenset({OBJECT, DEQUE, DEFAULTDICT})  # what they hold is one level deeper, inside the array

# Extensions that hold bytes of their own.
TIMESTAMP = -1  # msgpack's own
BIG_INT = 16
SURROGATES = 17
DATETIME = 18
DATE = 19
TIME = 20
TIMEDELTA = 21
DECIMAL = 22
UUID = 23
PATH = 24
ZONE = 25
NETWORK = 26
PATTERN = 27
FRACTION = 28
COMPLEX = 29
