"""The actions of a run: a closed union of short, idempotent verbs. Waiting is not an action.

A stop or a start only *asks* the host and returns. A later reading of host and cluster shows whether it
happened. A verb may be sent twice without harm, but a stop is sent again only if the predicates allow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level, SettingValue
from orchestrator.model.policy import Hook
from orchestrator.model.reading import Refusal
from orchestrator.model.riak import holder
from orchestrator.model.tuning import Change
from orchestrator.model.upgrade import InstallStep


class Purpose(Enum):
    """Why cluster settings are written."""

    RAISE_LIMITS = "raise_limits"
    WITHHOLD = "set_allocation"
    REASSIGN = "restore_allocation"
    RESTORE = "restore_settings"


class Moment(Enum):
    """When a hook runs."""

    BEFORE_STOP = "before_stop"
    WHILE_STOPPED = "while_stopped"
    AFTER_RECOVERY = "after_recovery"


NOT_ABSENT: Final = "absent not possible before 5.0: its effective value is written"
"""The note of a setting that was absent, and cannot be absent again before Elasticsearch 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One cluster setting at one level. None is "not set", which differs from every value."""

    level: Level
    key: str
    found: SettingValue | None
    wanted: SettingValue | None

    @property
    def holder(self) -> NodeName | None:
        """The node that keeps it in its memory and loses it with that process; None = the cluster does."""
        return holder(self.key)

    def undone(self) -> SettingChange:
        """The change that restores the original value."""
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
    """Retry the allocation of copies that the cluster stopped trying to allocate after five attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceHandoff:
    """Riak: every node starts waiting handoffs at once, without waiting for inactivity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicas:
    """Set the number of replicas of an index."""

    index: str
    index_uuid: str
    found: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceMerge:
    """Merge every copy of an index to at most this many segments. The call does not wait for the end.

    A merge that already runs is not requested again.
    """

    index: str
    index_uuid: str
    max_segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshIndex:
    """Refresh an index, so that searches use its merged segments instead of the old ones."""

    index: str
    index_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetIndexSettings:
    """Set index settings permanently, by their full names (`index.…`). None removes a setting.

    The values found are only recorded, not restored: a bulk loader left them behind.
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
    """Remove all voting exclusions, without waiting for the nodes to leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """Ask the service manager to stop the node's service."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNode:
    """Ask the service manager to start the node's service."""

    node: NodeName
    counts: bool = False  # the host reported that the process is gone, so this start counts as an attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootHost:
    """Reboot the node's host. Its service is already down."""

    node: NodeName
    # the wave's other nodes on that machine. They are already down and return with the same boot.
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
    """Make the changes of one tunable on the node's host, in order, and read each of them again.

    Each change contains the value found. The record of this verb is written before it is sent, and it is
    enough to undo the changes.
    """

    node: NodeName
    tunable: str
    changes: tuple[Change, ...]
    found: str = ""  # the tunable's original value, for people; `wanted` likewise
    wanted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInstall:
    """Begin an install step for a node that is down. The verb does not wait for its end.

    A step goes on without this program and is never ended by it. `HostView.install` shows its state. The verb
    may be sent twice: a step with the same ticket that runs, or has ended well, is not begun again.
    """

    node: NodeName
    number: int  # of the step
    step: InstallStep
    ticket: str  # names the step and the try: `RUN/NODE/NUMBER/TRY`
    target: str  # the wanted version
    plugins: tuple[str, ...] = ()  # those that the node is to load with it
    installed: str | None = None  # if this command line succeeds, nothing is run, and the step counts as done


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
"""Actions that only apply to a cluster with indices."""
ClusterAction: TypeAlias = IndexAction | ForceHandoff
HostAction: TypeAlias = StopNode | StartNode | RebootHost | RunHook | RunInstall | TuneHost
Action: TypeAlias = ClusterAction | HostAction


ACTION_NAMES: Final[Mapping[type[Action], str]] = {
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
    RunInstall: "install",
}
"""Names of the verbs whose name does not depend on their fields."""


def action_name(action: Action) -> str:
    """The public name of a verb, as the plan, the journal and the views show it."""
    match action:
        case WriteSettings(purpose=purpose):
            return purpose.value
        case RunHook(moment=moment):
            return f"hook_{moment.value}"
        case _:
            return ACTION_NAMES[type(action)]


def action_target(action: Action) -> str:
    """What a verb acts on: a node's name, or `cluster`."""
    match action:
        case (
            StopNode(node=node)
            | StartNode(node=node)
            | RebootHost(node=node)
            | RunHook(node=node)
            | RunInstall(node=node)
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
    """The verb was accepted. For a stop or a start, this does not prove that it took effect."""

    output: str = ""  # what a command printed, bounded and free of secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The verb had no effect: refused, host not reached, rights missing, or a start ended with an error."""

    reason: str
    # the same verb may be accepted a little later: too many requests, no elected master, no connection. False
    # where a person has to change something first (rights, a wrong value), or where the cause is unknown.
    passes: bool = False
    refusal: Refusal | None = None  # the credentials that were not accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """The connection was lost or a limit ran out. Only a new reading shows whether the verb took effect."""

    reason: str


ActionResult: TypeAlias = Done | Refused | InDoubt
