"""Read a stored snapshot: check its version, upgrade it, then check its content."""

from collections.abc import Mapping
from typing import Any

from holdfast.records.errors import ConfigurationError, Corrupt, IncompatibleCheckpoint
from holdfast.records.loop import Snapshot
from holdfast.records.shown import kind_of
from holdfast.runtimes.loop.options import LoopTerms


def loaded(found: Any, terms: LoopTerms, where: str) -> Snapshot:
    """Return the snapshot, upgraded to this program's version.

    `IncompatibleCheckpoint` if no migration leads from its version, `Corrupt` if it is not a snapshot.
    """
    fields = found.to_dict() if isinstance(found, Snapshot) else found
    if not isinstance(fields, Mapping):
        raise Corrupt(f"{where} holds {kind_of(fields)}, not the snapshot of a loop", record="snapshot")
    try:
        return Snapshot.from_dict(_upgraded(dict(fields), terms, where))
    except Corrupt as error:
        raise Corrupt(f"{where}: {error}", record="snapshot") from error


def _upgraded(fields: dict[str, Any], terms: LoopTerms, where: str) -> dict[str, Any]:
    found = fields.get("version")
    if type(found) is not int:
        raise Corrupt(f"`version` must be an int, got {found!r}", record="snapshot")
    while (version := fields["version"]) != terms.version:
        upgrade = terms.migrations.get(version) if version < terms.version else None
        if upgrade is None:
            advice = f"pass migrations={{{version}: function}} to upgrade it, or " if version < terms.version else ""
            raise IncompatibleCheckpoint(
                f"{where} holds a checkpoint of version {found}, but this program reads version {terms.version};"
                f" {advice}resume it with the program that wrote it"
            )
        made = upgrade(dict(fields))
        if not isinstance(made, Mapping):
            raise ConfigurationError(f"`migrations[{version}]` must return a dict, got {type(made).__name__}")
        fields = {**made, "version": version + 1}
    return fields
