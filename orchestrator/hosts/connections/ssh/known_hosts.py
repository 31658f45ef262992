"""Known host keys, as `ssh` reads them: names, patterns, hashed names, `[host]:port`, `@revoked`.

paramiko's own reader keeps one key for each type and skips markers and patterns, so a revoked key would pass
for an unknown one. Lines for certificate authorities (`@cert-authority`) are not used: paramiko cannot check
host certificates, and an unchecked certificate is not trusted.
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
_REVOKED = "@revoked"
_PLAIN_FIELDS = 3


class Verdict(Enum):
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
    """One line of a file.

    Attributes:
        key: None if it is not in base 64; `ssh` skips such a line too.
        where: `file:line`, for messages.
    """

    names: tuple[str, ...]
    key: HostKey | None
    revoked: bool
    where: str


def host_name(host: str, port: int) -> str:
    """The name of a host in the files: `[host]:port` unless the port is 22."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


def parse(text: str, file: str) -> tuple[KnownKey, ...]:
    """Read a known hosts file; lines that cannot be parsed are skipped, as with `ssh`."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else None
        if len(fields) < _PLAIN_FIELDS or fields[0].startswith("#") or marker not in (None, _REVOKED):
            continue
        try:
            key = HostKey(kind=fields[1], blob=base64.b64decode(fields[2], validate=True))
        except ValueError:  # also of text that is not ASCII
            key = None
        found.append(
            KnownKey(
                names=tuple(fields[0].split(",")),
                key=key,
                revoked=marker == _REVOKED,
                where=f"{file}:{number}",
            )
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


def for_host(keys: Iterable[KnownKey], name: str) -> tuple[KnownKey, ...]:
    """The lines that name this host."""
    return tuple(known for known in keys if _speaks_of(known.names, name.lower()))


def judge(keys: Iterable[KnownKey], shown: HostKey) -> Verdict:
    """The verdict of one host's lines on the key it has shown; a revocation takes precedence."""
    lines = tuple(keys)
    if any(line.revoked and line.key == shown for line in lines):
        return Verdict.REVOKED
    trusted = [line.key for line in lines if line.key is not None and not line.revoked]
    if shown in trusted:
        return Verdict.TRUSTED
    return Verdict.CHANGED if trusted else Verdict.UNKNOWN


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
