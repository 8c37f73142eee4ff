"""A class that this program does not know: as if it had not imported the module that registers it."""

from typing import Any

import pytest

from holdfast.codec import registry


def forget(cls: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a class out of the registry until the end of the test."""
    entry = registry._by_class[cls]
    tables: list[dict[Any, Any]] = [registry._by_class, registry._by_name, registry._aliases]
    for table in tables:
        for key in [key for key, each in table.items() if each is entry]:
            monkeypatch.delitem(table, key)
