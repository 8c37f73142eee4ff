"""For those who build on Holdfast: crash tests, the kit that every store passes, faults to inject, a model to compare.

`crash_everywhere` proves an agent; `conformance` proves a backend or a whole store; `faults` fails at chosen calls;
`walk` and `model` (which needs hypothesis) drive a store at random beside a plain model; `plugin` has the fixtures for
pytest. Nothing of this is loaded by `import holdfast`.
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
    """Load what is asked for: pytest imports this package for its plugin alone, in every project."""
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


__all__ = ["CrashPorts", "CrashReport", "Life", "Scenario", "crash_everywhere", "enumerate_crashes"]
