"""The address of an OpenAI-compatible server, and what proves who asks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from dynosim.hardware_models.errors import UserError

_LONGEST = 200
"""Characters of a server's text that a message quotes."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where requests go. ``headers`` may be secrets: they are neither shown nor written."""

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(
        cls, url: str, *, api_key_env: str | None = None, header_env: str | None = None
    ) -> Endpoint:
        """Returns the endpoint at ``url``, with or without ``/v1``.

        The API key, and further headers as ``Name: value`` lines, are the content of environment
        variables. Raises UserError for an address with a user, password or query, for variables
        that are not set, and for lines that are no headers.
        """
        headers = {} if header_env is None else _headers(header_env)
        if api_key_env is not None:
            headers["Authorization"] = f"Bearer {_key(api_key_env)}"
        return cls(base_url=_base_url(url), headers=headers)

    def url(self, path: str) -> str:
        """Returns the address of a path such as ``/v1/models``."""
        return self.base_url + path

    def quote(self, text: str) -> str:
        """Returns a server's words on one line, cut short, without secrets."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "***")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"

    def _secrets(self) -> set[str]:
        words = {word for value in self.headers.values() for word in (value, *value.split())}
        return words - {"Bearer", "Basic", ""}

    def notes(self) -> list[str]:
        """Returns what a reader should know of the way to the server."""
        parts = urlsplit(self.base_url)
        if self.headers and parts.scheme == "http" and parts.hostname not in _LOCAL:
            return ["keys went to the server unencrypted: its address is http, not https"]
        return []


def redacted(url: str) -> str:
    """Returns an address without user, password, query and fragment."""
    bare = re.sub(r"//[^/@]*@", "//***@", url)
    return re.sub(r"[?#].*", "?***", bare)


def _base_url(url: str) -> str:
    problem = _problem(url)
    if problem is not None:
        raise UserError(
            f"{redacted(url)}: {problem}", where="--url", hint="for example http://localhost:8000"
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port_is_sound = parts.port != 0
    except ValueError as error:
        return redacted(str(error))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "not an http or https address"
    if not port_is_sound:
        return "port 0 is nobody's"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "an address with a user, password or query; keys come from environment variables"
    return None


def _headers(variable: str) -> dict[str, str]:
    found = {}
    for number, line in enumerate(_content(variable).splitlines(), 1):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not _HEADER_NAME.fullmatch(name) or not value.isprintable():
            raise UserError(
                "not a header", where=f"{variable}, line {number}", hint="allowed: Name: value"
            )
        found[name] = value
    return found


def _key(variable: str) -> str:
    value = _content(variable)
    if not value.isprintable():
        raise UserError("a key of several lines", where=variable)
    return value


def _content(variable: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise UserError(
            f"the environment variable {variable} is not set",
            hint=f"set it first: export {variable}=…",
        )
    return value
