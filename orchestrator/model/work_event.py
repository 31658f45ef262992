"""Events of the work on nodes and hosts: starts, silent hosts, tuning, upgrades, merges and handoff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.merging import Writes
from orchestrator.model.reading import Refusal, Seconds
from orchestrator.model.tuning import OnFailure
from orchestrator.model.upgrade import InstallState


class Note:
    """An event for people: the state of the run is as it was."""

    __slots__ = ()


class Remembered:
    """An event that only the process remembers which wrote it: `resume` begins without it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """The service of a node ended by itself after its start. The start may be sent again."""

    node: NodeName
    why: str  # the state of the service, in the words of its manager
    said: tuple[str, ...] = ()  # the last lines of the manager and of the server's own log, without secrets
    event: Literal["start_failed"] = "start_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FellSilent(Remembered):
    """Hosts, or the cluster, did not answer a reading, or have not answered it yet."""

    nodes: tuple[NodeName, ...]  # those whose hosts do not answer; empty if the cluster does not
    seconds: Seconds  # since the first reading was sent that has no answer
    why: str = ""  # how the reading failed; empty while it still waits
    event: Literal["fell_silent"] = "fell_silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Remembered):
    """Hosts, or the cluster, answer again; or they answer slowly."""

    nodes: tuple[NodeName, ...]  # those whose hosts answer; empty if it is the cluster
    seconds: Seconds  # how long the answer took
    slowly: bool = False  # so long that it is said in every wait, until an answer comes in time
    event: Literal["answered"] = "answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRefused(Remembered):
    """The cluster refuses the credentials of the run, or a request that the run needs."""

    refusal: Refusal  # the credentials, the node that refuses them, and the source of their secret
    reading: bool  # the cluster could not be read; `false`: something could not be restored
    event: Literal["access_refused"] = "access_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessGranted(Remembered):
    """The cluster accepts the credentials again."""

    seconds: Seconds  # how long it refused them
    event: Literal["access_granted"] = "access_granted"


HostEvent: TypeAlias = StartFailed | FellSilent | Answered | AccessRefused | AccessGranted

# Tuning: what was set and read again, and what could not be set ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningApplied(Note):
    """A tunable was set while the node was down, and read again."""

    node: NodeName
    tunable: str
    found: str  # the original value, for people
    wanted: str
    event: Literal["tuning_applied"] = "tuning_applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningMissed(Note):
    """A tunable could not be read or set. The node is started anyway."""

    node: NodeName
    tunable: str  # empty when it is about the whole host
    why: str
    on_failure: OnFailure  # the profile's setting: the run continues, or stands down once the node is started
    event: Literal["tuning_missed"] = "tuning_missed"


TuningEvent: TypeAlias = TuningApplied | TuningMissed

# An upgrade: the end of an install step, a node on the target, and a node that missed it.
# ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallEnded:
    """A reading of the host shows how an install step ended."""

    node: NodeName
    number: int  # of the step
    ticket: str
    state: InstallState
    said: str = ""  # the last lines that it printed, free of secrets
    event: Literal["install_ended"] = "install_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """A node runs the target, in a process that began after its last install step."""

    node: NodeName
    version: str
    by_others: bool = False  # no install step of this run has run for it
    event: Literal["upgraded"] = "upgraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeMissed:
    """A node came back without the target, though every install step ended well. All steps are owed again."""

    node: NodeName
    version: str  # that it runs
    wanted: str
    lacks: tuple[str, ...] = ()  # plugins that it was to load and did not
    event: Literal["upgrade_missed"] = "upgrade_missed"


UpgradeEvent: TypeAlias = InstallEnded | Upgraded | UpgradeMissed

# Merges of indices ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WritesRead:
    """The first reading of the counters that show whether an index is still being written, by uuid."""

    counters: Mapping[str, Writes]
    event: Literal["writes_read"] = "writes_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeWarned:
    """A warning about a merge for the operator. It does not hold the merge."""

    index: str
    index_uuid: str
    what: str
    event: Literal["merge_warned"] = "merge_warned"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeDue:
    """An index that needed no merge at the start of the run is to be merged now, or may have to be."""

    index: str
    index_uuid: str
    why: str  # a copy returned with too many segments, or a shard has no copy to count
    event: Literal["merge_due"] = "merge_due"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBegun:
    """The merge of an index is about to be requested, or a running merge is adopted (`found`)."""

    index: str
    index_uuid: str
    segments: int  # segments of the copy that has the most
    bytes: int  # of all copies together
    found: bool = False
    event: Literal["merge_begun"] = "merge_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMerged:
    """Every started copy of an index has few enough segments, counted on each, and no merge of it runs."""

    index: str
    index_uuid: str
    segments: int  # segments of the copy that has the most now
    bytes: int
    seconds: Seconds  # since the merge began; 0 when this run did not merge it
    # incarnations of the nodes at this time. A node is due for a restart while its incarnation is one of
    # them.
    incarnations: Mapping[NodeName, Incarnation]
    why: str = ""  # a remark, such as that the index is gone, or is being written and has more segments again
    event: Literal["index_merged"] = "index_merged"


MergeEvent: TypeAlias = WritesRead | MergeWarned | MergeDue | MergeBegun | IndexMerged

# Handoff on Riak: what waits for it, and where it was not hastened (`hasten_handoff`).
# ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPartition:
    """A partition that waits for handoff."""

    partition: int  # its number in the ring
    holder: NodeName  # the node that has it; `owner`: the node to which it belongs
    owner: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffWaits:
    """Riak: before a stop, other partitions than before wait for handoff while no transfer moves data."""

    # empty where none waits, or where something moves, is down or does not run
    partitions: tuple[WaitingPartition, ...]
    event: Literal["handoff_waits"] = "handoff_waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffLeftWaiting:
    """Riak: a node is stopped while these partitions wait, which its recovery does not wait for."""

    # empty where none waits any more that waited before an earlier stop
    partitions: tuple[WaitingPartition, ...]
    seconds: Seconds  # for how long they have waited without a change
    event: Literal["handoff_left_waiting"] = "handoff_left_waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHastened:
    """Riak: handoff after the restart of these nodes could not be hastened, or only in part.

    The wave then waits by `transfers` alone, until handoff can be forced again.
    """

    nodes: tuple[NodeName, ...]
    why: str
    event: Literal["not_hastened"] = "not_hastened"


HandoffEvent: TypeAlias = HandoffWaits | HandoffLeftWaiting | NotHastened
