"""What a node's machine recorded of its turn: the judges use it instead of the program's statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.model.cluster import ShardId
from orchestrator.model.reading import Instant, Seconds
from orchestrator.model.upgrade import HostReadiness, InstallState, UpgradeView

FIT = UpgradeView(deprecations=(), snapshot_ended=None)
"""What a simulated cluster shows: nothing bars an upgrade that asks for no snapshot."""

READY = HostReadiness(keystore_password=False, free_bytes=50 << 30)
"""What a simulated host says: it can install every target."""

IN_DOUBT: Seconds = 30.0
"""A request without an answer may count as lost after this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentCopy:
    """A shard whose copy is not back on a node: number of copies that serve now, and before the stops."""

    shard: ShardId
    serving: int
    had: int

    def __str__(self) -> str:
        return str(self.shard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that a node's machine recorded."""

    at: Instant
    what: str  # `hook while_stopped 0`, `tuned vm.swappiness`, `stopped`, `began` or `booted`, `installed 0`
    alive: bool  # the node's process ran
    by: str = ""  # for an install step, the run that began it
    # for an after_recovery hook, the shards of the node whose copies were not back
    missing: tuple[AbsentCopy, ...] = ()


@dataclass(slots=True, kw_only=True)
class SimDisk:
    """The install steps of a machine: the one that was begun last, and what is on the disk."""

    ticket: str = ""
    number: int = 0
    state: InstallState | None = None  # of the step with this ticket; None where none is recorded
    began: Instant = 0.0
    ended: Instant = 0.0  # when a step ended last
    # numbers of the steps that ended well since the first of them did last
    done: set[int] = field(default_factory=set)
    holds: str = ""  # the version that is installed with all steps; empty as long as none is
    seconds: Seconds = 20.0  # how long a step takes; `fails`: how many of the next steps fail
    fails: int = 0
    # those that are installed; `loaded`: those of the process that began last
    plugins: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    ready: HostReadiness = READY  # what the host says before the first stop
    # from when until when configuration management is at work there
    managed: tuple[Instant, Instant] = (0.0, 0.0)
