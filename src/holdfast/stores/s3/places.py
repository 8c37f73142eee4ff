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
"""Where obstore looks for an endpoint that it was not told."""
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
KINDS: dict[type, str] = {S3Store: "s3", GCSStore: "gs", AzureStore: "az"}
MALFORMED = "a bracket or a character in it is malformed; a bucket is named as s3://bucket/prefix"
_PLAIN = re.compile(r"http://(?:[^/@]*@)?(\[[^\]]*\]|[^/:]*)")
OPTIONS = {"endpoint", "region", "allow_http"}


class Place(NamedTuple):
    """A bucket, and how to speak of it."""

    bucket: Bucket
    kind: str
    name: str
    endpoint: str = ""
    """Empty for the service's own."""

    @property
    def is_cloud(self) -> bool:
        """True if it is at one of the three clouds themselves."""
        return not self.endpoint and self.kind in KINDS.values()

    @property
    def transport(self) -> str:
        """How objects travel there: by HTTPS, which always checks the server, unless the endpoint says http."""
        plain = _PLAIN.match(self.endpoint)
        if self.kind not in KINDS.values():
            return LOCAL
        return transport([plain[1].strip("[]")], "no TLS (http:)") if plain else VERIFIED

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}" + (f" at {redacted(self.endpoint)}" if self.endpoint else "")


def place_of(
    source: Source, *, endpoint: str | None, region: str | None, allow_http: bool, timeout: float = TIMEOUT_SECONDS
) -> Place:
    """The bucket of a URL; one of obstore's is taken as it is."""
    if not isinstance(source, str):
        return _given(source)
    try:
        parts = urlsplit(source)
    except ValueError:  # its text holds what may be a password
        raise ConfigurationError(f"{redacted(source)!r} is not a well-formed URL of a bucket") from None
    if not parts.netloc or {"@", ":"} & set(parts.netloc):  # no bucket has such a name, but a password may
        raise ConfigurationError(
            f"{redacted(source)!r}: a bucket is named as {parts.scheme}://bucket/prefix; credentials come from the"
            " environment"
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
            raise ConfigurationError(f"{shown!r}: {parts.scheme}:// takes its settings from the environment alone")
        return _other(parts.scheme, parts.netloc, unquote(parts.path).strip("/"), client)
    except (BaseError, ValueError) as error:
        raise ConfigurationError(f"{redacted(source)!r} cannot be used: {_first_line(error)}") from error


def _options(url: str, query: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    if options.keys() - OPTIONS:  # not named: where a password has an &, the rest of it looks like an option
        raise ConfigurationError(f"{redacted(url)!r} has an unknown option; there are {', '.join(sorted(OPTIONS))}")
    return options


def _s3(
    bucket: str, prefix: str, endpoint: str | None, region: str | None, client: "ClientConfig", *, allow_http: bool
) -> Place:
    endpoint = (endpoint or _endpoint_around("s3")).rstrip("/")
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
    return Place(store, scheme, _joined(bucket, prefix), _endpoint_around(scheme))


def _no_retries() -> "RetryConfig":
    """Attempts are repeated by us: only we know whether the outcome of one matters."""
    return {"max_retries": 0}


def _given(bucket: Bucket) -> Place:
    kind = next((word for known, word in KINDS.items() if isinstance(bucket, known)), type(bucket).__name__)
    config: dict[str, Any] = getattr(bucket, "config", None) or {}
    name = str(config.get("bucket") or config.get("container_name") or "")
    endpoint = str(config.get("endpoint") or _endpoint_around(kind))
    return Place(bucket, kind, _joined(name, str(getattr(bucket, "prefix", None) or "")), endpoint)


def _joined(bucket: str, prefix: str) -> str:
    return f"{bucket}/{prefix}" if prefix else bucket


def _endpoint_around(kind: str) -> str:
    return _from_environment(ENDPOINT_VARIABLES.get(kind, ()))


def _from_environment(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    is_url = endpoint.startswith(("http://", "https://"))
    parts = urlsplit(well_formed(endpoint) if is_url else "")
    if "@" in parts.netloc:
        raise ConfigurationError(f"endpoint={redacted(endpoint)!r}: credentials come from the environment")
    if not parts.hostname:
        raise ConfigurationError(f"endpoint={redacted(endpoint)!r}: a URL such as https://s3.example.org")
    if parts.scheme == "http" and not (allow_http or is_local(parts.hostname)):
        raise ConfigurationError(
            f"endpoint={redacted(endpoint)!r} is not encrypted, and not on this machine: use https, or allow_http=True"
        )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
