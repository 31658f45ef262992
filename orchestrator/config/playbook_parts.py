"""The keys that the playbook of every kind of cluster has."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, StrictBool, StrictInt

from orchestrator.config.around import NOTIFY, NotifyTargets, RunHookSpec
from orchestrator.config.gates import GatesSpec
from orchestrator.config.management import (
    CONFIGURATION_MANAGEMENT,
    MANAGEMENT_UNITS,
    USUAL_UNITS,
    ManagementUnit,
)
from orchestrator.config.merging import MergeFlags
from orchestrator.config.selection import CONFIG_FILES, ConfigFiles
from orchestrator.config.spec import Duration, Later, Name, NodeBudget, NodeCommandLine, Spec, Unset
from orchestrator.config.upgrade import UpgradeSpec
from orchestrator.model.policy import (
    ConfigurationManagement,
    Deadlines,
    Hook,
    Kind,
    LeasePlace,
    Policy,
    RecoveryLimits,
    Strategy,
)

USUAL: Final = Policy(kind=Kind.ELASTICSEARCH, cluster="")
"""The defaults of the keys that a policy has under the same name."""
_LIMITS: Final = Deadlines()


LIMITS: Final = "Limits of every wait. At a limit the run stands down, with nodes up and settings restored."


class SettleSpec(Spec):
    """When a node counts as ready."""

    consecutive: Annotated[StrictInt, Field(ge=1, le=100)] = Field(
        default=USUAL.settle_consecutive,
        description="Good readings in a row after which a node counts as back. One is not enough: it can be"
        " old, handoff of Riak can pause for a minute, and a Riak node that was just started reports only its"
        " own part of it.",
    )


class LimitsSpec(Spec):
    """Limits of every wait. At a limit the run stands down: settings restored, nodes up, exit code 3 or 4."""

    stop: Duration = Field(
        default=_LIMITS.stop,
        description="Longest wait for a service to stop. Large heaps, slow disks and many open files need"
        " minutes.",
    )
    start: Duration = Field(default=_LIMITS.start, description="Longest wait for a service to start.")
    rejoin: Duration = Field(
        default=_LIMITS.rejoin,
        description="Longest wait for a started node to join: until the elected master lists it; of Riak,"
        " until its peers see its key-value store, and all its partitions run.",
    )
    refused: Duration = Field(
        default=_LIMITS.refused,
        description="Longest wait for a cluster that refuses the credentials of the run.",
    )
    recover: Duration = Field(
        default=_LIMITS.recover,
        description="Longest wait for the copies that were there before the wave; of Riak, for every"
        " transfer. Whole copies of large nodes take hours, as does all data that was written during a long"
        " absence.",
    )
    hold: Duration = Field(
        default=_LIMITS.hold, description="Longest wait for the predicates that hold the next wave."
    )
    gate: Duration = Field(default=_LIMITS.gate, description="Longest wait for a closed gate to open.")
    reboot: Duration = Field(
        default=_LIMITS.reboot,
        description="Longest wait for a machine after a reboot. The firmware checks of a server can take ten"
        " minutes and more.",
    )


class HookSpec(Spec):
    """A command at a moment of a node's restart. If it fails, the run stands down, with the node up."""

    run: NodeCommandLine = Field(
        description="Command line; `{node}` is the node's name, of Riak the full one: `riak@riak1`."
    )
    local: StrictBool = Field(default=False, description="On this machine instead of the node's.")
    timeout: Duration = Field(
        default=Hook(run="").timeout, description="After this time the hook has failed."
    )


class HooksSpec(Spec):
    """Commands by moment, in order."""

    before_stop: tuple[HookSpec, ...] = Field(
        default=(), description="Before the node is stopped, such as `depool {node}`."
    )
    while_stopped: tuple[HookSpec, ...] = Field(default=(), description="While its process is down.")
    after_recovery: tuple[HookSpec, ...] = Field(
        default=(), description="When its copies have recovered, such as `pool {node}`."
    )
    run_started: tuple[RunHookSpec, ...] = Field(default=(), description="When a run starts or is resumed.")
    run_held: tuple[RunHookSpec, ...] = Field(
        default=(), description="When predicates hold the run, such as `page on-call`."
    )
    run_ended: tuple[RunHookSpec, ...] = Field(default=(), description="When the run has ended.")


