"""Which Holdfast store is measured: kind of store, durability, compression; and what the tables call it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contender import POWER_LOSS, PROCESS_CRASH


@dataclass(frozen=True)
class StoreOptions:
    kind: str = "sqlite"
    level: str = "durable"
    compress: bool = True

    @property
    def durability(self) -> str:
        return POWER_LOSS if self.level == "durable" else PROCESS_CRASH

    @property
    def label(self) -> str:
        plain = "" if self.compress else ", compress=False"
        return f"{'SQLite' if self.kind == 'sqlite' else self.kind} {self.level}{plain}"

    def url(self, directory: Path) -> str:
        if self.kind == "memory":
            return "memory:"
        return f"{self.kind}:{directory / 'holdfast'}{'.db' if self.kind == 'sqlite' else ''}"

    def open_blocking(self, directory: Path) -> Any:
        import holdfast.sync

        return holdfast.sync.open(self.url(directory), **self._keywords())

    def open_awaitable(self, directory: Path) -> Any:
        import holdfast

        return holdfast.open(self.url(directory), **self._keywords())

    def _keywords(self) -> dict[str, Any]:
        return {"durability": None if self.kind == "memory" else self.level, "compress": self.compress}


def every_option() -> list[StoreOptions]:
    """Both stores, both levels, with and without compression."""
    return [
        StoreOptions(kind, level, compress)
        for kind in ("sqlite", "file")
        for level in ("durable", "process")
        for compress in (True, False)
    ]


def default_options() -> list[StoreOptions]:
    """Both stores at both levels, as they come."""
    return [options for options in every_option() if options.compress]
