"""A registry that a test may fill: afterwards it is as before."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.codec import registry


@pytest.fixture
def registry_as_before() -> Iterator[None]:
    tables: list[dict[Any, Any]] = [registry._by_class, registry._by_name, registry._aliases, registry._migrations]
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)
