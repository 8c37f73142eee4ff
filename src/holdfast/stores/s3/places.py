"""From a URL to a bucket: `s3://bucket/prefix?endpoint=…&region=…`, `gs://bucket/prefix`, `az://container/prefix`.

Credentials are never in a URL: they come from the environment, as for every client of these services.
"""

import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from holdfast.records.errors import ConfigurationError
from holdfast.records.urls import redacted, well_formed
from holdfast.stores.transport import LOCAL, VERIFIED, is_local, transport

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

Bucket: TypeAlias = S3Store | GCSStore | AzureStore | MemoryStore
Source: TypeAlias = str | Bucket

TIMEOUT_SECONDS = 30.0
DEFAULT_REGION = "us-east-1"
ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Where obstore looks for an endpoint that it was not given."""
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
KINDS: dict[type, str] = {S3Store: "s3", GCSStore: "gs", AzureStore: "az"}
_PLAIN = re.compile(r"http://(?:[^/@]*@)?(\[[^\]]*\]|[^/:]*)")
OPTIONS = {"endpoint", "region", "allow_http"}


class Place(NamedTuple):
    """A bucket, with its name for messages."""

    bucket: Bucket
    kind: str
    name: str
    endpoint: str = ""
    """Empty for the service's own."""

    @property
    def is_cloud(self) -> bool:
        """True if it is at one of the three clouds, not at another endpoint."""
        return not self.endpoint and self.kind in KINDS.values()

    @property
    def transport(self) -> str:
        """How objects travel: by HTTPS, which always verifies the server, unless the endpoint begins with http."""
        plain = _PLAIN.match(self.endpoint)
        if self.kind not in KINDS.values():
            return LOCAL
        return transport([plain[1].strip("[]")], "no TLS (http:)") if plain else VERIFIED

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}" + (f" at {redacted(self.endpoint)}" if self.endpoint else "")


def place_of(
    source: Source, *, endpoint: str | None, region: str | None, allow_http: bool, timeout: float = TIMEOUT_SECONDS
) -> Place:
    """Return the bucket of a URL; an obstore store is taken as it is."""
    if not isinstance(source, str):
        return _given(source)
    try:
        parts = urlsplit(source)
    except ValueError:  # its text may contain a password
        raise ConfigurationError(
            f"{redacted(source)!r} is not a valid URL; give a bucket as s3://bucket/prefix"
        ) from None
    if not parts.netloc or {"@", ":"} & set(parts.netloc):  # no bucket has such a name, but a password may
        raise ConfigurationError(
            f"{redacted(source)!r} does not name a bucket; write {parts.scheme}://bucket/prefix, and give credentials"
            " in the environment"
        )
    options = _options(source, parts.query)
    endpoint = endpoint or options.get("endpoint")
    allow_http = allow_http or options.get("allow_http", "").lower() in {"1", "true"}
    client: ClientConfig = {"timeout": timedelta(seconds=timeout), "connect_timeout": timedelta(seconds=5)}
    try:
        if parts.scheme == "s3":
            region = region or options.get("region")
            return _s3(parts.netloc, unquote(parts.path).strip("/"), endpoint, region, client, allow_http=allow_http)
        if endpoint or region or options:
            shown = redacted(source)
            raise ConfigurationError(f"{shown!r}: {parts.scheme}:// takes its settings from the environment only")
        return _other(parts.scheme, parts.netloc, unquote(parts.path).strip("/"), client)
    except (BaseError, ValueError) as error:
        raise ConfigurationError(f"{redacted(source)!r} cannot be used: {_first_line(error)}") from error


def _options(url: str, query: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    if options.keys() - OPTIONS:  # not shown: the rest of a password with an & looks like an option
        raise ConfigurationError(f"{redacted(url)!r} has an unknown option; valid: {', '.join(sorted(OPTIONS))}")
    return options


def _s3(
    bucket: str, prefix: str, endpoint: str | None, region: str | None, client: "ClientConfig", *, allow_http: bool
) -> Place:
    endpoint = (endpoint or _default_endpoint("s3")).rstrip("/")
    config: S3Config = {"region": region or _from_environment(REGION_VARIABLES) or DEFAULT_REGION}
    if endpoint:
        _check_endpoint(endpoint, allow_http=allow_http)
        config["endpoint"], config["virtual_hosted_style_request"] = endpoint, False
        client["allow_http"] = endpoint.startswith("http:")
    store = S3Store(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=_no_retries())
    return Place(store, "s3", _joined(bucket, prefix), endpoint)


def _other(scheme: str, bucket: str, prefix: str, client: "ClientConfig") -> Place:
    kind = GCSStore if scheme == "gs" else AzureStore
    store = kind(bucket, prefix=prefix or None, client_options=client, retry_config=_no_retries())
    return Place(store, scheme, _joined(bucket, prefix), _default_endpoint(scheme))


def _no_retries() -> "RetryConfig":
    """Turn obstore's retries off: the client retries, since it knows whether the outcome of an attempt matters."""
    return {"max_retries": 0}


def _given(bucket: Bucket) -> Place:
    kind = next((word for known, word in KINDS.items() if isinstance(bucket, known)), type(bucket).__name__)
    config: dict[str, Any] = getattr(bucket, "config", None) or {}
    name = str(config.get("bucket") or config.get("container_name") or "")
    endpoint = str(config.get("endpoint") or _default_endpoint(kind))
    return Place(bucket, kind, _joined(name, str(getattr(bucket, "prefix", None) or "")), endpoint)


def _joined(bucket: str, prefix: str) -> str:
    return f"{bucket}/{prefix}" if prefix else bucket


def _default_endpoint(kind: str) -> str:
    return _from_environment(ENDPOINT_VARIABLES.get(kind, ()))


def _from_environment(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    is_url = endpoint.startswith(("http://", "https://"))
    parts = urlsplit(well_formed(endpoint) if is_url else "")
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"`endpoint` must not contain credentials, got {redacted(endpoint)!r}; give them in the environment"
        )
    if not parts.hostname:
        raise ConfigurationError(f"`endpoint` must be a URL such as https://s3.example.org, got {redacted(endpoint)!r}")
    if parts.scheme == "http" and not (allow_http or is_local(parts.hostname)):
        raise ConfigurationError(
            f"`endpoint` must use https unless it is on this machine, got {redacted(endpoint)!r}; use https, or pass"
            " allow_http=True"
        )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
