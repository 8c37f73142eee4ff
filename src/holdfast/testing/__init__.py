"""Test tools for users of Holdfast. `import holdfast` loads none of them.

`crash_everywhere` tests an agent, `conformance` tests a backend or a whole store, `faults` makes a backend fail at
chosen calls, and `plugin` has fixtures for pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.crash import CrashReport, Scenario, crash_everywhere, enumerate_crashes
    from holdfast.testing.crash_ports import CrashPorts, Life

_LATER = {
    "CrashPorts": "holdfast.testing.crash_ports",
    "CrashReport": "holdfast.testing.crash",
    "Life": "holdfast.testing.crash_ports",
    "Scenario": "holdfast.testing.crash",
    "crash_everywhere": "holdfast.testing.crash",
    "enumerate_crashes": "holdfast.testing.crash",
}


def __getattr__(name: str) -> Any:
    """Load a name on first use: pytest imports this package for its plugin in every project."""
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


__all__ = ["CrashPorts", "CrashReport", "Life", "Scenario", "crash_everywhere", "enumerate_crashes"]
