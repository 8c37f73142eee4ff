"""What a reader needs to know about the machine, and nothing that tells whose it is."""

from __future__ import annotations

import os
import platform
import sqlite3
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from benchmarks import peers


def facts(scratch: Path) -> dict[str, str]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processors": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{_memory_bytes() / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}, {_file_system(scratch)}",
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "Holdfast": metadata.version("holdfast"),
        "ormsgpack": metadata.version("ormsgpack"),
        "peers": ", ".join(f"{name} {version}" for name, version in peers.versions().items()),
    }


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _file_system(directory: Path) -> str:
    """The type of the file system that the benchmark writes to: on tmpfs a sync costs nothing, and means nothing."""
    mounts = [line.split() for line in _lines("/proc/mounts")]
    holding = [mount for mount in mounts if directory.resolve().is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[1]))[2] if holding else "unknown file system"


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
