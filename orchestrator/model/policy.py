"""The policy of a run: the playbook, the cluster file and the flags, checked and frozen.

The policy is written to the journal at the start. `resume` uses it, even if the files have changed since.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache

from orchestrator.model.cluster import NodeName, Zone
from orchestrator.model.gate import Gate
from orchestrator.model.merging import MergePolicy
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.tuning import TuningProfile
from orchestrator.model.upgrade import Upgrade


class Kind(Enum):
    """Kinds of cluster."""

    ELASTICSEARCH = "elasticsearch"
    RIAK = "riak"


class Strategy(Enum):
    """How nodes are grouped into waves."""

    NODE = "node"
    ZONE = "zone"
    SHARD_SAFE = "shard-safe"


class ZeroReplicas(Enum):
    """What to do about indices without replicas."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    ADD_REPLICA = "add_replica"


class LeasePlace(Enum):
    """Where the lease is stored, in addition to the state database."""

    CLUSTER = "cluster"
    STATE = "state"


class ConfigurationManagement(Enum):
    """What a run does about configuration management and package managers that are at work on a host."""

    HOLD = "hold"
    DISABLE = "disable"
    IGNORE = "ignore"


class Together(Enum):
    """When the nodes of one machine go down in one wave."""

    ALWAYS = "always"
    REBOOT = "reboot"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Limits of every wait, in seconds. After most the run stands down; `engine/limits.py` has all."""

    stop: Seconds = 600.0
    start: Seconds = 600.0
    rejoin: Seconds = 600.0
    recover: Seconds = 8 * 3600.0
    withheld: Seconds = 1800.0
    hold: Seconds = 3600.0
    gate: Seconds = 4 * 3600.0
    reboot: Seconds = 1800.0
    install: Seconds = 3600.0
    refused: Seconds = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryLimits:
    """Recovery limits, raised for the run and never lowered. None leaves a limit unchanged."""

    node_initial_primaries_recoveries: int | None = 4
    node_concurrent_recoveries: int | None = 15
    max_bytes_per_sec: int | None = 100 * 1024 * 1024  # bytes a second
    concurrent_streams: int | None = 5  # only where the version has it (before 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A command before, during or after a node's restart."""

    run: str  # command line; `{node}` is replaced with the node's name
    local: bool = False  # run it on this machine instead of the node's host
    timeout: Seconds = 300.0  # seconds after which it counts as failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Hooks by moment, in order."""

    before_stop: tuple[Hook, ...] = ()
    while_stopped: tuple[Hook, ...] = ()
    after_recovery: tuple[Hook, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which nodes a run restarts, or which hosts are tuned. An empty `only` selects all."""

    only: tuple[str, ...] = ()  # names or globs; a name with brackets means the node of that name too
    exclude: tuple[str, ...] = ()
    zone: Zone | None = None
    started_before: Instant | None = None  # only nodes whose process is older, by the node's own clock
    due: tuple[Due, ...] = ()  # only nodes to which one of these applies

    def names(self, node: NodeName) -> bool:
        """Whether `only` and `exclude` leave this node in."""
        wanted = not self.only or any(_matches(node, pattern) for pattern in self.only)
        return wanted and not any(_matches(node, pattern) for pattern in self.exclude)

    def unmatched(self, nodes: Collection[NodeName]) -> tuple[str, ...]:
        """Names and globs that match none of these nodes: a typing error never counts as "none"."""
        patterns = (*self.only, *self.exclude)
        return tuple(each for each in patterns if not any(_matches(node, each) for node in nodes))


def _matches(node: NodeName, pattern: str) -> bool:
    return node == pattern or fnmatchcase(node, pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Awareness:
    """The cluster's own allocation awareness at the start of the run."""

    attributes: tuple[str, ...] = ()  # node attributes that copies are spread over, in the cluster's order
    # zones that forced awareness lists for the attribute that waves use. While one zone is away, the other
    # zones take no more than their share of its copies, so many copies stay unassigned.
    forced: tuple[Zone, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DisabledPredicate:
    """A predicate that the operator has disabled, for all subjects or for one."""

    name: str
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything that decisions need to know about the wanted run."""

    kind: Kind
    cluster: str  # the expected cluster name
    playbook: str = "elasticsearch-rolling-restart"
    strategy: Strategy = Strategy.NODE
    # nodes that may be away at once, at least 1; None = no limit of its own, and with the strategy `node` one
    # machine
    max_unavailable: int | None = 1
    min_started_copies: int = 1  # in-sync copies of every shard that stay started outside the wave
    min_capacity: float = 0.5  # share of data nodes of each tier that stays up, 0 to 1
    overlap_recovery: bool = False
    master_step_down: bool = False
    accept_red: frozenset[str] = frozenset()  # indices that may be red from the start
    accept_master_outage: bool = False
    # names or globs of indices of which copies may not come back after a restart
    accept_not_returning: tuple[str, ...] = ()
    lease: LeasePlace = LeasePlace.CLUSTER
    allocation_while_down: str = "primaries"
    zero_replicas: ZeroReplicas = ZeroReplicas.REFUSE
    zero_replicas_accepted: tuple[str, ...] = ()  # names or globs under the `accept` policy
    recovery_limits: RecoveryLimits = field(default_factory=RecoveryLimits)
    flush: bool = True
    rebalance_while_running: str | None = "none"
    # Riak: concurrent transfers per node during the run; raised, never lowered; None leaves it alone
    transfer_limit: int | None = None
    # Riak: do not wait for its timers after a restart; see `riak/rules/recovery`
    hasten_handoff: bool = False
    settle_consecutive: int = 3  # good readings in a row after which a node counts as ready
    deadlines: Deadlines = field(default_factory=Deadlines)
    hooks: Hooks = field(default_factory=Hooks)
    # tuning of the hosts while their nodes are down; None leaves them alone
    tune: TuningProfile | None = None
    upgrade: Upgrade | None = None  # the version that every node's turn owes; None for a restart
    # indices that are merged before nodes are restarted; None for a restart alone
    merge: MergePolicy | None = None
    gates: tuple[Gate, ...] = ()  # checks before every wave; their names are all different
    zone_attribute: str | None = None  # node attribute that names the zone; None without one
    awareness: Awareness = field(default_factory=Awareness)  # the cluster's own awareness settings
    expect_nodes: int | None = None
    together: Together = Together.REBOOT
    configuration_management: ConfigurationManagement = ConfigurationManagement.HOLD
    selection: Selection = field(default_factory=Selection)
    reboot: bool = False
    pause_after: int | None = None  # number of nodes after which the run pauses (a canary); None without one
    # skip nodes that are held at planning, restart the others, and end held with the list. Without it, a run
    # that evidently cannot finish does not begin.
    begin_anyway: bool = False
    disabled_predicates: tuple[DisabledPredicate, ...] = ()
    reason: str | None = None
    timeout: Seconds | None = None  # seconds after which the whole run stands down; None without one

    @property
    def goes_by_machine(self) -> bool:
        """Whether nodes that share a machine go in one wave: always, or for what is done to the machine.

        A reboot takes all of them down. An upgrade replaces the files under all of them.
        """
        whole_machine = self.reboot or self.upgrade is not None
        return self.together is Together.ALWAYS or (self.together is Together.REBOOT and whole_machine)

    def disables(self, name: str, subject: str) -> bool:
        """Whether the operator has disabled this predicate for this subject."""
        return any(rule.name == name and rule.subject in (None, subject) for rule in self.disabled_predicates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Nodes that are stopped, tuned, started and rejoin together."""

    number: int  # one-based
    nodes: tuple[NodeName, ...]
    zone: Zone | None = None
    why: str = ""  # one line: why these nodes, and why no more
    # groups of its nodes that go together because they share a machine
    machines: tuple[tuple[NodeName, ...], ...] = ()

    def machine(self, name: NodeName) -> tuple[NodeName, ...]:
        """The nodes of the wave that share this node's machine, including itself."""
        return next((machine for machine in self.machines if name in machine), (name,))


# Why a node is due for a restart, beside its age ------------------------------------


class DueFor(Enum):
    """What `--due` names."""

    VERSION = "version"
    REBOOT = "reboot-required"
    CONFIG = "config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One reason for which nodes are selected."""

    reason: DueFor
    version: str = ""  # for `VERSION`: nodes that run an older one are due
    # for `CONFIG`: absolute paths on the node's host; `{node}` is the node's name
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As it is typed."""
        return f"{self.reason.value}:{self.version}" if self.version else self.reason.value


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChanges:
    """What has changed on a host."""

    reboot: str = ""  # why the host has to be rebooted; empty if nothing asks for it
    # when each of the files that exist was last written, replaced, or given other rights or owners
    files: Mapping[str, Instant] = field(default_factory=dict)


@lru_cache(maxsize=64)
def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, without trailing zeros: 9.1 and 9.1.0 are the same version."""
    parts = [int(part) for part in re.findall(r"\d+", version.partition("-")[0].partition("+")[0])]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def reasons(
    due: Sequence[Due], *, version: str, started: Instant | None, changes: HostChanges | None
) -> Iterator[str]:
    """Why a node is due; none if it is not.

    Args:
        due: the reasons that were asked for.
        version: that the node runs.
        started: when its process started, by its own clock.
        changes: on its host; None if no reason needs them.
    """
    for one in due:
        if one.reason is DueFor.VERSION and numbers(version) < numbers(one.version):
            yield f"runs {version}"
        if changes is None:
            continue
        if one.reason is DueFor.REBOOT and changes.reboot:
            yield changes.reboot
        if one.reason is DueFor.CONFIG and started is not None:
            # A file's time has whole seconds here: one of the second of the start counts as older.
            newer = [path for path, changed in sorted(changes.files.items()) if changed > int(started)]
            if newer:
                more = f" and {len(newer) - 1} more" if len(newer) > 1 else ""
                yield f"{newer[0]}{more} changed after it started"
