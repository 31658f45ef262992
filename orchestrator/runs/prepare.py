"""From a policy to a plan: the first reading of the cluster, the start of a run, and its steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from orchestrator.config.gates import secrets_of
from orchestrator.config.policy import Overrides
from orchestrator.engine.fold import replay
from orchestrator.engine.plan import empty_plan, make_plan
from orchestrator.engine.progress import GOING_UP_OR_DOWN
from orchestrator.engine.state import RunState
from orchestrator.engine.waves import undated
from orchestrator.errors import JournalError, LeaseError, PlanMismatch, UsageError
from orchestrator.hosts.services import require_names
from orchestrator.kinds import kind_of
from orchestrator.model.event import RunStarted
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import EVERYTHING, ClusterView, Look, Observation, SettingsView
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Policy
from orchestrator.model.reading import NOT_READ, Reading, Unknown
from orchestrator.next_command import next_command
from orchestrator.ports import ClusterReadings
from orchestrator.riak.rules.recovery import planned_too
from orchestrator.runs.attempt import Attempt, driven
from orchestrator.runs.connection import Connection, PolicySource
from orchestrator.runs.dead_run import DeadRun, dead_run, lease_record
from orchestrator.runs.files import SavedPlan
from orchestrator.runs.past_runs import Wanted, candidates, past_times
from orchestrator.runs.selection import (
    LoadedIndices,
    find_bulk_indices,
    nothing_due,
    only_due,
    only_to_upgrade,
    require_cluster,
    require_zones,
    start_of,
)
from orchestrator.runs.surroundings import require_surroundings
from orchestrator.runs.takeover import new_run, release_dead, restore_others
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.executor import Executor
from orchestrator.runtime.lease import ClusterHolder
from orchestrator.runtime.store import RunEntry, StateMissing
from orchestrator.view.progress import half_done
from orchestrator.view.text import counted, listed

_PLANNED: Final = EVERYTHING - {Look.RECOVERIES} | {Look.STORED}
"""A plan uses no recoveries; how long a node takes depends on what it holds."""
_REPORT_SECONDS: Final = 30.0
"""The run waits this long for a node that has just joined, or hangs briefly, to report its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What is known before a run begins. Nothing is changed yet."""

    connection: Connection
    view: ClusterView  # the first reading of the cluster
    started: RunStarted  # how the run would begin
    loaded: LoadedIndices | None = None  # the indices of a bulk load; None for a restart alone
    # what a dead run left: `view` and `started` are as they will be when this run has restored it
    left: DeadRun | None = None
    holder: ClusterHolder | None = None  # the run that has the cluster now, or may have it
    before: Sequence[str] = ()  # what was restored of dead runs already, for the end of the run

    @property
    def not_due(self) -> str | None:
        """Why there is nothing to do; None when there is something."""
        if self.loaded is not None:
            return self.loaded.nothing_to_do
        return None if self.started.nodes else nothing_due(self.view.name, self.started.policy)

    @property
    def access(self) -> Mapping[str, str]:
        """How the cluster and the hosts of the run are reached, and how their services are stopped."""
        return self.connection.ports.access(self.started.nodes)

    def plan(self) -> Plan:
        """What the run would do. Writes nothing, takes no lease."""
        if self.not_due:
            seen = Observation(at=self.connection.process.now, cluster=self.view)
            kind = kind_of(self.started.policy.kind)
            return self._with_merges(empty_plan(kind, self.started, seen, self.access))
        plan = self.plan_of(self.observe())
        _warn_of_blind_waves(self.connection, plan)
        return self._with_merges(plan)

    def plan_of(self, seen: Observation) -> Plan:
        """The plan of a restart alone, made from this observation."""
        ports, times = self.connection.ports, past_times(self.connection.state, self.view.name)
        describe = Executor(ports.cluster, ports.hosts(self.started.addresses)).describe
        kind = kind_of(self.started.policy.kind)
        return make_plan(kind, self.started, seen, describe=describe, times=times, access=self.access)

    def _foreseen(self) -> Plan:
        """A plan for its times alone, of a run without a plan: no host and no gate is asked."""
        started = replace(self.started, policy=replace(self.started.policy, tune=None, gates=()))
        seen = self._restored(
            self.connection.ports.cluster.observe(_PLANNED).seen(self.connection.process.now)
        )
        hosts = dict.fromkeys(started.nodes, NOT_READ)
        bulk = self.loaded.bulk if self.loaded else NOT_READ
        return replace(self, started=started).plan_of(replace(seen, hosts=hosts, bulk=bulk))

    def observe(self, look: Collection[Look] = _PLANNED) -> Observation:
        """Everything that a plan uses, hosts and gates included.

        Args:
            look: the parts of the cluster to read; the timers too, where handoff is hastened.
        """
        connection, started = self.connection, self.started
        hosts, nodes = connection.ports.hosts(started.addresses), counted(len(started.nodes), "node")
        at, profile, upgrade = connection.process.now, started.policy.tune, started.policy.upgrade
        upgrading = {Look.UPGRADE, Look.MODES} if upgrade else set[Look]()
        with connection.process.reading(f"cluster {self.view.name} and the hosts of {nodes}"):
            seen = replace(
                connection.ports.cluster.observe({*look, *upgrading, *planned_too(started.policy)}).seen(at),
                readiness=hosts.readiness(started.nodes, upgrade) if upgrade else {},
                hosts=hosts.observe(started.nodes, rights=True, reboot=started.policy.reboot),
                tuning=hosts.tuning(started.nodes, profile) if profile else {},
                bulk=self.loaded.bulk if self.loaded else NOT_READ,
                gates=connection.ports.gates(started.policy.gates).observe(),
            )
        return self._restored(seen)

    def _restored(self, seen: Observation) -> Observation:
        """The observation that the first decision of the run will have, as far as it is known now."""
        return seen if self.left is None else self.left.restored(seen, self.started.policy)

    def _with_merges(self, plan: Plan) -> Plan:
        merge = self.started.policy.merge
        if self.loaded is None or merge is None:
            return plan
        targets, left = self.started.indices, self.loaded.left
        return replace(plan, max_segments=merge.max_segments, merges=targets, leftovers=left)

    def held_or_left(self) -> tuple[str, ...]:
        """Notes on the run that holds the cluster, or has left changes; a new run handles that itself."""
        if self.left is not None:
            verb = "upgrade" if self.started.policy.upgrade else "restart"
            run, command = self.left.record.debtor, self.connection.command
            return (
                self.left.words(self.connection.process.now).sentence(f"this {verb}"),
                *("To restore it alone:", f"    {command('restore', run)}"),
            )
        if self.holder is None:
            return ()
        ends = "it has ended" if self.holder.here else "it has ended or its heartbeat stops"
        now = "This plan shows the cluster as it is now, held by what that run has changed and restores"
        return (
            f"{self.holder.refusal()}. A new run can begin when {ends}",
            f"{now}: change none of it by hand",
        )

    def half_done(self) -> str | None:
        """A note that the last run on this cluster can be resumed: a new run restarts its nodes once more."""
        try:
            with self.connection.state(DatabaseUse.READ) as store:
                last = next(iter(store.runs(cluster=self.view.name, limit=1)), None)
                if last is None or last.outcome is None or not last.unfinished:
                    return None
                past = replay(last.run, store.replay(last.run))
        except StateMissing:
            return None
        if not (done := half_done(past)):
            return None
        all_again = "all" if self.loaded is None else "the nodes that now need a restart"
        if (upgrade := self.started.policy.upgrade) is not None:
            all_again = f"those that do not run {upgrade.target}: steps that others still need are left out"
        how, resume = last.outcome.value, self.connection.command("resume", last.run)
        begins = f"continues with the others; this run starts again with {all_again}"
        return f"run {last.run} ended {how} with {done}: `{resume}` {begins}"

    def restored(self, agreed: Plan | None = None) -> Preparation:
        """The same once what a dead run left is restored, its lease too: all is read again after that.

        A node that was down may have another version than the others, and be due.

        Args:
            agreed: a plan that was shown or saved.

        Raises:
            PlanMismatch: other nodes than those of that plan are due now.
            RestoreFailed: that was not restored.
            LeaseError: a run that has pending changes is alive.
            JournalError: something is to be restored, and the state cannot be written.
        """
        with self.connection.state(DatabaseUse.WRITE) as store:
            before = restore_others(self.connection, store, "", self.started)
            if not before:
                try:
                    release_dead(self.connection, store, self.started)
                except LeaseError as error:  # the records are only tidied up: they hold no run
                    self.connection.process.warn(str(error))
        if not before and self.left is None:
            return self
        after = replace(self._read_again(), before=before)
        if agreed is not None:
            _require_same_nodes(after.started, self.started)
        return after

    def run(self, plan: Plan | None) -> RunState:
        """Take the lease, restore what a dead run left, and run to the end.

        Args:
            plan: a plan that was shown or saved, which no wave exceeds; None when there was none.

        Returns:
            The last state of the run; or of the run that restored what a dead run left, where that failed.

        Raises:
            LeaseError: another run holds the cluster.
            JournalError: the state cannot be written; nothing was changed.
            PlanMismatch: the plan does not fit the cluster after that was restored.
        """
        with self.connection.state(DatabaseUse.WRITE) as store:
            planned = tuple(wave.nodes for wave in plan.waves) if plan else ()
            started = replace(self.started, planned=planned, forecast=(plan or self._foreseen()).forecast)
            agreed = plan is not None

            def begin() -> Attempt:
                first, before = started, self.before
                if self.left is not None:  # nodes were down in the first reading
                    before = restore_others(self.connection, store, "", started)
                    first = self._again(started, agreed=agreed)
                again = partial(self._again, started, agreed=agreed)
                return new_run(self.connection, store, first, again=again, before=before)

            return driven(begin)

    def _again(self, before: RunStarted, *, agreed: bool) -> RunStarted:
        """How the run begins after a dead run's changes were restored: the cluster has other members now.

        Raises:
            PlanMismatch: a plan was agreed to, and other nodes are due now.
        """
        fresh = self._read_again().started
        if agreed:
            _require_same_nodes(fresh, before)
        return replace(fresh, planned=before.planned, forecast=before.forecast)

    def _read_again(self) -> Preparation:
        """The same policy on another first reading."""
        restarts = self.loaded is None or self.loaded.restarts
        first = _first_reading(self.connection)
        return _started(self.connection, first, self.started.policy, restarts=restarts)


def _require_same_nodes(now: RunStarted, agreed: RunStarted) -> None:
    """Refuse other nodes than those that a person has agreed to; raises `PlanMismatch`."""
    more = [name for name in now.nodes if name not in agreed.nodes]
    less = [name for name in agreed.nodes if name not in now.nodes]
    if more or less:
        said = [f"{listed(more)} would be restarted too"] if more else []
        said += [f"{listed(less)} would not be restarted"] if less else []
        raise PlanMismatch(
            f"the plan does not fit {now.cluster} since the changes of the dead run were restored: "
            f"{' and '.join(said)}; no node was stopped: make a new plan"
        )


def _before_this(
    connection: Connection, first: _First, policy: Policy, *, asks: bool
) -> tuple[DeadRun | None, ClusterHolder | None]:
    """What a dead run left on the cluster; or the run that has it, if its process is not known to be gone.

    Raises:
        LeaseError: a question would follow, and the process of that run certainly runs.
    """
    view, process = first[0], connection.process
    record = lease_record(connection.ports, policy.lease, view.uuid, connection.recorded)
    left = dead_run(record, connection.recorded, process.gone)
    if not isinstance(record, LeaseRecord) or process.gone(record.process):
        return left, None
    state = ""
    with suppress(JournalError):  # only for the commands that name it
        runs = connection.recorded(lambda store: store.runs(cluster=view.name), tuple[RunEntry, ...]())
        state = connection.kept_in if record.run in {entry.run for entry in runs} else ""
    holder = ClusterHolder.of(view.name, record, state=state, alive=process.alive)
    if asks and holder.here:
        raise holder.refusal()
    return left, holder


def _as_restored(connection: Connection, first: _First, policy: Policy, left: DeadRun | None) -> _First:
    """The first reading as it will be when that is restored."""
    if left is None:
        return first
    seen = Observation(at=connection.process.now, cluster=first[0], settings=first[1])
    after = left.restored(seen, policy)
    return first[0] if isinstance(after.cluster, Unknown) else after.cluster, after.settings


def prepare(
    connection: Connection, source: PolicySource, *, restarts: bool = True, asks: bool = False
) -> Preparation:
    """Read the cluster for the first time, and work out how a run would begin.

    Args:
        connection: the cluster.
        source: the policy, from `ClusterPorts.policy`.
        restarts: False for a bulk load whose indices are merged and whose nodes are left alone.
        asks: whether a person is asked next: not while another run is certainly at work.

    Raises:
        OrchestratorError: flags, secrets, cluster, zones or selection are wrong.
        LeaseError: a person would be asked, and another run is at work.
    """
    connection.ports.require_secrets(source.secrets)
    require_surroundings(connection, source.build(None).playbook)
    first = _first_reading(connection)
    policy = source.build(len(first[0].nodes))
    left, holder = _before_this(connection, first, policy, asks=asks)
    view, settings = first = _as_restored(connection, first, policy, left)
    policy = policy if left is None else source.build(len(view.nodes))
    prepared = _prepared(connection, first, policy, restarts=restarts)
    prepared = replace(prepared, left=left, holder=holder)
    _warn_of_endpoints(connection)
    if restarts:
        require_zones(view, settings, prepared.started.policy, connection.ports.source)
        require_names(prepared.started.policy, prepared.started.nodes)
    return prepared


def prepare_saved(
    connection: Connection, saved: SavedPlan, *, asks: bool = False
) -> tuple[Preparation, Plan]:
    """The same for a saved plan, whose policy is fixed; and the plan, if it is still the same.

    Raises:
        PlanMismatch: the plan that would be made now is another one.
        LeaseError: as `prepare`.
    """
    ports = connection.ports
    # First of all: a secret, a host or the cluster itself may only be read as the plan says.
    if (changed := saved.access_differs(ports.access(saved.nodes))) is not None:
        raise _mismatch(ports.name, changed)
    ports.require_secrets(secrets_of(saved.policy))
    require_surroundings(connection, saved.policy.playbook)
    first = _first_reading(connection)
    left, holder = _before_this(connection, first, saved.policy, asks=asks)
    view, _ = first = _as_restored(connection, first, saved.policy, left)
    if unknown := [name for name in saved.nodes if name not in view.members]:
        raise _mismatch(view.name, f"it restarts {', '.join(unknown)}, and there is no such node")
    require_names(saved.policy, saved.nodes)
    prepared = replace(_prepared(connection, first, saved.policy), left=left, holder=holder)
    _warn_of_endpoints(connection)
    now = prepared.plan()
    if now.fingerprint != saved.fingerprint:
        raise _mismatch(view.name, saved.differs_from(now))
    return prepared, now


def prepare_restore(connection: Connection, playbook: str | None) -> RunStarted:
    """How a run on the cluster would begin, for a restore from the cluster's own record. Zones do not matter.

    Args:
        connection: the cluster.
        playbook: name or path; None takes that of the cluster file.

    Raises:
        OrchestratorError: the playbook is wrong, or the cluster cannot be read.
    """
    source = connection.ports.policy(playbook, Overrides())
    first = _first_reading(connection)
    return _prepared(connection, first, source.build(len(first[0].nodes))).started


def _warn_of_endpoints(connection: Connection) -> None:
    """Warn of endpoints that do not answer: a run has fewer left while nodes are down."""
    for wrong in connection.ports.dead_endpoints():
        connection.process.warn(f"{wrong}; the other endpoints are used")


def _warn_of_blind_waves(connection: Connection, plan: Plan) -> None:
    """Warn of waves during which nothing of the cluster can be read."""
    through = connection.ports.only_through([wave.nodes for wave in plan.waves])
    blind = [str(wave.number) for wave in plan.waves if through and through.nodes.issubset(wave.nodes)]
    if blind:
        connection.process.warn(f"blind in wave {', '.join(blind)}: {through}")


def _mismatch(cluster: str, why: str) -> PlanMismatch:
    return PlanMismatch(
        f"the saved plan does not fit {cluster}: {why}; make a new plan (`{next_command('plan', '--out')}`)"
    )


_First = tuple[ClusterView, Reading[SettingsView]]


def _first_reading(connection: Connection) -> _First:
    """Cluster and settings; read again, within a limit, while a member has not reported its process.

    Raises:
        UsageError: the cluster cannot be read, or is another one.
    """
    ports = connection.ports
    with connection.process.reading(f"cluster {ports.name}"):
        read = _settled_reading(connection)
    try:
        return require_cluster(read.cluster, ports.name, ports.source), read.settings
    except UsageError as error:
        if not isinstance(read.cluster, Unknown):
            raise
        raise UsageError(f"{error}{_stopped_here(connection)}") from error


def _settled_reading(connection: Connection) -> ClusterReadings:
    """Read it until every member has reported its process, or the limit is reached."""
    ports, process = connection.ports, connection.process
    limit, waiting = process.now + _REPORT_SECONDS, False
    while True:
        read = ports.cluster.observe({Look.CLUSTER, Look.SETTINGS})
        unknown = read.cluster
        if not (isinstance(unknown, Unknown) and unknown.passes and process.now < limit):
            return read
        if not waiting:
            process.tell(f"waiting up to {_REPORT_SECONDS:.0f} s for the first reading: {unknown.reason}")
        waiting = True
        process.clock.wait(1.0)


def _stopped_here(connection: Connection) -> str:
    """The nodes that the last run here has left down, without which the cluster may have no master."""
    try:
        with connection.state(DatabaseUse.READ) as store:
            for last in candidates(store.runs(), Wanted.RESTORE, connection.ports.name):
                state = replay(last.run, store.replay(last.run))
                down = ", ".join(node.name for node in state.nodes_in(*GOING_UP_OR_DOWN))
                if down and last.outcome is None:
                    return (
                        f"; run {last.run} stopped {down} and has not started it again: if that run was "
                        f"killed, `{connection.command('resume', last.run)}` starts {down} first"
                    )
    except StateMissing:
        return ""
    except JournalError as error:
        return f"; whether a run here left a node down is not known: {error}"
    return ""


def _prepared(connection: Connection, first: _First, policy: Policy, *, restarts: bool = True) -> Preparation:
    """How a run with this policy would begin, with warnings of what is odd."""
    with connection.process.reading(f"what is due on cluster {first[0].name}"):
        prepared = _started(connection, first, policy, restarts=restarts)
    process, ports, view = connection.process, connection.ports, prepared.view
    unknown = undated(view, policy.selection, prepared.started.policy.zone_attribute)
    if unknown:
        process.warn(
            f"{', '.join(unknown)} did not show when the process started: left out (--started-before)"
        )
    for warning in ports.warnings_for(ports.members(view)):
        process.warn(warning)
    return prepared


def _started(connection: Connection, first: _First, policy: Policy, *, restarts: bool) -> Preparation:
    """How a run with this policy would begin."""
    view, settings = first
    started = start_of(
        view,
        settings,
        policy,
        operator=connection.process.operator,
        host=connection.process.host,
        cluster_file=connection.ports.cluster_file,
    )
    started = only_to_upgrade(connection, view, only_due(connection, view, started))
    loaded = find_bulk_indices(connection, view, started, restarts=restarts) if policy.merge else None
    started = loaded.started if loaded else started
    if policy.tune:
        started = _with_data_paths(connection, started)
    return Preparation(connection=connection, view=view, started=started, loaded=loaded)


def _with_data_paths(connection: Connection, started: RunStarted) -> RunStarted:
    """Record where the nodes keep their data: tuning needs it while they are down."""
    known = connection.ports.data_paths(started.nodes)
    if isinstance(known, Unknown):
        connection.process.warn(
            f"where the nodes keep their data is not known ({known.reason}): name it in `hosts.data`"
        )
        return started
    return replace(started, data_paths={name: known[name] for name in started.nodes if name in known})
