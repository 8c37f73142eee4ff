"""What a conformance kit is: small test methods, each the proof of one promise, with or without pytest.

A method's name begins with `test_`, and its docstring is the promise. What cannot be tried on a store raises
`unittest.SkipTest`, which pytest understands too.
"""

from typing import Any
from unittest import SkipTest

from holdfast.records.errors import ConfigurationError
from holdfast.stores.backend import Backend


class Kit:
    """Subclass a kit, give it `backend`, and `reopen` if anything survives a close; then run it with pytest."""

    _opened: list[Backend]

    def backend(self) -> Backend:
        """A new backend on a new, empty place, not yet open."""
        raise NotImplementedError("a conformance kit needs backend(): a new backend on an empty place")

    def reopen(self, backend: Backend) -> Backend:
        """Another backend on the same place, as another process would make it; the given one may still be open."""
        raise SkipTest(f"nothing of a {backend.kind} store can be opened again")

    def setup_method(self) -> None:
        """Begin a test. Called by pytest, and by `run`."""
        self._opened = []

    def teardown_method(self) -> None:
        """End a test: close what it opened."""
        for backend in reversed(self._opened):
            backend.close()

    def opened(self) -> Backend:
        """A new backend, open, closed at the end of the test."""
        return self._keep(self.backend())

    def reopened(self, backend: Backend) -> Backend:
        """A second backend on the place of the first, open, closed at the end of the test."""
        return self._keep(self.reopen(backend))

    def _keep(self, backend: Backend) -> Backend:
        self._opened.append(backend)
        backend.open()
        return backend


def promises(kit: type[Kit]) -> list[str]:
    """The names of a kit's test methods, in order."""
    return sorted(name for name in dir(kit) if name.startswith("test_"))


def run(kit: type[Kit], *arguments: Any) -> int:
    """Try every promise of a kit without pytest; AssertionError at the first that is broken. Returns their number.

    Promises that do not apply (nothing survives a close) are not counted.
    """
    if not __debug__:
        raise ConfigurationError(
            "python -O removes the assertions that a conformance kit is made of; run it without -O"
        )
    return sum(_holds(kit(*arguments), name) for name in promises(kit))


def _holds(kit: Kit, name: str) -> bool:
    test = getattr(kit, name)
    promise = " ".join((test.__doc__ or name).split())
    kit.setup_method()
    try:
        test()
    except SkipTest:
        return False
    except Exception as error:
        raise AssertionError(f"broken promise: {promise} ({name}: {error!r})") from error
    finally:
        kit.teardown_method()
    return True
