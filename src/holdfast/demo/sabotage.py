"""A disk that lies: what a store was before is put back, as if its last writes had never reached it."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.stores.locations import locate


class Snapshot:
    """The files of a store at one moment, while no process has it open."""

    def __init__(self, url: str) -> None:
        self._place = Path(locate(url)[1])
        self._copy = TemporaryDirectory(prefix="holdfast-snapshot-")
        for path in self._files():
            _copy(path, Path(self._copy.name) / path.name)

    def _files(self) -> list[Path]:
        """A SQLite store has files beside its own, whose names begin like it; a file store is a directory."""
        return list(self._place.parent.glob(f"{self._place.name}*"))

    def put_back(self) -> None:
        """Forget everything since."""
        for path in self._files():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in Path(self._copy.name).iterdir():
            _copy(path, self._place.parent / path.name)
        self._copy.cleanup()


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
