"""A run that is about to begin: the first look, the plan, and the run itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.cli.asking import require_terminal
from orchestrator.cli.begin import predicate_names, require_cluster, require_zones, start_of
from orchestrator.cli.drive import drive, exit_code
from orchestrator.cli.holding import begin, settle_others
from orchestrator.cli.loaded import Loaded, LoadedIndices
from orchestrator.cli.surroundings import Surroundings
from orchestrator.cli.world import World
from orchestrator.config.cluster import ClusterFile
from orchestrator.config.gates import secrets_in, secrets_of
from orchestrator.config.playbook import Playbook
from orchestrator.config.policy import Overrides, build_policy, profile_wanted, require_playbook
from orchestrator.engine.fold import replay
from orchestrator.engine.plan import empty_plan, make_plan
from orchestrator.engine.waves import undated
from orchestrator.errors import ExitCode, PlanMismatch
from orchestrator.merging import decide
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import RunStarted
from orchestrator.model.observation import EVERYTHING, ClusterView, Look, Observation, SettingsView
from orchestrator.model.plan import Plan
from orchestrator.model.policy import Policy
from orchestrator.model.reading import NOT_READ, Reading, Seconds
from orchestrator.runtime.database import Access
from orchestrator.runtime.executor import Executor
from orchestrator.runtime.identity import host_name, operator_name
from orchestrator.runtime.runs import past_times
from orchestrator.runtime.store import StateMissing, StateStore, open_store
from orchestrator.view.merges import half_done
from orchestrator.view.units import stamp_seconds

_PLANNED: Final = EVERYTHING - {Look.RECOVERIES}
"""A plan has no use for what recovers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """What is known before a run begins; nothing is changed yet.

    Attributes:
        view: the first reading of the cluster.
        started: how the run would begin.
        state_url: `--state`.
        loaded: what was found of the indices of a bulk load; None for a restart alone.
    """

    around: Surroundings
    world: World
    view: ClusterView
    started: RunStarted
    state_url: str | None
    loaded: LoadedIndices | None = None

    @property
    def not_due(self) -> str | None:
        """Why there is nothing to do; None when there is something."""
        if self.loaded is not None:
            return self.loaded.nothing_to_do
        before = self.started.policy.selection.started_before
        if self.started.nodes or before is None:
            return None
        return f"{self.view.name}: nothing is due: no selected node started before {stamp_seconds(before)}"

    def settle(self) -> ExitCode:
        """Instead of a run for which no node is due: what a dead run left is put back all the same.

        Raises:
            LeaseError: a run that has something in hand is alive.
            JournalError: something is to be put back, and the state cannot be written.
        """
        with self._store(Access.WRITE) as store:
            return settle_others(self.world, store, "", self.started, self.around)

    def plan(self) -> Plan:
        """What the run would do. Writes nothing, takes no lease."""
        if self.not_due:
            seen = Observation(at=self.around.clock.now(), cluster=self.view)
            return self._with_merges(empty_plan(self.started, seen))
        return self._with_merges(self.plan_of(self.observe()))

    def plan_of(self, seen: Observation) -> Plan:
        """The plan of a restart alone, made of this observation."""
        describe = Executor(self.world.cluster, self.world.hosts(self.started.addresses)).describe
        return make_plan(self.started, seen, decide=decide, describe=describe, times=self._times())

    def observe(self, look: Collection[Look] = _PLANNED) -> Observation:
        """All that a plan looks at, its hosts and gates included.

        Args:
            look: what is read of the cluster.
        """
        hosts = self.world.hosts(self.started.addresses)
        at, profile = self.around.clock.now(), self.started.policy.tune
        return replace(
            self.world.cluster.observe(look).seen(at),
            hosts=hosts.observe(self.started.nodes, rights=True),
            tuning=hosts.tuning(self.started.nodes, profile) if profile else {},
            bulk=self.loaded.bulk if self.loaded else NOT_READ,
            gates=self.world.gates(self.started.policy.gates).observe(),
        )

    def _with_merges(self, plan: Plan) -> Plan:
        merge = self.started.policy.merge
        if self.loaded is None or merge is None:
            return plan
        targets, left = self.started.indices, self.loaded.left
        return replace(plan, max_segments=merge.max_segments, merges=targets, leftovers=left)

    def tell_of_unfinished(self) -> None:
        """Say when the last run on this cluster stopped half-way: to begin anew takes its nodes once more."""
        try:
            with self._store(Access.READ) as store:
                last = next(iter(store.runs(cluster=self.view.name, limit=1)), None)
                if last is None or last.outcome is None or not last.unfinished:
                    return  # one that has no outcome lives or was killed: taking the lease tells of it
                past = replay(last.run, store.replay(last.run))
        except StateMissing:
            return
        done = half_done(past)
        if done:
            anew = "all" if self.loaded is None else "what is due by now"
            self.around.note(
                f"run {last.run} ended {last.outcome.value} with {done}: "
                f"`orchestrate resume` goes on with the others; this begins anew with {anew}"
            )

    def _times(self) -> dict[NodeName, tuple[Seconds, ...]]:
        """Times of past runs; a plan is made before the first run too."""
        try:
            with self._store(Access.READ) as store:
                return past_times(store, self.view.name)
        except StateMissing:
            return {}

    def run(self, plan: Plan | None) -> ExitCode:
        """Take the lease, put back what a dead run left behind, and go.

        Args:
            plan: what was shown, saved or agreed to, which no wave exceeds; None when there was none.

        Raises:
            LeaseError: another run holds the cluster.
            JournalError: the state cannot be written; nothing was changed.
            PlanMismatch: the plan does not fit the cluster any more once that was put back.
        """
        around = self.around
        with self._store(Access.WRITE) as store:
            planned = tuple(wave.nodes for wave in plan.waves) if plan else ()
            started = replace(self.started, planned=planned)
            begun = begin(self.world, store, started, around, again=lambda: self._again(started))
            if isinstance(begun, ExitCode):
                return begun
            return exit_code(drive(begun, around))

    def _again(self, before: RunStarted) -> RunStarted:
        """How the run begins after another one's leftovers were put back: the members are others by now.

        Raises:
            PlanMismatch: a plan was shown or saved, and it leaves out or adds a node.
        """
        view, settings = _first_look(self.world)
        around = self.around
        like = Loaded(restarts=self.loaded.restarts, state_url=self.state_url) if self.loaded else None
        fresh, _ = _started(around, self.world, view, settings, before.policy, like)
        now = replace(fresh, planned=before.planned)
        other = sorted(set(now.nodes) ^ set(before.nodes))
        if before.planned and other:
            raise _mismatch(view.name, f"what was put back brought {', '.join(other)} into the selection")
        return now

    @contextmanager
    def _store(self, access: Access) -> Iterator[StateStore]:
        store = open_store(self.state_url, self.around.environment, access=access, home=self.around.home)
        try:
            yield store
        finally:
            store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """What `apply` takes from `plan.json`; see `cli.saved`.

    Attributes:
        fingerprint: of what the plan stands on.
        nodes: in the order of the plan.
        cluster_file: the file that it was made with.
    """

    policy: Policy
    fingerprint: str
    nodes: tuple[str, ...]
    cluster_file: str


