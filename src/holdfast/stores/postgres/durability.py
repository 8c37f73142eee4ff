"""The durability of an acknowledged commit, read from the server's own settings."""

from typing import NamedTuple

from holdfast.records.errors import ConfigurationError
from holdfast.records.reports import Guarantee
from holdfast.records.words import Durability

LEVELS = list(Durability)
REPLICATING = {"on", "remote_apply"}


class Settings(NamedTuple):
    """The settings that decide, as the server reports them to one of our sessions."""

    server_version: str
    synchronous_commit: str
    fsync: str
    full_page_writes: str
    synchronous_standby_names: str
    logged: bool | None

    @property
    def faults(self) -> list[str]:
        """Return the changes that `durable` needs."""
        wanted = {
            "fsync = on": self.fsync == "on",
            "full_page_writes = on": self.full_page_writes == "on",
            "synchronous_commit = on": self.synchronous_commit != "off",
            "ALTER TABLE ... SET LOGGED for this schema's tables": self.logged is not False,
        }
        return [change for change, is_so in wanted.items() if not is_so]

    @property
    def replication_faults(self) -> list[str]:
        """Return the changes that `replicated` needs."""
        wanted = {
            "synchronous_commit = on": self.synchronous_commit in REPLICATING,
            "synchronous_standby_names = 'ANY 1 (...)'": bool(self.synchronous_standby_names),
        }
        return [*self.faults, *(change for change, is_so in wanted.items() if not is_so)]

    @property
    def level(self) -> Durability:
        """Return the effective level."""
        if self.faults:
            return Durability.PROCESS
        return Durability.DURABLE if self.replication_faults else Durability.REPLICATED

    def check(self, wanted: Durability) -> None:
        """Raise `ConfigurationError`, with what to change, if the server is less durable than wanted."""
        if LEVELS.index(self.level) >= LEVELS.index(wanted):
            return
        changes = self.replication_faults if wanted == Durability.REPLICATED else self.faults
        raise ConfigurationError(
            f"this PostgreSQL server cannot be {wanted}, only {self.level}: set {', '.join(dict.fromkeys(changes))},"
            f" or open the store with durability={self.level.value!r}"
        )

    def guarantee(self, store: str, transport: str) -> Guarantee:
        """Return the report of the level, and of how commits travel to the server."""
        details = {name: str(value) for name, value in self._asdict().items() if name != "logged"}
        details["transport"] = transport
        return Guarantee(level=self.level, store=store, details=details)
