"""The base of conformance kits: small test methods, each for one promise, with or without pytest.

A method's name begins with `test_`, and its docstring is the promise. A kit leaves out tests that its store cannot run:
none is skipped.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.records.errors import ConfigurationError
from holdfast.stores.backend import Backend

F = TypeVar("F", bound=Callable[..., None])


def needs_reopen(test: F) -> F:
    """Mark a test that only a kit with `reopen` has."""
    test.needs = "reopen"  # type: ignore[attr-defined]
    return test


def needs_damage(test: F) -> F:
    """Mark a test that only a kit with `damage` has."""
    test.needs = "damage"  # type: ignore[attr-defined]
    return test


class Kit:
    """Subclass a kit, give it `backend`, and `reopen` if anything survives a close; then run it with pytest.

    Give it `damage` too if others can write to what the backend keeps.
    """

    _opened: list[Backend]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.backend is not Kit.backend:
            for name, test in _optional(cls).items():
                if getattr(cls, name) in {test, None}:
                    is_given = getattr(cls, test.needs) is not getattr(Kit, test.needs)
                    setattr(cls, name, test if is_given else None)

    def backend(self) -> Backend:
        """Return a new backend on a new, empty place, not yet open."""
        raise NotImplementedError("a conformance kit needs backend(): a new backend on an empty place")

    def reopen(self, backend: Backend) -> Backend:
        """Return another backend on the same place, as another process would; the given one may still be open."""
        raise NotImplementedError("without reopen() a conformance kit has no tests that need it")

    def damage(self, backend: Backend, thread: bytes) -> None:
        """Damage the stored head of this thread, beneath the backend, so that it cannot be read."""
        raise NotImplementedError("without damage() a conformance kit has no tests that need it")

    def setup_method(self) -> None:
        """Begin a test. Called by pytest, and by `run`."""
        self._opened = []

    def teardown_method(self) -> None:
        """End a test: close what it opened."""
        for backend in reversed(self._opened):
            backend.close()

    def opened(self) -> Backend:
        """Return a new, open backend; it is closed at the end of the test."""
        return self._keep(self.backend())

    def reopened(self, backend: Backend) -> Backend:
        """Return a second, open backend on the place of the first; it is closed at the end of the test."""
        return self._keep(self.reopen(backend))

    def _keep(self, backend: Backend) -> Backend:
        self._opened.append(backend)
        backend.open()
        return backend


def _optional(kit: type[Kit]) -> dict[str, Any]:
    """Return the tests that need `reopen` or `damage`, also if a subclass left them out."""
    inherited = [vars(base) for base in reversed(kit.__mro__)]
    return {name: test for names in inherited for name, test in names.items() if hasattr(test, "needs")}


def promises(kit: type[Kit]) -> list[str]:
    """Return the names of a kit's test methods, in order."""
    return sorted(name for name in dir(kit) if name.startswith("test_") and getattr(kit, name) is not None)


def run(kit: type[Kit], *arguments: Any) -> int:
    """Test every promise of a kit without pytest, and return their number; AssertionError at the first broken one."""
    if not __debug__:
        raise ConfigurationError("python -O removes the assertions of a conformance kit; run it without -O")
    for name in promises(kit):
        _try(kit(*arguments), name)
    return len(promises(kit))


def _try(kit: Kit, name: str) -> None:
    test = getattr(kit, name)
    promise = " ".join((test.__doc__ or name).split())
    kit.setup_method()
    try:
        test()
    except Exception as error:
        raise AssertionError(f"broken promise: {promise} ({name}: {error!r})") from error
    finally:
        kit.teardown_method()