@contextmanager
def prepare(
    file: ClusterFile,
    around: Surroundings,
    *,
    playbook: str | None,
    overrides: Overrides,
    state_url: str | None,
    asks: bool = False,
    loaded: Loaded | None = None,
) -> Iterator[Fresh]:
    """Look at the cluster for the first time, and work out what is wanted.

    Args:
        file: the cluster file.
        around: the process.
        playbook: `--playbook`.
        overrides: selection and policy flags.
        state_url: `--state`.
        asks: whether a question will follow, so that a missing terminal is told before the cluster is asked.
        loaded: a bulk load whose indices are merged first; None for a restart alone.

    Raises:
        OrchestratorError: anything wrong with files, flags, secrets, cluster, zones or selection.
    """
    with _prepared(file, around, playbook, overrides, state_url, asks=asks, loaded=loaded) as (
        fresh,
        settings,
        book,
    ):
        fresh.world.require_secrets(secrets_in(book.spec.gates, book.path.resolve().parent))
        if loaded is None or loaded.restarts:
            require_zones(fresh.view, settings, fresh.started.policy, str(file.path))
        yield fresh


@contextmanager
def _prepared(
    file: ClusterFile,
    around: Surroundings,
    playbook: str | None,
    overrides: Overrides,
    state_url: str | None,
    *,
    asks: bool = False,
    loaded: Loaded | None = None,
) -> Iterator[tuple[Fresh, Reading[SettingsView], Playbook]]:
    book = around.playbook(playbook or file.spec.playbook)
    require_playbook(file, book)
    wanted = profile_wanted(file, book, overrides)
    tuning = around.tuning_profile(wanted) if wanted else None

    def policy(nodes: int) -> Policy:
        return build_policy(
            file,
            book,
            overrides,
            predicates=predicate_names(file.spec.kind),
            nodes=nodes,
            now=around.clock.now(),
            tuning=tuning,
        )

    policy(1)  # a wrong flag is told before anybody is asked anything
    if asks:
        require_terminal(around)
    world = World(file, around)
    try:
        view, settings = _first_look(world)
        fresh = _fresh(around, world, view, settings, policy(len(view.nodes)), state_url, loaded)
        yield fresh, settings, book
    finally:
        world.close()


