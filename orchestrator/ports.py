"""What the runtime asks of the world. Real adapters and the simulation implement the same protocols.

Faults of the world come back as data (`Unknown`, `Refused`, `InDoubt`); a port raises only for defects.
Every method returns within a bounded time of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.model.action import ActionResult, ClusterAction, HostAction
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event, Record
from orchestrator.model.gate import GateView
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.merging import BulkView
from orchestrator.model.observation import (
    Activity,
    ClusterView,
    ClusterWatch,
    Disk,
    HealthView,
    HostView,
    LeaseView,
    Look,
    Observation,
    Recovery,
    SettingsView,
    Watch,
)
from orchestrator.model.phase import Outcome
from orchestrator.model.reading import NOT_READ, Instant, Reading, Seconds
from orchestrator.model.tuning import HostTuning, TuningProfile
from orchestrator.model.upgrade import HostReadiness, Upgrade, UpgradeView


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReadings:
    """What a cluster port read; parts that were not requested stay `NOT_READ`."""

    cluster: Reading[ClusterView] = NOT_READ
    settings: Reading[SettingsView] = NOT_READ
    health: Reading[HealthView] = NOT_READ
    recoveries: Reading[tuple[Recovery, ...]] = NOT_READ
    finished: Reading[tuple[Recovery, ...]] = NOT_READ
    activity: Reading[Activity] = NOT_READ
    disks: Reading[Mapping[NodeName, Disk]] = NOT_READ
    upgrade: Reading[UpgradeView] = NOT_READ

    def seen(self, at: Instant) -> Observation:
        """These parts as an observation that began then; all others are not read."""
        return Observation(
            at=at,
            cluster=self.cluster,
            settings=self.settings,
            health=self.health,
            recoveries=self.recoveries,
            finished=self.finished,
            activity=self.activity,
            disks=self.disks,
            upgrade=self.upgrade,
        )


class Clock(Protocol):
    """The time, for the core."""

    def now(self) -> Instant:
        """Seconds since the epoch; never decreases within a process, even if the system clock does."""
        ...

    def wait(self, seconds: Seconds) -> None:
        """Return after so long, or at once when a request or a signal comes in."""
        ...


class ClusterPort(Protocol):
    """How the cluster is read and changed."""

    def observe(self, look: Collection[Look]) -> ClusterReadings:
        """Read the parts asked for, in as few calls as will do."""
        ...

    def bulk(self, uuids: Collection[str]) -> Reading[BulkView]:
        """Read segments, writes, merges and settings of these indices only.

        An index that is gone is left out. If a started copy could not be read, the result is `Unknown`.
        """
        ...

    def perform(self, action: ClusterAction) -> ActionResult:
        """Do it once, with retries only where nothing can have been done."""
        ...

    def describe(self, action: ClusterAction) -> str:
        """The exact call, as `PUT /_cluster/settings {…}`; free of secrets."""
        ...

    def watch(self, watch: ClusterWatch, timeout: Seconds) -> bool:
        """Long-poll until what is watched for seems to hold (True) or the time is out (False).

        A hint to look again, never proof. Returns early on a lost connection.
        """
        ...

    def avoid(self, nodes: Collection[NodeName]) -> None:
        """Send nothing to these nodes where anything else answers: they go down or are down."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class HostPort(Protocol):
    """How the nodes' machines are reached and changed. Thread-safe: hosts are worked on in parallel."""

    def observe(
        self, nodes: Collection[NodeName], *, rights: bool, reboot: bool = False
    ) -> Mapping[NodeName, Reading[HostView]]:
        """Read each node's service and host, in parallel; with `rights`, try sudo too.

        With `reboot`, the right to reboot the host is among the rights.
        """
        ...

    def tuning(
        self, nodes: Collection[NodeName], profile: TuningProfile
    ) -> Mapping[NodeName, Reading[HostTuning]]:
        """Compare each node's host with a profile, in parallel, one round trip a host."""
        ...

    def readiness(
        self, nodes: Collection[NodeName], upgrade: Upgrade
    ) -> Mapping[NodeName, Reading[HostReadiness]]:
        """Ask each node's host whether it can install the target, in parallel. Changes nothing there."""
        ...

    def perform(self, action: HostAction) -> ActionResult:
        """Do it; a stop, a start or an install is only asked for, and its progress is read by `observe`."""
        ...

    def describe(self, action: HostAction) -> str:
        """The exact command line; free of secrets."""
        ...

    def watch(self, nodes: Collection[NodeName], timeout: Seconds) -> bool:
        """Return True as soon as the service of one of them changed its state, False at the time-out."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


class GatePort(Protocol):
    """The gates of a playbook. Each is asked once for every reading."""

    def observe(self) -> Mapping[str, Reading[GateView]]:
        """Ask all of them in parallel, by their names; one that does not answer in its time is `Unknown`."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class Listener(Protocol):
    """Waits, as a decision asks for it."""

    def listen(self, watch: Watch) -> None:
        """Return when something seems to have happened, at a request, or at `watch.until`."""
        ...


