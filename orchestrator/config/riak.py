"""The files of a Riak cluster: commands, the machines behind the names of nodes, and the playbook.

Riak names a node `NAME@HOST`, `riak@10.0.0.1` by custom, and HOST need not be reachable from here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field, StrictBool, StrictInt

from orchestrator.config.cluster_parts import ENDPOINTS, HOSTS_OF_NODES, ClusterKeys, playbook_key
from orchestrator.config.hosts import ONLY_HOSTS, Address, HostsSpec, OverrideSpec, matching_overrides
from orchestrator.config.playbook_parts import LIMITS, USUAL, LimitsSpec, PlaybookKeys
from orchestrator.config.reaching import RiakEndpoint, each_once
from orchestrator.config.spec import (
    NO_PLACEHOLDER,
    NOT_EMPTY,
    PLACEHOLDERS,
    Name,
    RiakKind,
    Spec,
    Unset,
    plain_name,
)
from orchestrator.model.host import Manager
from orchestrator.model.host_settings import ServiceSettings
from orchestrator.model.riak import LOCATION
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


def names_of(node: str, nodes: Mapping[str, str]) -> tuple[str, ...]:
    """The host behind a node's `@`; and, where that is an address, the host that `nodes` has for it."""
    host = host_of(node)
    known = (name for name, place in nodes.items() if place == host and "@" not in name)
    return tuple(dict.fromkeys((*known, host)))


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


MemberOrHost = Annotated[str, AfterValidator(with_host)]


class RiakNodeSpec(OverrideSpec):
    """Overrides for the Riak nodes that a name or a glob matches."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {}

    riak: Unset[RiakOverrideSpec] = Field(
        default=None, description="Overrides single keys of `riak`, for nodes that share a machine."
    )


class RiakHostsSpec(HostsSpec):
    """How the machines of a Riak cluster are reached."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {"names": ONLY_HOSTS}

    overrides: dict[str, RiakNodeSpec] = Field(  # type: ignore[assignment]  # its values are overrides
        default_factory=dict,
        description="By node name, the host in it, or glob: any other key of `hosts`, `address`, and `riak`."
        " All matching entries apply, globs in the order of the file, then the exact name; a later entry"
        " overrides an earlier one.",
    )
    nodes: dict[MemberOrHost, Address] = Field(
        default_factory=dict,
        description="Addresses of machines by host: `{riak1: 10.0.0.1}` for the node `riak@riak1`. A key may"
        " be a node's full name, too. A node that is not listed is reached by the host after its `@`.",
    )


class RiakClusterSpec(ClusterKeys):
    """The cluster file of Riak."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "auth": "not for `kind: riak`: `/ping` and `/stats` are read without logging in",
        "zone_attribute": "not for `kind: riak`: its zones are the locations of its members",
        "product": "not for `kind: riak`",
        "version": "not for `kind: riak`: a node states its own",
    }

    kind: RiakKind = Field(description="Kind of cluster.")
    name: Annotated[Name, AfterValidator(plain_name)] = Field(
        description="Your own name for the cluster, since Riak has none. Plans, the journal and the"
        " lease use it: another name for each cluster, the same in every copy of this file."
    )
    endpoints: Annotated[tuple[RiakEndpoint, ...], NOT_EMPTY, AfterValidator(each_once)] = Field(
        description=ENDPOINTS
    )
    playbook: Name = playbook_key("riak-rolling-restart", "riak-playbook")
    hosts: RiakHostsSpec = Field(default_factory=RiakHostsSpec, description=HOSTS_OF_NODES)
    riak: RiakSpec = Field(default_factory=RiakSpec, description="Riak's own commands.")

    def usual_service(self, node: str | None = None) -> ServiceSettings:
        """How a node is stopped and started unless the file says."""
        return riak_service(words_of(EXAMPLE, self.riak) if node is None else self.words(node))

    def words(self, node: str) -> RiakWords:
        """Riak's commands on a node's machine.

        Raises:
            ValueError: with the node's name a word has a special meaning in a shell.
        """
        found = matching_overrides((*self.names_of(node), node), self.hosts.overrides)
        return words_of(node, self.riak, [over.riak for over in found if over.riak is not None])

    def names_of(self, node: str) -> tuple[str, ...]:
        """The names of its machine."""
        return names_of(node, self.hosts.nodes)

    def address_of(self, node: str) -> str | None:
        """The address of a node's machine, without overrides."""
        return address_of(node, self.hosts.nodes)

    def names(self) -> list[str]:
        """The nodes that the file names, each once."""
        names = [*super().names(), *self.hosts.nodes]
        full = [name for name in names if "@" in name]
        meant = {host for name in full for host in self.names_of(name)}
        return [name for name in names if name in full or name not in meant]

    def strangers(self, nodes: Collection[str]) -> list[tuple[str, str]]:
        """Entries of `hosts` that match none of these nodes, each with its key."""
        names = {*nodes, *(name for node in nodes for name in self.names_of(node))}
        return [
            *super().strangers(nodes),
            *(("nodes", name) for name in self.hosts.nodes if name not in names),
        ]

    def zones_by(self) -> str | None:
        """Its zones are the locations of its members."""
        return LOCATION


