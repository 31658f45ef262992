"""The playbook of a Riak cluster: its keys, and why the other keys do not apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import Field, StrictBool, StrictInt

from orchestrator.config.playbook_parts import LIMITS, USUAL, LimitsSpec, PlaybookKeys
from orchestrator.config.spec import RiakKind

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


class RiakPlaybookSpec(PlaybookKeys):
    """A playbook for Riak."""

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
