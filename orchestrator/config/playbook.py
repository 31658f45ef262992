"""The playbook: options and hooks of a restart. It cannot make a restart unsafe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    Tag,
)

from orchestrator.config.around import (
    Around,
    AroundHook,
    alertmanager_in,
    grafana_in,
    hooks_in,
    named_apart,
    targets_in,
)
from orchestrator.config.cluster import ClusterFile
from orchestrator.config.faults import validate
from orchestrator.config.merging import ForceMergeSpec
from orchestrator.config.playbook_parts import LIMITS, USUAL, LimitsSpec, PlaybookKeys
from orchestrator.config.riak_playbook import RiakPlaybookSpec
from orchestrator.config.spec import (
    MAPPING,
    NOT_EMPTY,
    SCALAR,
    ByteSize,
    Duration,
    ElasticsearchKind,
    Name,
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
from orchestrator.model.policy import Deadlines, RecoveryLimits


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


_LIMITS: Final = RecoveryLimits()


class RecoveryLimitsSpec(Spec):
    """Limits of the cluster that are raised for the run. The original values are restored afterwards."""

    node_initial_primaries_recoveries: Positive | None = Field(
        default=_LIMITS.node_initial_primaries_recoveries,
        description="Primaries of a returned node that start at a time, from its own disk.",
    )
    node_concurrent_recoveries: Positive | None = Field(
        default=_LIMITS.node_concurrent_recoveries,
        description="Other recoveries at a time, in and out of a node. With 2, the cluster's default, the"
        " last nodes wait.",
    )
    max_bytes_per_sec: ByteSize | None = Field(
        default=_LIMITS.max_bytes_per_sec,
        description="Bytes a second that a node copies. A higher rate has slowed queries down.",
    )
    concurrent_streams: Positive | None = Field(
        default=_LIMITS.concurrent_streams,
        description="Files copied at a time. Only for versions that have it (before 5).",
    )


class DeadlinesSpec(LimitsSpec):
    """Limits of every wait. At a limit the run stands down: settings restored, nodes up, exit code 3 or 4."""

    withheld: Unset[Duration] = Field(
        default=None,
        description="Longest time that allocation stays disabled, for any reason. Default: 30m; 60m with"
        " `--reboot` and for an upgrade.",
        examples=["30m"],
    )
    install: Duration = Field(
        default=Deadlines().install,
        description="Longest wait for an install step of an upgrade. The step itself is never ended.",
    )


class PlaybookSpec(PlaybookKeys):
    """A playbook for Elasticsearch and OpenSearch."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "hasten_handoff": "only for `kind: riak`; here `recovery_limits` make recovery faster",
        "transfer_limit": "only for `kind: riak`; here `recovery_limits` are what is raised",
    }

    kind: ElasticsearchKind = Field(description="Kind of cluster.")
    deadlines: DeadlinesSpec = Field(default_factory=DeadlinesSpec, description=LIMITS)
    min_started_copies: Positive = Field(
        default=USUAL.min_started_copies,
        description="In-sync copies of every shard that stay started outside the wave. With 0, the shard is"
        " red. With 1, the first write leaves a single valid copy (in-sync allocation, 5.0 and later).",
    )
    min_capacity: Annotated[Share, AfterValidator(_below_all)] = Field(
        default=USUAL.min_capacity,
        description="Share of the data nodes of each tier that stays up. With half a tier down shards may be"
        " safe, but queries are slow.",
    )
    overlap_recovery: Unset[StrictBool] = Field(
        default=None,
        description="Whether the next wave may stop while copies still recover in which it has no part. It"
        " saves time where recoveries take longer than a node's absence. With `false` a wave waits for all"
        " copies that were there before the run. Default: `true` for a restart; for an upgrade `false`, so"
        " that a wave shows first that its copies recover with the new version.",
        examples=[True],
    )
    master_step_down: StrictBool = Field(
        default=USUAL.master_step_down,
        description="Whether an elected master hands over before its stop. The election takes about a second"
        " with and without it. The voting exclusion makes the voting configuration smaller, so it is not used"
        " with fewer than five voters.",
    )
    accept: AcceptSpec = Field(default_factory=AcceptSpec, description="Accepted faults of the cluster.")
    allocation_while_down: Annotated[Literal["primaries", "none"], BeforeValidator(_refuse_new_primaries)] = (
        Field(
            default="primaries",
            description="Allocation while a node is down. `primaries`: no copy is rebuilt elsewhere, and a"
            " new index still gets its primary. `none`: new indices are red meanwhile. `new_primaries` is"
            " refused: the primaries of the returned node would not start.",
        )
    )
    zero_replica_indices: ZeroReplicasSpec = Field(
        default="refuse",
        description="Indices without replicas are unavailable while their node is down. `refuse`: the run"
        " holds and names them. `{accept: [names]}`: these may be unavailable. `add_replica`: they get a"
        " replica for the run; it is removed at the end, when all copies are started.",
    )
    recovery_limits: RecoveryLimitsSpec = Field(
        default_factory=RecoveryLimitsSpec,
        description="Limits that are raised for the run and then restored; a higher original value is kept. A"
        " limit of null is not changed. The numbers come from restarts of a 30-node, 8 TB cluster.",
    )
    flush: StrictBool = Field(
        default=USUAL.flush,
        description="Whether indices are flushed before a stop, so that little translog has to be replayed.",
    )
    rebalance_while_running: Literal["none", "primaries", "replicas", "all"] | None = Field(
        default="none",
        description="Rebalancing during the run: moving shards make every wait longer. Null: not changed.",
    )
    force_merge: ForceMergeSpec = Field(
        default_factory=ForceMergeSpec,
        description="How `post-bulk-index` and `force-merge` merge. No other command merges.",
    )
    upgrade: Unset[UpgradeSpec] = Field(
        default=None,
        description="How `orchestrate upgrade` installs a version on a host while its node is down"
        " (`orchestrate explain how-to/upgrade` has examples). Default: no upgrade.",
    )


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