class PlaybookKeys(Spec):
    """The keys that all playbooks have. A key with the name of a field of `Policy` is taken over as it is."""

    FILE: ClassVar[str] = "playbook"
    NO_UPGRADE: ClassVar[str] = "it has no upgrades here"  # why there are none; empty if there are
    USUAL_FILES: ClassVar[tuple[str, ...]] = ()  # `config_files`, if it is not given

    kind: Kind = Field(description="Kind of cluster.")
    strategy: Strategy = Field(
        default=USUAL.strategy,
        description="How nodes are grouped into waves. `node`: one node at a time, in the order that the"
        " vendor documents for a rolling restart. `zone`: the nodes of one awareness zone together (Riak 3:"
        " of one location), as many as the predicates allow. `shard-safe`: the largest sets of nodes that no"
        " shard needs together; of Riak sets with which every preference list keeps its quorum, within a"
        " location if there are any.",
    )
    max_unavailable: Unset[NodeBudget] = Field(
        default=None,
        description="Nodes that may be away at once: a number, or a percentage of all nodes (rounded"
        " down, at least 1). Default: 1 with `node`, the whole zone or location with `zone`; with"
        " `shard-safe` as many as in the largest zone or location, without them a third of the nodes, and of"
        " each tier.",
        examples=[1],
    )
    lease: LeasePlace = Field(
        default=USUAL.lease,
        description="Where the lease is. `cluster`: also in the cluster state, of Riak in a file on a"
        " majority of the hosts, so that another machine sees the run and can restore the settings without"
        " this one. `state`: in the state database alone; nothing is written to the hosts.",
    )
    settle: SettleSpec = Field(default_factory=SettleSpec, description="When a node counts as back.")
    deadlines: LimitsSpec = Field(default_factory=LimitsSpec, description=LIMITS)
    on_failure: Literal["stand_down"] = Field(
        default="stand_down",
        description="After a failure: the run stands down and can be resumed. There is no other value.",
    )
    tune: Unset[Name] = Field(
        default=None,
        description="Name or path of a tuning profile. It is applied to the hosts while their nodes are"
        " down. Default: only with `--tune`. Erlang's schedulers need this: Riak reads them only when it"
        " starts.",
        examples=["elasticsearch"],
    )
    configuration_management: ConfigurationManagement = Field(
        default=USUAL.configuration_management, description=CONFIGURATION_MANAGEMENT
    )
    management_units: tuple[ManagementUnit, ...] = Field(default=USUAL_UNITS, description=MANAGEMENT_UNITS)
    config_files: Unset[ConfigFiles] = Field(
        default=None,
        description=CONFIG_FILES,
        examples=[["/etc/elasticsearch/elasticsearch.yml", "/etc/elasticsearch/jvm.options.d"]],
    )
    gates: GatesSpec = Field(
        default=(),
        description="External conditions, checked before every wave and at the last reading before each stop."
        " While one is closed, the run waits, at most `deadlines.gate` (`orchestrate explain how-to/gates`).",
    )
    hooks: HooksSpec = Field(
        default_factory=HooksSpec,
        description="Your commands around each restart, on the node's host or, with `local: true`, on this"
        " machine. If one fails, the run stands down with the node up. Those of `run_…` are about the run"
        " itself: on this machine, with the event as JSON on standard input, and a failure is a warning"
        " (`orchestrate explain write-hooks`).",
    )
    notify: NotifyTargets = Field(default=(), description=NOTIFY)
    windows: Later = Field(default=None, description="Maintenance windows.")

    def in_policy(self, policy: Policy, merge: MergeFlags | None) -> Policy:
        """The policy with the keys that only this kind has; `merge`: the flags of a command that merges."""
        del merge
        nothing = RecoveryLimits(**dict.fromkeys(each.name for each in fields(RecoveryLimits)))
        return replace(policy, recovery_limits=nothing, flush=False, rebalance_while_running=None)

    def installs(self) -> UpgradeSpec | None:
        """How a version is installed; None if the playbook does not say."""
        return None