TRANSFER_LIMIT: Final = 8
"""With Riak's default of 2 a restarted node waits for minutes (seen); Riak's help calls 8 a common value."""
MOST_TRANSFERS: Final = 1000
"""More than any node needs: a larger number is probably meant in another unit, such as bytes."""

_MASTER: Final = "not for `kind: riak`: it has no master"
_COPIES: Final = "not for `kind: riak`: its rule is preference_lists_keep_quorum"
_ALLOCATION: Final = (
    "not for `kind: riak`: it allocates nothing; other nodes take the writes of one that is down"
)
UPGRADES_LATER: Final = (
    "upgrades of Riak come with a later version; until then a hook of `while_stopped` installs packages"
    " during a restart"
)
_UPGRADE: Final = f"not for `kind: riak`: {UPGRADES_LATER}"


class RiakDeadlinesSpec(LimitsSpec):
    """Limits of every wait of a run on Riak. At a limit the run stands down, as with Elasticsearch."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {"withheld": _ALLOCATION, "install": _UPGRADE}


class RiakPlaybookSpec(PlaybookKeys):
    """A playbook for Riak."""

    NO_UPGRADE: ClassVar[str] = UPGRADES_LATER
    USUAL_FILES: ClassVar[tuple[str, ...]] = (
        *(f"/etc/riak/{name}" for name in ("riak.conf", "advanced.config", "vm.args", "app.config")),
        "/etc/default/riak",
        "/etc/systemd/system/riak.service.d",
    )
    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "min_started_copies": _COPIES,
        "min_capacity": "not for `kind: riak`: it has no tiers; `max_unavailable` bounds what is away",
        "overlap_recovery": "not for `kind: riak`: the next wave waits until every transfer is through",
        "master_step_down": _MASTER,
        "accept": _MASTER + " and no red index; `--disable-predicate` is what lets a run pass a rule",
        "allocation_while_down": _ALLOCATION,
        "zero_replica_indices": _COPIES,
        "recovery_limits": "not for `kind: riak`: `transfer_limit` is what is raised there",
        "flush": "not for `kind: riak`: nothing is flushed before a stop",
        "rebalance_while_running": _ALLOCATION,
        "upgrade": _UPGRADE,
        "force_merge": "not for `kind: riak`: it has no segments to merge",
    }

    kind: RiakKind = Field(description="Kind of cluster.")
    deadlines: RiakDeadlinesSpec = Field(default_factory=RiakDeadlinesSpec, description=LIMITS)
    transfer_limit: Annotated[StrictInt, Field(ge=1, le=MOST_TRANSFERS)] | None = Field(
        default=TRANSFER_LIMIT,
        description="Transfers that a node may have at once during the run. After a restart the other nodes"
        " hand off the data that they took in for the node; with Riak's default of 2 this takes minutes even"
        " for little data. Raised, never lowered, and restored node by node. Null: not changed. Choose less"
        " where handoff slows the cluster down.",
    )
    hasten_handoff: StrictBool = Field(
        default=USUAL.hasten_handoff,
        description="Whether handoff is forced after each restart, instead of minutes of waiting for"
        " Riak's timers. Riak 3.2 only, by a call that Riak has for `support/debug purposes`: read"
        " `orchestrate explain explanation/riak` first.",
    )
