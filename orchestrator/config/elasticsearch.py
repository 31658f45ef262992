"""The files of an Elasticsearch or OpenSearch cluster: the keys that only they have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, StrictBool, Tag, model_validator

from orchestrator.config.cluster_parts import ClusterKeys, known_kind, playbook_key
from orchestrator.config.merging import ForceMergeSpec, MergeFlags, merge_policy
from orchestrator.config.playbook_parts import LIMITS, USUAL, LimitsSpec, PlaybookKeys
from orchestrator.config.reaching import AuthSpec
from orchestrator.config.secrets import SecretReference
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
    shape,
)
from orchestrator.config.upgrade import UpgradeSpec
from orchestrator.model.policy import Deadlines, Policy, RecoveryLimits, ZeroReplicas


def server_version(written: str) -> str:
    """A version of a server.

    Raises:
        ValueError: it is none.
    """
    if re.fullmatch(r"\d+\.\d+(\.\d+)?", written) is None:
        raise ValueError('must be like "8.19.0"')
    return written


def _packaged(product: str) -> tuple[str, ...]:
    return (
        *(f"/etc/{product}/{name}" for name in (f"{product}.yml", "jvm.options", "jvm.options.d")),
        f"/etc/{product}/log4j2.properties",
        f"/etc/default/{product}",
        f"/etc/sysconfig/{product}",
        f"/etc/systemd/system/{product}.service.d",
    )


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

    NO_UPGRADE: ClassVar[str] = ""
    USUAL_FILES: ClassVar[tuple[str, ...]] = (*_packaged("elasticsearch"), *_packaged("opensearch"))
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

    def in_policy(self, policy: Policy, merge: MergeFlags | None) -> Policy:
        """The policy with the keys that only these clusters have."""
        zero = self.zero_replica_indices
        return replace(
            policy,
            overlap_recovery=policy.upgrade is None
            if self.overlap_recovery is None
            else self.overlap_recovery,
            accept_red=frozenset(self.accept.red),
            accept_master_outage=self.accept.master_outage,
            accept_not_returning=self.accept.not_returning,
            zero_replicas=ZeroReplicas.ACCEPT if isinstance(zero, ZeroReplicasAccept) else ZeroReplicas(zero),
            zero_replicas_accepted=zero.accept if isinstance(zero, ZeroReplicasAccept) else (),
            recovery_limits=RecoveryLimits(**dict(self.recovery_limits)),
            merge=merge_policy(self.force_merge, merge) if merge else None,
        )

    def installs(self) -> UpgradeSpec | None:
        """How a version is installed."""
        return self.upgrade


class ClusterSpec(ClusterKeys):
    """The cluster file of Elasticsearch or OpenSearch."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {"riak": "only for `kind: riak`"}
    MERGES: ClassVar[bool] = True

    kind: Annotated[ElasticsearchKind, BeforeValidator(known_kind)] = Field(
        description="Kind of cluster. OpenSearch is `elasticsearch` too."
    )
    name: Name = Field(description="The cluster's own name (`cluster.name`). Another cluster is refused.")
    auth: Unset[AuthSpec] = Field(
        default=None, description="How to log in. Leave it out on a cluster without security."
    )
    zone_attribute: Unset[Name] = Field(
        default=None,
        description="Node attribute that names the zone. Default: the cluster's awareness attribute.",
    )
    product: Unset[Literal["elasticsearch", "opensearch"]] = Field(
        default=None,
        description="Product of the nodes, for a proxy that removes the header `X-Elastic-Product`, which"
        " Elasticsearch sends since 7.14. Only with `version`.",
    )
    version: Unset[Annotated[Name, AfterValidator(server_version)]] = Field(
        default=None,
        description="Lowest version of the nodes: `8.19.0`. A lower one is refused. Only with `product`.",
    )
    playbook: Name = playbook_key("elasticsearch-rolling-restart", "playbook")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.product is None) is not (self.version is None):
            raise ValueError("`product` and `version` go together")
        return self

    def zones_by(self) -> str | None:
        """The attribute of nodes that names their zone; None if the cluster's own settings name it."""
        return self.zone_attribute

    def logins(self) -> tuple[SecretReference, ...]:
        """The secrets with which the cluster is reached."""
        if self.auth is None:
            return ()
        basic = self.auth.basic
        return tuple(one for one in (self.auth.api_key, basic.password if basic else None) if one is not None)
