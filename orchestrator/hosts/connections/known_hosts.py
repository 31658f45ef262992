"""Known host keys, as `ssh` reads them: names, patterns, hashed names, `[host]:port`, `@revoked`.

paramiko's own reader keeps one key for each type and skips markers and patterns, so a revoked key would pass
for an unknown one. Lines for certificate authorities (`@cert-authority`) trust no key: paramiko cannot check
host certificates. They are only named in messages.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

DEFAULT_PORT: Final = 22
_HASHED = "|1|"
_PLAIN, _REVOKED, _AUTHORITY = "", "@revoked", "@cert-authority"
_PLAIN_FIELDS = 3


class KeyVerdict(Enum):
    """The verdict of the files on a key that a host has shown."""

    TRUSTED = "trusted"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """A public key: its type as on the wire (`ssh-ed25519`) and its bytes."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it: `ssh-ed25519 SHA256:…`."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"{self.kind} SHA256:{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """One line of a file."""

    names: tuple[str, ...]
    key: HostKey | None  # None if it is not in base 64; `ssh` skips such a line too
    marker: str  # `@revoked`, `@cert-authority`, or empty
    where: str  # `file:line`, for messages

    @property
    def trusted(self) -> bool:
        """Whether a host may show this key."""
        return self.key is not None and self.marker == _PLAIN

    @property
    def revoked(self) -> bool:
        """Whether no host may show this key."""
        return self.marker == _REVOKED

    @property
    def authority(self) -> bool:
        """Whether the key signs certificates of hosts."""
        return self.marker == _AUTHORITY


def host_names(host: str, port: int, alias: str | None) -> tuple[str, ...]:
    """The names under which `ssh` looks for a host, in this order.

    A HostKeyAlias is the whole name, without a port. Else it is `[host]:port` unless the port is 22, and if
    nothing is known under that, the host alone.
    """
    if alias is not None:
        return (alias,)
    return (host,) if port == DEFAULT_PORT else (f"[{host}]:{port}", host)


def parse(text: str, file: str) -> tuple[KnownKey, ...]:
    """Read a known hosts file; lines that cannot be parsed are skipped, as with `ssh`."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else _PLAIN
        known_marker = marker in (_PLAIN, _REVOKED, _AUTHORITY)
        if len(fields) < _PLAIN_FIELDS or fields[0].startswith("#") or not known_marker:
            continue
        try:
            key = HostKey(kind=fields[1], blob=base64.b64decode(fields[2], validate=True))
        except ValueError:  # also of text that is not ASCII
            key = None
        found.append(
            KnownKey(names=tuple(fields[0].split(",")), key=key, marker=marker, where=f"{file}:{number}")
        )
    return tuple(found)


def load(files: Iterable[str]) -> tuple[KnownKey, ...]:
    """Read the files that exist.

    Raises:
        OSError: a file is there but cannot be read.
        RuntimeError: the home of a `~user` in its path is unknown.
    """
    found: list[KnownKey] = []
    for file in files:
        path = Path(file).expanduser()
        if path.is_file():
            found += parse(path.read_text(encoding="utf-8", errors="replace"), str(path))
    return tuple(found)


def for_host(keys: Iterable[KnownKey], names: Iterable[str]) -> tuple[KnownKey, ...]:
    """The lines about a host, by the first of its names under which a key of it is known."""
    lines, found = tuple(keys), tuple[KnownKey, ...]()
    for name in names:
        found += tuple(line for line in lines if line not in found and _speaks_of(line.names, name.lower()))
        if any(line.trusted for line in found):
            break
    return found


def judge(keys: Iterable[KnownKey], shown: HostKey) -> KeyVerdict:
    """The verdict of one host's lines on the key it has shown; a revocation takes precedence."""
    lines = tuple(keys)
    if any(line.revoked and line.key == shown for line in lines):
        return KeyVerdict.REVOKED
    trusted = [line.key for line in lines if line.trusted]
    if shown in trusted:
        return KeyVerdict.TRUSTED
    return KeyVerdict.CHANGED if trusted else KeyVerdict.UNKNOWN


def _speaks_of(names: Iterable[str], name: str) -> bool:
    """Whether a line's first field names the host: one pattern has to match and no negated one may."""
    matched = False
    for pattern in names:
        if pattern.startswith("!"):
            if _matches(pattern[1:], name):
                return False
        elif _matches(pattern, name):
            matched = True
    return matched


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith(_HASHED):
        return _hash_matches(pattern, name)
    # fnmatch reads [..] as a set of characters; in known hosts files these are the brackets of [host]:port.
    return fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _hash_matches(pattern: str, name: str) -> bool:
    """`|1|salt|hash`: HMAC-SHA1 of the name, see sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"."""
    salt, _, wanted = pattern.removeprefix(_HASHED).partition("|")
    try:
        digest = hmac.new(base64.b64decode(salt), name.encode(), "sha1").digest()
        return hmac.compare_digest(digest, base64.b64decode(wanted))
    except ValueError:  # also of text that is not ASCII
        return False
