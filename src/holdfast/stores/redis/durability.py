"""The durability that a server gives, read from its own settings, never assumed."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.records.errors import ConfigurationError, StoreUnavailable
from holdfast.records.words import Durability
from holdfast.stores.redis.errors import REFUSALS

OLDEST = 6
SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy")
REMEDY = "redis-cli CONFIG SET appendonly yes, then CONFIG SET appendfsync always (and the same in redis.conf)"
RANKS = tuple(Durability)


class ServerFacts(NamedTuple):
    """The settings of one server, None if they are not readable, and its state."""

    settings: Mapping[str, str] | None
    info: Mapping[str, str]


def level_of(facts: ServerFacts, replicas: int, assumed: Durability | None) -> Durability:
    """Return what an acknowledged write survives on this server."""
    if facts.settings is None:
        return Durability.NONE if assumed is None else assumed
    settings = facts.settings
    if settings.get("appendonly") != "yes":
        return Durability.NONE
    if settings.get("appendfsync") != "always" or settings.get("no-appendfsync-on-rewrite") == "yes":
        return Durability.PROCESS
    return Durability.REPLICATED if replicas else Durability.DURABLE


def check_server(facts: ServerFacts, wanted: Durability, replicas: int, assumed: Durability | None) -> Durability:
    """Return the level; refuse a server that is less durable than wanted, evicts keys, or takes no writes."""
    info = facts.info
    version = info.get("valkey_version") or info.get("redis_version", "0")
    if int(version.partition(".")[0]) < OLDEST:
        raise ConfigurationError(f"Redis {version} is too old; Redis 6 or Valkey is needed")
    if info.get("role", "master") != "master":
        raise StoreUnavailable(REFUSALS["READONLY"])
    if info.get("aof_last_write_status", "ok") != "ok":
        raise StoreUnavailable("Redis cannot write its append-only file; check its log and its disk")
    policy = (facts.settings or {}).get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise ConfigurationError(
            f"this Redis evicts keys, and so acknowledged saves, when its memory is full (maxmemory-policy {policy});"
            " CONFIG SET maxmemory-policy noeviction, or use another server"
        )
    level = level_of(facts, replicas, assumed)
    if RANKS.index(level) < RANKS.index(wanted):
        raise ConfigurationError(_refusal(facts, wanted, level))
    return min(level, wanted, key=RANKS.index)


def _refusal(facts: ServerFacts, wanted: Durability, level: Durability) -> str:
    if facts.settings is None:
        return (
            f"the settings of this Redis are not readable (CONFIG GET), so {wanted} cannot be checked; if it writes an"
            f" append-only file with appendfsync always, pass assume={wanted.value!r}"
        )
    if wanted == Durability.REPLICATED and level == Durability.DURABLE:
        return "replicated needs replicas=1 or more: how many replicas must have a write before it is acknowledged"
    shown = ", ".join(f"{name} {value}" for name, value in facts.settings.items() if name != "maxmemory-policy")
    if wanted == Durability.PROCESS:
        return f"this Redis keeps no append-only file ({shown}); CONFIG SET appendonly yes, or {_asking('none')}"
    remedy = REMEDY
    if facts.settings.get("no-appendfsync-on-rewrite") == "yes":
        remedy += ", and CONFIG SET no-appendfsync-on-rewrite no"
    offer = f"; or ask for {_asking(level.value)}"
    return f"this Redis is not {wanted.value} with its settings ({shown}): {remedy}{offer}"


def _asking(level: str) -> str:
    """Say how a program, and a URL, ask for a level."""
    return f"durability={level!r} (in a URL ?durability={level})"
