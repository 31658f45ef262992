"""What can be done: a closed union of idempotent verbs, each short; waiting is not an action.

Stopping and starting are *asked for* and return; whether they happened is read from the host and from
the cluster. Sending a verb twice is harmless, but a stop is sent again only through the gates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level, SettingValue
from orchestrator.model.policy import Hook
from orchestrator.model.tuning import Change


class Purpose(Enum):
    """Why cluster settings are written."""

    RAISE_LIMITS = "raise_limits"
    WITHHOLD = "set_allocation"
    REASSIGN = "restore_allocation"
    PUT_BACK = "restore_settings"


class Moment(Enum):
    """When a hook runs."""

    BEFORE_STOP = "before_stop"
    WHILE_STOPPED = "while_stopped"
    AFTER_RECOVERY = "after_recovery"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One cluster setting at one level. None is "absent", which is apart from any value."""

    level: Level
    key: str
    found: SettingValue | None
    wanted: SettingValue | None

    def undone(self) -> SettingChange:
        """The change that puts back what was found."""
        return SettingChange(level=self.level, key=self.key, found=self.wanted, wanted=self.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """A settings update that changes nothing: archived settings can block every real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """All the changes in one update, both levels together."""

    changes: tuple[SettingChange, ...]
    purpose: Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Flush all indices (synced, where the version has it), so that copies recover from disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryFailed:
    """Try copies again on which allocation gave up after its five attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceHandoff:
    """Of Riak: have every node hand off now what waits for its owner, without the wait for inactivity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicas:
    """Give an index so many replicas."""

    index: str
    index_uuid: str
    found: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceMerge:
    """Have every copy of an index merged to at most so many segments. Asked for, not waited for.

    One that runs already is not asked for again.
    """

    index: str
    index_uuid: str
    max_segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshIndex:
    """Let searches see the index as it is now, its merged segments instead of those they were made of."""

    index: str
    index_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetIndexSettings:
    """Set settings of an index for good, by their full names (`index.…`); None takes one away.

    What was found is for the record: it is not put back, since a bulk loader left it behind.
    """

    index: str
    index_uuid: str
    found: Mapping[str, str | None]
    wanted: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludeFromVoting:
    """Take a node out of the voting configuration, so that another master is elected."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearVotingExclusions:
    """Take away all voting exclusions, without waiting for the nodes to leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """Ask the service manager to stop the node's service."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNode:
    """Ask the service manager to start the node's service.

    Attributes:
        counts: the host said that the process is gone, so that this start counts as a try.
    """

    node: NodeName
    counts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootHost:
    """Reboot the node's host; its service is down already.

    Attributes:
        also: the other nodes of the wave on that machine: down already too, and back with the same boot.
    """

    node: NodeName
    also: tuple[NodeName, ...] = ()

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """Every node that the reboot is for."""
        return (self.node, *self.also)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHook:
    """Run one hook for a node."""

    node: NodeName
    moment: Moment
    number: int
    hook: Hook


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneHost:
    """Make the changes of one tunable on the node's host, in order, and read each back.

    The changes know what was found, so the record of this verb, written before it is sent, is all that
    undoing it needs.

    Attributes:
        found: the tunable as it was, for people; `wanted` likewise.
    """

    node: NodeName
    tunable: str
    changes: tuple[Change, ...]
    found: str = ""
    wanted: str = ""


IndexAction: TypeAlias = (
    ProbeSettings
    | WriteSettings
    | Flush
    | RetryFailed
    | SetReplicas
    | ForceMerge
    | RefreshIndex
    | SetIndexSettings
    | ExcludeFromVoting
    | ClearVotingExclusions
)
"""What a cluster that has indices is asked."""
ClusterAction: TypeAlias = IndexAction | ForceHandoff
HostAction: TypeAlias = StopNode | StartNode | RebootHost | RunHook | TuneHost
Action: TypeAlias = ClusterAction | HostAction


_NAMES: Final[Mapping[type[Action], str]] = {
    ProbeSettings: "probe_settings",
    Flush: "flush",
    RetryFailed: "retry_failed",
    ForceHandoff: "force_handoff",
    SetReplicas: "set_replicas",
    ForceMerge: "force_merge",
    RefreshIndex: "refresh",
    SetIndexSettings: "set_index_settings",
    ExcludeFromVoting: "exclude_from_voting",
    ClearVotingExclusions: "clear_voting_exclusions",
    StopNode: "stop",
    StartNode: "start",
    RebootHost: "reboot",
    TuneHost: "tune",
}
"""Of the verbs that have one name whatever they carry."""


def action_name(action: Action) -> str:
    """The public name of a verb, as the plan, the journal and the views show it."""
    match action:
        case WriteSettings(purpose=purpose):
            return purpose.value
        case RunHook(moment=moment):
            return f"hook_{moment.value}"
        case _:
            return _NAMES[type(action)]


def action_target(action: Action) -> str:
    """What a verb acts on: a node's name, or `cluster`."""
    match action:
        case (
            StopNode(node=node)
            | StartNode(node=node)
            | RebootHost(node=node)
            | RunHook(node=node)
            | TuneHost(node=node)
        ):
            return node
        case (
            SetReplicas(index=index)
            | ForceMerge(index=index)
            | RefreshIndex(index=index)
            | SetIndexSettings(index=index)
        ):
            return f"index {index}"
        case _:
            return "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The verb was accepted; for a stop or a start that is all it says.

    Attributes:
        output: what a command printed, bounded and free of secrets.
    """

    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The verb certainly did nothing: refused, not reached, rights missing; or a start ended with an error.

    Attributes:
        passes: it may well be accepted a little later as it is: too many requests, no elected master, no
            connection. False for what someone has to change first (rights, a wrong value), or where that is
            not known.
    """

    reason: str
    passes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """The connection was lost or a limit ran out: it may or may not have been done. Only a reading tells."""

    reason: str


ActionResult: TypeAlias = Done | Refused | InDoubt
