"""URLs and connection strings without credentials: every error that shows one calls `redacted`."""

import re

from holdfast.records.errors import ConfigurationError

HIDDEN = "***"
_USER = r"(?:[^/?#\[\]%]|%[0-9A-Fa-f]{2})*"
_HOST = r"(?:\[[0-9A-Za-z:.%]*\]|[\w.~%-]*)(?::[0-9]*)?"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")
# An @ before the first option can only be the end of a password that was not percent-encoded.
_QUERY = r"[?#](?![^=]*@).*"
_PLACE = re.compile(
    rf"//(?P<user>{_USER}@)?(?P<hosts>{_HOST}(?:,{_HOST})*(?:/[^?#@]*)?)(?P<query>{_QUERY})?", re.DOTALL
)
_PAIR = re.compile(r"\s*(\w+)\s*=")
_PARAMETERS = {"host", "hostaddr", "port", "dbname", "user", "password", "service", "sslmode", "options"}
_CREDENTIALS = re.compile(r":.*@|password|secret", re.DOTALL | re.IGNORECASE)


def redacted(text: str) -> str:
    """Return the text without user, password and options. A plain path stays as it is.

    Of a malformed URL only the scheme is left, since it is unclear where its password ends.
    """
    pair = _PAIR.match(text)
    if pair is not None and (pair[1] in _PARAMETERS or "password" in text):
        return f"{pair[1]}={HIDDEN}"
    scheme, colon, rest = text.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        return HIDDEN if seems_mistyped(text) else text
    if not rest.startswith("//"):
        return f"{scheme}:{HIDDEN}" if "@" in rest or _CREDENTIALS.search(rest) else text
    parts = _PLACE.fullmatch(rest)
    if parts is None:
        return f"{scheme}://{HIDDEN}"
    user, query = parts["user"], parts["query"]
    return f"{scheme}://{f'{HIDDEN}@' if user else ''}{parts['hosts']}{f'?{HIDDEN}' if query else ''}"


def seems_mistyped(text: str) -> bool:
    """True for a path that was meant as a URL with a password, such as `redis//user:password@host`."""
    return "//" in text and re.search(r"//.*:.*@", text, re.DOTALL) is not None


def well_formed(url: str) -> str:
    """Return the URL with every @ in its password percent-encoded; raise `ConfigurationError` if it is malformed.

    Drivers parse a malformed URL in different ways, and show parts of its password in their errors.
    """
    scheme, _, rest = url.partition(":")
    parts = _PLACE.fullmatch(rest)
    if parts is None or not _can_be_split(url):
        raise ConfigurationError(
            f"{redacted(url)!r} is malformed: percent-encode / ? # [ ] and % in its user name and password"
            " (%2F for /), and write the port as a number"
        )
    user = parts["user"] or ""
    return f"{scheme}://{user[:-1].replace('@', '%40')}{user[-1:]}{rest[2 + len(user) :]}"


def _can_be_split(url: str) -> bool:
    """False if `urlsplit` refuses it, e.g. for a character that normalizes to / or @. Its error shows the password."""
    from urllib.parse import urlsplit

    try:
        urlsplit(url)
    except ValueError:
        return False
    return True
