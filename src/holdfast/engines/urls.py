"""From a URL to an engine. The package of an engine is imported when its URL is used."""

from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.records.errors import ConfigurationError, missing_extra
from holdfast.records.urls import redacted, well_formed

if TYPE_CHECKING:
    from holdfast.engines.engine import ServingEngine

MODULES = {"temporal": "holdfast.engines.temporal", "restate": "holdfast.engines.restate"}


class Place(msgspec.Struct, frozen=True):
    """The parts of an engine's URL."""

    kind: str
    host: str
    port: int | None
    namespace: str
    options: dict[str, str]

    def address(self, port: int) -> str:
        """Return `host:port`, with this port if the URL names none."""
        return f"{self.host}:{self.port or port}"

    def option(self, name: str, default: str) -> str:
        """Return an option of the URL."""
        return self.options.get(name) or default

    @property
    def tag(self) -> str:
        """The tag of claims: the same for all workers of an engine's namespace, whatever they call its host."""
        return f"{self.kind}-{blake2b(self.namespace.encode(), digest_size=4).hexdigest()}"


def place_of(url: str) -> Place:
    """Return the parts of a URL; `ConfigurationError` if it names no engine."""
    kind = url.partition(":")[0]
    if kind not in MODULES or "://" not in url:
        known = "temporal://host:7233/namespace?task_queue=holdfast or restate://host:8080"
        raise ConfigurationError(f"unknown engine {redacted(url)!r}: give {known}")
    parts = urlsplit(well_formed(url))
    options = dict(parse_qsl(parts.query))
    if not parts.hostname or parts.username is not None or any("@" in value for value in options.values()):
        raise ConfigurationError(f"{redacted(url).partition('?')[0]!r} must have a host, and no user or password")
    return Place(kind, parts.hostname, parts.port, unquote(parts.path.strip("/")), options)


def engine_at(url: str) -> "ServingEngine":
    """Return the engine that a URL names. It connects at its first use."""
    place = place_of(url)
    try:
        module = import_module(MODULES[place.kind])
    except ImportError as error:
        raise missing_extra(f"{place.kind}: needs a package that is not installed ({error})", place.kind) from error
    unknown = place.options.keys() - set(module.OPTIONS)
    if unknown:
        known = ", ".join(module.OPTIONS)
        raise ConfigurationError(f"unknown option {min(unknown)!r} in the URL of {place.kind}; there are: {known}")
    engine: ServingEngine = module.engine(place)
    return engine
