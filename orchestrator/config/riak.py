"""Configuration only for Riak clusters: commands, and the machines behind the names of nodes.

Riak names a node `NAME@HOST`, `riak@10.0.0.1` by custom, and HOST need not be reachable from here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from orchestrator.config.spec import NO_PLACEHOLDER, PLACEHOLDERS, Name, Spec, Unset
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import ServiceSettings
from orchestrator.untrusted import address

DEFAULT_COMMAND: Final = "/usr/sbin/riak"
"""The path in the packages. With the folder: an SSH session often has no `/usr/sbin` in its path."""

LEASE_DIRECTORY: Final = "/var/tmp"  # noqa: S108  (riak/lease_files.py says who else writes there)
"""Survives a reboot (FHS 3.0, 5.15), and every account can create files there."""

UNIT: Final = "riak"
"""The name of unit and init script in the packages."""

_WORD: Final = re.compile(r"[A-Za-z0-9_@%+:,./=-]+")
_FIRST_WORD: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_@+:,./-]*")
"""Without `=` in it: that would set a variable."""
EXAMPLE: Final = "riak@riak1"
"""A node's name for checks that do not depend on it."""
_LISTED: Final = "`{node}`, `{name}` and `{host}`"
_PLACEHOLDER: Final = re.compile(r"\{\w*\}")


def plain_name(name: str) -> str:
    """Check the operator's name for a cluster, which alone keeps two runs off one cluster.

    Raises:
        ValueError: it could be confused with another name.
    """
    if not name.isprintable() or name != name.strip():
        raise ValueError("must be a name of one line, without blanks at its ends or control characters")
    return name


def _plain_words(line: str) -> str:
    # The packaged script writes its arguments, unquoted, into a script for a second shell.
    for placeholder in _PLACEHOLDER.findall(line):
        if placeholder not in PLACEHOLDERS:
            raise ValueError(f"`{placeholder}` is no placeholder: there are {_LISTED}")
    try:
        words = shlex.split(_filled(line, EXAMPLE))
    except ValueError:
        raise ValueError("a quote is opened here and not closed") from None
    if not words:
        raise ValueError("must not be empty")
    if not _are_plain(words):
        raise ValueError(
            "must be a program and plain words: what means something to a shell (blanks in a word, quotes, $,"
            " ~, ;, braces) is refused, since Riak's own script has a second shell read its words"
        )
    return line


def _are_plain(words: Sequence[str]) -> bool:
    return _FIRST_WORD.fullmatch(words[0]) is not None and all(map(_WORD.fullmatch, words))


def _filled(line: str, node: str) -> str:
    """A line with the placeholders replaced; without a name before the `@`, `{name}` is the host."""
    name, _, host = node.rpartition("@")
    values = dict(zip(PLACEHOLDERS, (node, name or host, host), strict=True))
    return _PLACEHOLDER.sub(lambda found: values.get(found[0], found[0]), line)


def _folder(path: str) -> str:
    if not path.startswith("/") or not path.isprintable():
        raise ValueError("must be an absolute path")
    return path


Words = Annotated[Name, AfterValidator(_plain_words)]

_COMMAND: Final = (
    "The program `riak`, with `stop`, `start` and `ping`: a path, or words such as `docker exec riak riak`."
    f" Placeholders {_LISTED}: a node's full name, and the parts before and after its `@`, for nodes that"
    " share a machine."
)
_ADMIN: Final = (
    "The words before an administrative command, with the same placeholders. Default: `command` with `admin`;"
    " before 3.0 `riak-admin` in the folder of `command`."
)


class RiakSpec(Spec):
    """The commands of a Riak cluster."""

    command: Words = Field(default=DEFAULT_COMMAND, description=_COMMAND, examples=["/opt/{name}/bin/riak"])
    admin: Unset[Words] = Field(default=None, description=_ADMIN, examples=["riak admin"])
    lease_directory: Annotated[Name, AfterValidator(_folder), NO_PLACEHOLDER] = Field(
        default=LEASE_DIRECTORY,
        description="Folder on every host for the record of the lease. It must survive a reboot, and every"
        " account that restarts this cluster must be able to create files in it. The same in every copy of"
        " this file: runs with different folders do not see each other.",
    )


class RiakOverrideSpec(Spec):
    """Riak's commands on the nodes that a name or a glob matches; they override keys of `riak`."""

    command: Unset[Words] = Field(default=None, description="As in `riak`.")
    admin: Unset[Words] = Field(default=None, description="As in `riak`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakWords:
    """Riak's commands on one node's machine; no word has a special meaning in a shell."""

    command: tuple[str, ...]  # the program `riak`
    admin: tuple[str, ...] = ()  # the start of an administrative command line; empty if the version decides


def words_of(node: str, riak: RiakSpec, overrides: Iterable[RiakOverrideSpec] = ()) -> RiakWords:
    """The commands of one node.

    Args:
        node: its full name.
        riak: the section of the file.
        overrides: those that match the node; later ones win.

    Raises:
        ValueError: with this node's name a word has a special meaning in a shell.
    """
    command, admin = riak.command, riak.admin
    for over in overrides:
        command, admin = over.command or command, over.admin or admin
    found = RiakWords(
        command=tuple(shlex.split(_filled(command, node))),
        admin=tuple(shlex.split(_filled(admin, node))) if admin else (),
    )
    for key, words in (("command", found.command), ("admin", found.admin or found.command)):
        if not _are_plain(words):
            raise ValueError(f"riak.{key}: the name of node {node} means something to a shell")
    return found


def riak_service(words: RiakWords) -> ServiceSettings:
    """How a node is stopped and started unless the file says: through `riak`, which every package has.

    The unit that 3.2 ships is of no use for that: systemd takes `riak start`, which ends when the node is up,
    for the node itself. Every version has `start`; `daemon`, which 3.2 names instead and starts the node in
    the same way, is unknown before it. `ping` reads files that only root and `riak` may read;
    without them it takes a node that runs for one that does not. What these commands print is read, never
    their exit code alone: the packaged `riak` of 3.2.0 and 3.2.1 exits 0 for everything (recorded).
    """
    program = shlex.join(words.command)
    return ServiceSettings(
        manager=Manager.COMMAND,
        unit=UNIT,
        stop=f"{program} stop",
        start=f"{program} start",
        status=f"{program} ping",
        status_as_root=True,
    )


def host_of(member: str) -> str:
    """The part after the `@` of a member's name."""
    return member.rpartition("@")[2]


def with_host(member: str) -> str:
    """Check a member's name, or the host in it; raises `UntrustedValue`."""
    address(host_of(member))
    return member


def address_of(member: str, nodes: Mapping[str, str]) -> str:
    """The address of a member's machine.

    For `riak@HOST`: the entry of `hosts.nodes` for the full name, else the entry for HOST, else HOST itself.

    Args:
        member: the name of a member in the ring.
        nodes: addresses by host, from the file.

    Raises:
        UntrustedValue: the file has none, and HOST is neither an IP address nor a host name.
    """
    host = host_of(member)
    return nodes.get(member) or nodes.get(host) or address(host)


def names_of(member: str, nodes: Mapping[str, str]) -> tuple[str, ...]:
    """Names by which `hosts.overrides` and `hosts.nodes` may mean a member, beside its full one.

    The host behind its `@`; and, where that is an address, the host that `hosts.nodes` has for it.
    """
    host = host_of(member)
    known = tuple(name for name, place in nodes.items() if place == host and "@" not in name)
    return tuple(dict.fromkeys((*known, host)))
