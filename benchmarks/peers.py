"""Who else takes part. A peer's package is imported when it is opened, so a missing one is a row with a reason."""

from __future__ import annotations

from importlib import metadata

from benchmarks.contender import AwaitableSaver, Saver
from benchmarks.peer_agent_framework import AgentFrameworkSaver
from benchmarks.peer_langgraph import LanggraphSaver
from benchmarks.peer_techrevati import TechrevatiSaver
from benchmarks.peer_triage import TriageSaver

_PACKAGES = (
    "triage-agent",
    "absurd-sdk",
    "techrevati-runtime",
    "agent-framework-core",
    "dbos",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
)


def savers_of_peers() -> list[Saver | AwaitableSaver]:
    """A fresh saver of each peer."""
    return [TriageSaver(), TechrevatiSaver(), AgentFrameworkSaver(), LanggraphSaver()]


def versions() -> dict[str, str]:
    """The installed versions of the peers."""
    return {package: _version(package) for package in _PACKAGES}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
