"""A new cluster file: what is known of a cluster, as YAML with short comments, and its first writing."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Final

from orchestrator.config.cluster import ClusterFile, check_cluster
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError

UNNAMED: Final = "the new cluster file"
"""How faults name it: there is no file yet."""
_PLAIN: Final = re.compile(r"[A-Za-z/][\w./@+-]*(?::[\w./@+-]+)*")
_NOT_PLAIN: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What runs a node's process: `hosts.service`."""

    manager: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What the file will say; None leaves a key out."""

    name: str  # the cluster's own
    endpoints: tuple[str, ...]
    api_key: str | None = None  # a reference to it, like `password`; never a secret
    username: str | None = None
    password: str | None = None
    ca: str | None = None
    fingerprint: str | None = None
    strict: bool = True
    nodes: int | None = None
    connect: str | None = None
    ssh_user: str | None = None
    ssh_port: int | None = None
    identity: str | None = None
    known_hosts: str | None = None
    service: Service | None = None
    overrides: Mapping[str, Service] = field(default_factory=dict)  # services that differ, by node
    # what is said in comments, one each
    head: tuple[str, ...] = ()  # the first lines
    zones: tuple[str, ...] = ()  # what is known of zones
    endpoint_remarks: tuple[str, ...] = ()  # what is known of further endpoints
    service_remarks: tuple[str, ...] = ()  # what was found on hosts and what was not
    assumed: tuple[str, ...] = ()  # what was neither found nor given
    why_connect: tuple[str, ...] = ()  # why `connect` was chosen


def cluster_text(draft: Draft) -> str:
    """The text of the file."""
    return "\n".join(_lines(draft)) + "\n"


def checked(draft: Draft, *, path: Path, home: Path) -> ClusterFile:
    """The draft as the program will read it from that place.

    Raises:
        ConfigError: the program would refuse it.
    """
    return check_cluster(parse(cluster_text(draft), UNNAMED), path=path, home=home)


def require_free(path: Path) -> None:
    """See that a new file can be created there; nothing is created.

    Raises:
        ConfigError: something is there already, or no file can be created.
    """
    if path.exists() or path.is_symlink():
        raise ConfigError(
            "exists; nothing is overwritten: choose another path, or move the file away", file=str(path)
        )
    above = next(folder for folder in (*path.absolute().parents, Path("/")) if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"cannot be written: {above} is no directory", file=str(path))
    effective = os.access in os.supports_effective_ids
    if not os.access(above, os.W_OK | os.X_OK, effective_ids=effective):
        raise ConfigError(f"cannot be written: no right to write in {above}", file=str(path))


def mode_of(draft: Draft) -> int:
    """The mode of the file: all who run the program read it, unless a command line in it may hold a token."""
    references = (draft.api_key, draft.password)
    return 0o600 if any(one is not None and one.startswith("command:") for one in references) else 0o644


def write_new(path: Path, text: str, mode: int) -> None:
    """Write the file, which is not there yet, whole or not at all; folders are made.

    The text is written beside it and gets its name at the end. So a program that is killed leaves no half of
    it, and nothing that stops the next attempt. The file has the mode, whatever the umask is, and no other
    account can write to a folder that was made for it.

    Raises:
        ConfigError: it is there already, or cannot be written.
    """
    try:
        if not path.parent.is_dir():
            for folder in reversed(path.absolute().parents):
                folder.mkdir(mode=0o755, exist_ok=True)
        unnamed = path.with_name(f".new-{token_hex(8)}")
        made = os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="utf-8") as stream:  # noqa: PTH123  (of a descriptor)
            try:
                stream.write(text)
                stream.flush()
                os.fchmod(made, mode)
                os.fsync(made)
                os.link(unnamed, path)
            finally:
                unnamed.unlink()
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or error}", file=str(path)) from error


def _lines(draft: Draft) -> Iterator[str]:
    yield from _comments(draft.head)
    yield from ("", "kind: elasticsearch # OpenSearch too")
    yield from ("", "# The cluster's own name (`cluster.name`). A run is refused on any other cluster.")
    yield f"name: {scalar(draft.name)}"
    yield from ("", "# HTTP addresses of some nodes. More than one, because each node is down once in a run.")
    yield "endpoints:"
    yield from (f"  - {scalar(url)}" for url in draft.endpoints)
    yield from _comments(draft.endpoint_remarks, indent="  ")
    yield from _auth(draft)
    if draft.ca or draft.fingerprint or not draft.strict:
        yield from ("", "tls:")
    if draft.ca:
        yield f"  ca: {scalar(draft.ca)} # certificates that are trusted"
    if not draft.strict:
        yield "  strict: false # certificates of trusted authorities may break RFC 5280's rules of form"
    if draft.fingerprint:
        yield "  # SHA-256 of the only certificate that is trusted. A renewed one has another."
        yield f"  fingerprint: {json.dumps(draft.fingerprint)}"
    if draft.zones:
        yield from ("", *_comments(draft.zones))
    if draft.nodes:
        yield from ("", "expect:", f"  nodes: {draft.nodes} # with fewer nodes at its start a run is held")
    yield from _hosts(draft)


def _auth(draft: Draft) -> Iterator[str]:
    if draft.api_key or draft.username:
        yield from ("", "# References to secrets, never secrets: env:NAME, file:/path, command:…", "auth:")
    if draft.api_key:
        yield f"  api_key: {scalar(draft.api_key)}"
    elif draft.username:
        yield "  basic:"
        yield f"    username: {scalar(draft.username)}"
        yield f"    password: {scalar(draft.password or '')}"


def _hosts(draft: Draft) -> Iterator[str]:
    yield from (
        "",
        "# How the nodes' machines are reached: over SSH, at their transport addresses.",
        "hosts:",
    )
    yield from _comments(draft.service_remarks, indent="  ")
    yield from _comments(
        (f"ASSUMED, correct it if it is not so: {one}." for one in draft.assumed), indent="  "
    )
    yield from _comments(draft.why_connect, indent="  ")
    keys = {"connect": draft.connect, "user": draft.ssh_user, "identity": draft.identity}
    keys["known_hosts"] = draft.known_hosts
    yield from (f"  {key}: {scalar(value)}" for key, value in keys.items() if value)
    if draft.ssh_port:
        yield f"  port: {draft.ssh_port}"
    if not draft.ssh_user:
        yield "  # user: not named; ~/.ssh/config names it, or it is the account that runs the program"
    yield "  sudo: auto # assumed: `sudo -n`, unless the account is root"
    if draft.service:
        yield from ("  service:", *_service(draft.service, "    "))
    if draft.overrides:
        yield "  overrides:"
    for node, service in draft.overrides.items():
        yield from (f"    {scalar(node)}:", "      service:", *_service(service, " " * 8))


def _service(service: Service, indent: str) -> Iterator[str]:
    yield f"{indent}manager: {service.manager}"
    yield f"{indent}unit: {scalar(service.unit)}"


def scalar(text: str) -> str:
    """A text as a YAML value that is read as this text; in quotes where it could be read otherwise."""
    if _PLAIN.fullmatch(text) and text.isascii() and text.lower() not in _NOT_PLAIN:
        return text
    return json.dumps(text, ensure_ascii=False)


def _comments(texts: Iterable[str], indent: str = "") -> Iterator[str]:
    """Each text as comment lines: what a cluster says of itself cannot end the comment."""
    for text in texts:
        clean = "".join(one if one.isprintable() else "?" for one in text)
        for line in textwrap.wrap(clean, _WIDTH, break_long_words=False, break_on_hyphens=False):
            yield f"{indent}# {line}"
