"""The playbook of a Riak cluster: its keys, and why the other keys do not apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, StrictBool, StrictInt

from orchestrator.config.around import NOTIFY, NotifyTargets
from orchestrator.config.gates import GatesSpec
from orchestrator.config.management import (
    CONFIGURATION_MANAGEMENT,
    MANAGEMENT_UNITS,
    USUAL_UNITS,
    ManagementUnit,
)
from orchestrator.config.playbook_parts import HooksSpec, LimitsSpec, SettleSpec
from orchestrator.config.selection import CONFIG_FILES, ConfigFiles
from orchestrator.config.spec import Later, Name, NodeBudget, RiakKind, Spec, Unset
from orchestrator.model.policy import ConfigurationManagement, LeasePlace, Strategy

TRANSFER_LIMIT: Final = 8
"""With Riak's default of 2 a restarted node waits for minutes (seen); Riak's help calls 8 a common value."""
MOST_TRANSFERS: Final = 1000
"""More than any node needs: a larger number is probably meant in another unit, such as bytes."""

_MASTER: Final = "not for `kind: riak`: it has no master"
_COPIES: Final = "not for `kind: riak`: its rule is preference_lists_keep_quorum"
_ALLOCATION: Final = "not for `kind: riak`: it allocates nothing; other nodes stand in while one is down"
UPGRADES_LATER: Final = (
    "upgrades of Riak come with a later version; until then a hook of `while_stopped` installs packages"
    " during a restart"
)
_UPGRADE: Final = f"not for `kind: riak`: {UPGRADES_LATER}"


class RiakDeadlinesSpec(LimitsSpec):
    """Limits of every wait of a run on Riak. At a limit the run stands down, as with Elasticsearch."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {"withheld": _ALLOCATION, "install": _UPGRADE}


class RiakPlaybookSpec(Spec):
    """A playbook for Riak."""

    FILE: ClassVar[str] = "playbook"
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
    strategy: Strategy = Field(
        default=Strategy.NODE,
        description="How nodes are grouped into waves: one node at a time, the nodes of one location (from"
        " 3.0 on), or the largest sets of nodes that can be down together (of one location, if there are"
        " any). Every preference list keeps its quorum.",
    )
    max_unavailable: Unset[NodeBudget] = Field(
        default=None,
        description="Nodes that may be away at once: a number, or a percentage of all nodes (rounded"
        " down, at least 1). Default: 1 with `node`, the whole location with `zone`; with `shard-safe` as"
        " many as the largest location has, without locations a third of the nodes.",
    )
    lease: LeasePlace = Field(
        default=LeasePlace.CLUSTER,
        description="Where the lease is: also in a file on the hosts, for every machine to see, or in"
        " the state database alone; then nothing is written to the hosts.",
    )
    transfer_limit: Annotated[StrictInt, Field(ge=1, le=MOST_TRANSFERS)] | None = Field(
        default=TRANSFER_LIMIT,
        description="Transfers that a node may have at once during the run: raised, never lowered, and"
        " restored node by node. Null: not changed.",
    )
    hasten_handoff: StrictBool = Field(
        default=False,
        description="Whether handoff is forced after each restart, instead of minutes of waiting for"
        " Riak's timers. Riak 3.2 only, by a call that Riak has for `support/debug purposes`.",
    )
    settle: SettleSpec = Field(default_factory=SettleSpec, description="When a node counts as back.")
    deadlines: RiakDeadlinesSpec = Field(
        default_factory=RiakDeadlinesSpec, description="Limits of every wait."
    )
    on_failure: Literal["stand_down"] = Field(
        default="stand_down", description="After a failure: the run stands down and can be resumed."
    )
    hooks: HooksSpec = Field(default_factory=HooksSpec, description="Your commands around each restart.")
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
    config_files: Unset[ConfigFiles] = Field(
        default=None,
        description=CONFIG_FILES + "those of Riak's package: `/etc/riak`, `/etc/default/riak`, drop-ins.",
    )
    notify: NotifyTargets = Field(default=(), description=NOTIFY)
    windows: Later = Field(default=None, description="Maintenance windows.")