class LeasePort(Protocol):
    """The lease in the cluster. The state database has a lease of its own beside it."""

    def read(self) -> Reading[LeaseRecord | None]:
        """The record with the highest epoch; None when there is none."""
        ...

    def create(self, record: LeaseRecord) -> ActionResult:
        """Create that epoch; `Refused` when another process was first.

        Raises:
            JournalError: the lease is in a state database that cannot be written, now or in a minute.
        """
        ...

    def write(self, record: LeaseRecord) -> ActionResult:
        """Replace the record of our own epoch; `Refused` when the lease is lost (a higher epoch exists)."""
        ...

    def remove(self, epoch: int) -> ActionResult:
        """Remove every record up to this epoch; what is gone already is done."""
        ...


class ClusterLeasePort(LeasePort, Protocol):
    """A lease that a cluster keeps."""

    def try_out(self) -> ActionResult | None:
        """Create and remove a record that no run takes for a lease; None where `read` shows enough.

        `Refused` if a run could not take or release its lease.
        """
        ...


class LeaseKeeper(Protocol):
    """Our hold on the lease during a run: heartbeat, record, loss."""

    def view(self) -> LeaseView:
        """What is known of it now; never waits."""
        ...

    def confirm(self) -> Reading[LeaseView]:
        """What is known of it now, read again if the last refresh is too old to rely on.

        Called before every write. `Unknown` when it had to be read and could not be.
        """
        ...

    def publish(self, state: RunState) -> ActionResult:
        """Bring the record in the cluster up to this state, if it differs; before the state is acted on."""
        ...


class Journal(Protocol):
    """The record of a run: append only."""

    def append(self, events: Sequence[Event], at: Instant) -> Sequence[Record]:
        """Commit all of them in one durable transaction.

        Raises:
            JournalError: nothing of them is written, and nothing may be done on their strength.
        """
        ...


class Surroundings(Protocol):
    """What surrounds a run: messages and silences. It is beside the run, and raises nothing."""

    def news(self) -> Sequence[Event]:
        """Events about it since the last call, for the journal. Never waits."""
        ...

    def before_stop(self) -> None:
        """Nodes are about to be stopped: wait at most two seconds, once for each wave."""
        ...

    def ended(self, state: RunState) -> None:
        """The run has ended: wait, within a limit of its own, for what is under way."""
        ...


class Reporter(Protocol):
    """Shows a run: terminal, lines, JSON, notifications."""

    def events(self, records: Sequence[Record]) -> None:
        """These were committed."""
        ...

    def waiting(self, state: RunState, decision: Decision) -> None:
        """A decision was made on this state; what it waits for is in it."""
        ...

    def finished(self, state: RunState, outcome: Outcome) -> None:
        """The run has ended."""
        ...
