"""What the servers are set to, and what that is worth: read from their own settings, never assumed."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.records.errors import ConfigurationError, StoreUnavailable
from holdfast.records.words import Durability
from holdfast.stores.redis.errors import REFUSALS

OLDEST = 6
SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy")
REMEDY = "redis-cli CONFIG SET appendonly yes, then CONFIG SET appendfsync always (and the same in redis.conf)"
RANKS = tuple(Durability)


class Said(NamedTuple):
    """What one server says: its settings, None where it does not let us ask, and its state."""

    settings: Mapping[str, str] | None
    info: Mapping[str, str]


def level_of(said: Said, replicas: int, assumed: Durability | None) -> Durability:
    """What an acknowledged write survives on this server."""
    if said.settings is None:
        return Durability.NONE if assumed is None else assumed
    settings = said.settings
    if settings.get("appendonly") != "yes":
        return Durability.NONE
    if settings.get("appendfsync") != "always" or settings.get("no-appendfsync-on-rewrite") == "yes":
        return Durability.PROCESS
    return Durability.REPLICATED if replicas else Durability.DURABLE


def check_server(said: Said, wanted: Durability, replicas: int, assumed: Durability | None) -> Durability:
    """The level, if it is what was asked for at least. Refuses a server that loses data, or cannot take any."""
    info = said.info
    version = info.get("valkey_version") or info.get("redis_version", "0")
    if int(version.partition(".")[0]) < OLDEST:
        raise ConfigurationError(f"Redis {version} is too old; Redis 6 or Valkey is needed")
    if info.get("role", "master") != "master":
        raise StoreUnavailable(REFUSALS["READONLY"])
    if info.get("aof_last_write_status", "ok") != "ok":
        raise StoreUnavailable("Redis cannot write its append-only file; see its log, and its disk")
    policy = (said.settings or {}).get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise ConfigurationError(
            f"this Redis evicts keys when its memory is full (maxmemory-policy {policy}), and with them acknowledged"
            " saves; CONFIG SET maxmemory-policy noeviction, or use a server of its own"
        )
    level = level_of(said, replicas, assumed)
    if RANKS.index(level) < RANKS.index(wanted):
        raise ConfigurationError(_refusal(said, wanted, level))
    return min(level, wanted, key=RANKS.index)


def _refusal(said: Said, wanted: Durability, level: Durability) -> str:
    if said.settings is None:
        return (
            f"this Redis does not let us read its settings (CONFIG GET), so {wanted} cannot be checked; if it writes"
            f" an append-only file with appendfsync always, say so with assume={wanted.value!r}"
        )
    if wanted == Durability.REPLICATED and level == Durability.DURABLE:
        return "replicated needs replicas=1 or more: how many replicas must have a write before it is acknowledged"
    shown = ", ".join(f"{name} {value}" for name, value in said.settings.items() if name != "maxmemory-policy")
    if wanted == Durability.PROCESS:
        return f"this Redis keeps no append-only file ({shown}); CONFIG SET appendonly yes, or durability='none'"
    remedy = REMEDY
    if said.settings.get("no-appendfsync-on-rewrite") == "yes":
        remedy += ", and CONFIG SET no-appendfsync-on-rewrite no"
    offer = "; or ask for durability='process'" if level == Durability.PROCESS else ""
    return f"this Redis is not {wanted.value} as it is set ({shown}): {remedy}{offer}"
