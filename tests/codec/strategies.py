"""Hypothesis strategies for everything that can be stored."""

import re
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, timedelta, timezone
from ipaddress import ip_interface, ip_network
from pathlib import PurePosixPath
from typing import Any

from hypothesis import strategies as st

from codec.samples import BERLIN, Colour, Event, Level, Message, Note, Open, Pair, Permission, Point, Word

text = st.text(st.characters(exclude_categories=[]), max_size=20)  # with lone surrogates
clean_text = st.text(max_size=20)
offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23))
zones = st.one_of(
    st.none(),
    st.sampled_from([UTC, BERLIN]),
    st.builds(timezone, offsets),
    st.builds(timezone, offsets, text),
)
numbers = st.one_of(st.integers(), st.integers(-(2**200), 2**200), st.floats(), st.decimals(), st.booleans())
moments = st.one_of(
    st.datetimes(timezones=zones, allow_imaginary=True),
    st.dates(),
    st.times(timezones=zones),
    st.timedeltas(),
)
members = st.one_of(
    st.sampled_from([*Colour, *Level, *Word]),
    st.sampled_from([Permission.READ, Permission.READ | Permission.WRITE, Permission.RUN]),
)
paths = st.lists(st.text("ab.", min_size=1, max_size=3), max_size=3).map(lambda parts: PurePosixPath(*parts))
networks = st.one_of(st.ip_addresses(), st.ip_addresses().map(ip_network), st.ip_addresses().map(ip_interface))
ranges = st.builds(range, st.integers(), st.integers(), st.integers().filter(bool))
patterns = st.builds(lambda text, flags: re.compile(re.escape(text), flags), text, st.sampled_from([0, 2, 8]))
rare = st.one_of(networks, ranges, patterns, zones, st.fractions(), st.complex_numbers())
scalars = st.one_of(st.none(), numbers, text, st.binary(max_size=20), moments, st.uuids(), members, paths, rare)
keys = st.recursive(
    scalars.filter(lambda value: "nan" not in repr(value).lower()),  # equal to nothing, so it is no use as a key
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(tuple),
        st.frozensets(inner, max_size=2),
        st.builds(Point, inner),
    ),
    max_leaves=3,
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(clean_text, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=4),
        st.frozensets(keys, max_size=4),
        st.builds(deque, st.lists(inner, max_size=4), st.sampled_from([None, 4, 9])),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.dictionaries(keys, inner, max_size=3).map(lambda items: defaultdict(list, items)),
        st.dictionaries(keys, inner, max_size=3).map(Counter),
        _objects(inner),
    )


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(Note, text, inner),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(lambda name, data: Event(name=name, data=data), text, inner),
        st.builds(lambda role, content: Message(role=role, content=content), clean_text, inner),
        st.dictionaries(st.from_regex(r"\Ax_[a-z]+\Z"), inner, max_size=2).map(Open.model_validate),
    )


values = st.recursive(scalars, _containers, max_leaves=12)
