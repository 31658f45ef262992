"""The playbook: options and hooks of a restart. It cannot make a restart unsafe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    Tag,
)

from orchestrator.config.around import (
    NOTIFY,
    Around,
    AroundHook,
    NotifyTargets,
    alertmanager_in,
    grafana_in,
    hooks_in,
    named_apart,
    targets_in,
)
from orchestrator.config.cluster import ClusterFile
from orchestrator.config.faults import validate
from orchestrator.config.gates import GatesSpec
from orchestrator.config.management import (
    CONFIGURATION_MANAGEMENT,
    MANAGEMENT_UNITS,
    USUAL_UNITS,
    ManagementUnit,
)
from orchestrator.config.merging import ForceMergeSpec
from orchestrator.config.playbook_parts import HooksSpec, LimitsSpec, SettleSpec
from orchestrator.config.riak_playbook import RiakPlaybookSpec
from orchestrator.config.selection import CONFIG_FILES, ConfigFiles
from orchestrator.config.spec import (
    MAPPING,
    NOT_EMPTY,
    SCALAR,
    ByteSize,
    Duration,
    ElasticsearchKind,
    Later,
    Name,
    NodeBudget,
    Positive,
    Share,
    Spec,
    Unset,
    is_riak,
    shape,
)
from orchestrator.config.upgrade import UpgradeSpec
from orchestrator.config.which_file import FileKind, read_as
from orchestrator.config.yaml import Document
from orchestrator.model.policy import ConfigurationManagement, LeasePlace, Strategy


def _refuse_new_primaries(value: object) -> object:
    if value == "new_primaries":
        # With it the primaries of a restarted node do not start: the run would wait for ever.
        raise ValueError(
            "must be one of primaries, none: `new_primaries` keeps a returned node's primaries from starting"
        )
    return value


def _accept_needs_names(value: object) -> object:
    if value == "accept":
        raise ValueError("`accept` needs names of indices: {accept: [logs-*]}")
    return value


def _below_all(share: float) -> float:
    if share >= 1:
        raise ValueError("must be below 100%: with all of them up, none could ever restart")
    return share


class AcceptSpec(Spec):
    """Accepted faults of the cluster."""

    red: tuple[Name, ...] = Field(
        default=(), description="Indices that may be red already; by name, never by glob."
    )
    master_outage: StrictBool = Field(
        default=False,
        description="Whether a cluster of one or two voters may be without a master for a while.",
    )
    not_returning: tuple[Name, ...] = Field(
        default=(),
        description="Names or globs of indices whose copies need not come back after the restart of their "
        "node: the run does not wait for copies that the cluster would not allocate again.",
    )


class ZeroReplicasAccept(Spec):
    """Indices without replicas that may be unavailable for a while."""

    accept: Annotated[tuple[Name, ...], NOT_EMPTY] = Field(description="Names or globs of indices.")


ZeroReplicasSpec = Annotated[
    Annotated[Literal["refuse", "add_replica"], BeforeValidator(_accept_needs_names), Tag(SCALAR)]
    | Annotated[ZeroReplicasAccept, Tag(MAPPING)],
    Discriminator(shape),
]


class RecoveryLimitsSpec(Spec):
    """Limits of the cluster that are raised for the run. The original values are restored afterwards."""

    node_initial_primaries_recoveries: Positive | None = Field(
        default=4, description="Primaries of a returned node that start at a time."
    )
    node_concurrent_recoveries: Positive | None = Field(
        default=15, description="Other recoveries at a time, in and out of a node."
    )
    max_bytes_per_sec: ByteSize | None = Field(
        default=100 * 1024 * 1024,
        description="Bytes a second that a node copies. A higher rate slows queries down.",
    )
    concurrent_streams: Positive | None = Field(
        default=5, description="Files copied at a time. Only for versions that have it (before 5)."
    )


class DeadlinesSpec(LimitsSpec):
    """Limits of every wait. At a limit the run stands down: settings restored, nodes up, exit code 3 or 4."""

    withheld: Unset[Duration] = Field(
        default=None,
        description="Longest time that allocation stays disabled. Default: 30m; 60m with `--reboot` and for"
        " an upgrade.",
    )
    install: Duration = Field(
        default=3600.0,
        description="Longest wait for an install step of an upgrade. The step itself is never ended.",
    )


class PlaybookSpec(Spec):
    """A playbook for Elasticsearch and OpenSearch."""

    FILE: ClassVar[str] = "playbook"
    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "hasten_handoff": "only for `kind: riak`; here `recovery_limits` make recovery faster",
        "transfer_limit": "only for `kind: riak`; here `recovery_limits` are what is raised",
    }

    kind: ElasticsearchKind = Field(description="Kind of cluster.")
    strategy: Strategy = Field(
        default=Strategy.NODE,
        description="How nodes are grouped into waves: one node at a time, the nodes of one awareness zone,"
        " or the largest sets of nodes that no shard needs together.",
    )
    max_unavailable: Unset[NodeBudget] = Field(
        default=None,
        description="Nodes that may be away at once: a number, or a percentage of all nodes (rounded"
        " down, at least 1). Default: 1 with `node`, the whole zone with `zone`; with `shard-safe` as many"
        " as in the largest zone, or a third of the nodes and of each tier.",
    )
    min_started_copies: Positive = Field(
        default=1, description="In-sync copies of every shard that stay started outside the wave."
    )
    min_capacity: Annotated[Share, AfterValidator(_below_all)] = Field(
        default=0.5, description="Share of the data nodes of each tier that stays up."
    )
    overlap_recovery: Unset[StrictBool] = Field(
        default=None,
        description="Whether the next wave may stop while copies still recover in which it has no part."
        " Default: `true` for a restart; for an upgrade `false`, so that a wave shows first that its copies"
        " recover with the new version.",
    )
    master_step_down: StrictBool = Field(
        default=False,
        description="Whether an elected master hands over before its stop (from five voters on).",
    )
    accept: AcceptSpec = Field(default_factory=AcceptSpec, description="Accepted faults of the cluster.")
    lease: LeasePlace = Field(
        default=LeasePlace.CLUSTER,
        description="Where the lease is: also in the cluster, for every machine to see, or in the state"
        " alone.",
    )
    allocation_while_down: Annotated[Literal["primaries", "none"], BeforeValidator(_refuse_new_primaries)] = (
        Field(
            default="primaries",
            description="Allocation while a node is down. With `none`, new indices are red meanwhile.",
        )
    )
    zero_replica_indices: ZeroReplicasSpec = Field(
        default="refuse",
        description="Indices without replicas: hold, `{accept: [names]}`, or a replica for the run.",
    )
    recovery_limits: RecoveryLimitsSpec = Field(
        default_factory=RecoveryLimitsSpec,
        description="Limits that are raised for the run, never lowered. A limit of null is not changed.",
    )
    flush: StrictBool = Field(default=True, description="Whether indices are flushed before a stop.")
    rebalance_while_running: Literal["none", "primaries", "replicas", "all"] | None = Field(
        default="none", description="Rebalancing during the run. Null: not changed."
    )
    settle: SettleSpec = Field(default_factory=SettleSpec, description="When a node counts as back.")
    deadlines: DeadlinesSpec = Field(default_factory=DeadlinesSpec, description="Limits of every wait.")
    on_failure: Literal["stand_down"] = Field(
        default="stand_down", description="After a failure: the run stands down and can be resumed."
    )
    hooks: HooksSpec = Field(default_factory=HooksSpec, description="Your commands around each restart.")
    force_merge: ForceMergeSpec = Field(
        default_factory=ForceMergeSpec,
        description="How `post-bulk-index` and `force-merge` merge. No other command merges.",
    )
    tune: Unset[Name] = Field(
        default=None,
        description="Name or path of a tuning profile. It is applied to the hosts while their nodes are"
        " down.",
    )
    gates: GatesSpec = Field(
        default=(),
        description="External conditions, checked before every stop. The run waits while one is closed.",
    )
    configuration_management: ConfigurationManagement = Field(
        default=ConfigurationManagement.HOLD, description=CONFIGURATION_MANAGEMENT
    )
    management_units: tuple[ManagementUnit, ...] = Field(default=USUAL_UNITS, description=MANAGEMENT_UNITS)
    upgrade: Unset[UpgradeSpec] = Field(
        default=None, description="How `orchestrate upgrade` installs a version on a host."
    )
    config_files: Unset[ConfigFiles] = Field(
        default=None,
        description=CONFIG_FILES
        + "those of the packages of Elasticsearch and OpenSearch, with `/etc/default`, `/etc/sysconfig` and"
        " drop-ins.",
    )
    notify: NotifyTargets = Field(default=(), description=NOTIFY)
    windows: Later = Field(default=None, description="Maintenance windows.")


AnyPlaybookSpec: TypeAlias = PlaybookSpec | RiakPlaybookSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """A playbook that was read and checked."""

    name: str  # as the user typed it; journalled
    path: Path
    spec: AnyPlaybookSpec
    document: Document = field(repr=False)


def around_in(cluster: ClusterFile, playbook: Playbook | None) -> Around:
    """What surrounds a run, by its cluster file and its playbook."""
    targets = targets_in(cluster.spec.notify, cluster.path.resolve().parent)
    hooks: tuple[AroundHook, ...] = ()
    if playbook is not None:
        folder = playbook.path.resolve().parent
        targets += targets_in(playbook.spec.notify, folder)
        hooks = hooks_in(playbook.spec.hooks, folder)
    return Around(
        targets=named_apart(targets),
        hooks=hooks,
        alertmanager=alertmanager_in(cluster.spec.silence, cluster.path.resolve().parent),
        textfile=cluster.local_path(cluster.spec.metrics.textfile) if cluster.spec.metrics else None,
        grafana=grafana_in(cluster.spec.annotations, cluster.path.resolve().parent),
    )


def load_playbook(path: Path, *, name: str | None = None) -> Playbook:
    """Read a playbook; the default name is that of its file.

    Raises:
        ConfigError: file, line and key of every fault.
        NotInThisVersion: all its faults are strategies and keys of a later version.
    """
    return check_playbook(read_as(FileKind.PLAYBOOK, path), path=path, name=name or path.stem)


def check_playbook(document: Document, *, path: Path, name: str) -> Playbook:
    """Check a document that was already read; raises as `load_playbook` does."""
    model: type[AnyPlaybookSpec] = RiakPlaybookSpec if is_riak(document) else PlaybookSpec
    return Playbook(name=name, path=path, spec=validate(model, document), document=document)