@contextmanager
def prepare_saved(
    file: ClusterFile, around: Surroundings, *, saved: SavedPlan, state_url: str | None
) -> Iterator[tuple[Fresh, Plan]]:
    """The same for a saved plan, whose policy is fixed; and the plan, as it was found to be still the same.

    Raises:
        PlanMismatch: the plan that would be made now is another one.
    """
    world = World(file, around)
    try:
        view, settings = _first_look(world)
        strangers = [name for name in saved.nodes if name not in {node.name for node in view.nodes}]
        if strangers:
            raise _mismatch(view.name, f"it restarts {', '.join(strangers)}, and there is no such node")
        world.require_secrets(secrets_of(saved.policy))
        fresh = _fresh(around, world, view, settings, saved.policy, state_url)
        now = fresh.plan()
        if now.fingerprint != saved.fingerprint:
            raise _mismatch(view.name, _differences(saved, now))
        yield fresh, now
    finally:
        world.close()


def _mismatch(cluster: str, why: str) -> PlanMismatch:
    return PlanMismatch(
        f"the saved plan does not fit {cluster}: {why}; make a new plan (`orchestrate plan --out`)"
    )


def _differences(saved: SavedPlan, now: Plan) -> str:
    """What can be said of two plans with different fingerprints: the saved one holds no list of members."""
    nodes = [name for wave in now.waves for name in wave.nodes]
    new = [name for name in nodes if name not in saved.nodes]
    if new:
        return f"{', '.join(new)} came into the selection since"
    if not nodes:
        return f"none of its nodes ({', '.join(saved.nodes)}) is due any more"
    if tuple(nodes) != saved.nodes:
        return f"it takes {', '.join(saved.nodes)} in this order, and now it would be {', '.join(nodes)}"
    return (
        "another cluster of that name, or its members, their ids, roles or attributes are others by now; "
        "or the file was edited"
    )


@contextmanager
def prepare_restore(file: ClusterFile, around: Surroundings) -> Iterator[tuple[World, RunStarted]]:
    """What putting back needs: the cluster, and how a run on it would begin. Zones are no part of that.

    Raises:
        UsageError: the cluster cannot be read.
    """
    with _prepared(file, around, None, Overrides(), None) as (fresh, _, _):
        yield fresh.world, fresh.started


def _first_look(world: World) -> tuple[ClusterView, Reading[SettingsView]]:
    read = world.cluster.observe({Look.CLUSTER, Look.SETTINGS})
    return require_cluster(read.cluster, world.file.spec.name, str(world.file.path)), read.settings


def _fresh(
    around: Surroundings,
    world: World,
    view: ClusterView,
    settings: Reading[SettingsView],
    policy: Policy,
    state_url: str | None,
    loaded: Loaded | None = None,
) -> Fresh:
    started, found = _started(around, world, view, settings, policy, loaded)
    unknown = undated(view, policy.selection, started.policy.zone_attribute)
    if unknown:
        around.warn(
            f"{', '.join(unknown)} did not tell when the process started: left out (--started-before)"
        )
    for warning in world.file.overrides_without_node(world.members(view)):
        around.warn(warning)
    return Fresh(around=around, world=world, view=view, started=started, state_url=state_url, loaded=found)


def _started(
    around: Surroundings,
    world: World,
    view: ClusterView,
    settings: Reading[SettingsView],
    policy: Policy,
    loaded: Loaded | None,
) -> tuple[RunStarted, LoadedIndices | None]:
    started = start_of(
        view,
        settings,
        policy,
        operator=operator_name(around.environment),
        host=host_name(),
        cluster_file=str(world.file.path.resolve()),
    )
    found = loaded.find(around, world, view, started) if loaded else None
    started = found.started if found else started
    return (_with_data_paths(around, world, started) if policy.tune else started), found


def _with_data_paths(around: Surroundings, world: World, started: RunStarted) -> RunStarted:
    """Where the nodes keep their data, which has to be asked while they are up: tuning goes by it."""
    why = world.learn_data_paths(started.nodes)
    if why is not None:
        around.warn(f"where the nodes keep their data is not known ({why}): name it in `hosts.data`")
    known = {name: world.data_paths[name] for name in started.nodes if name in world.data_paths}
    return replace(started, data_paths=known)
