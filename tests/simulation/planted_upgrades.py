"""Defects planted in upgrades: the rules of install steps, of the version, and of displaced copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from orchestrator.engine import fold, limits, node, succession, upgrade
from orchestrator.engine.fold import replay
from orchestrator.engine.kinds.elasticsearch import recovery
from orchestrator.engine.limits import Limit
from orchestrator.engine.node import Move
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.sight import Sight
from orchestrator.engine.situation import Situation
from orchestrator.engine.state import RunState
from orchestrator.engine.upgrade import Install
from orchestrator.errors import SafetyViolation
from orchestrator.model.action import StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import Event
from orchestrator.model.observation import HostView
from orchestrator.model.phase import NodePhase, Outcome, Request
from orchestrator.model.policy import Deadlines, Policy, Selection, Strategy, Together
from orchestrator.model.reading import Unknown
from orchestrator.model.turn import Installing
from orchestrator.model.upgrade import InstallState
from orchestrator.model.upgrade_event import InstallEnded, Upgraded
from orchestrator.runs.simulated import Simulation
from orchestrator.runtime import guard
from orchestrator.simulation import beginning, installs, mishaps
from orchestrator.simulation.mishaps import HostCutOff, Mishap
from orchestrator.simulation.node_mishaps import ReturnsChanged
from orchestrator.simulation.world import World
from tests.simulation.chance import chance
from tests.simulation.planting import Defect, Swap, always, in_the_table, of_kind
from tests.simulation.play import cluster, killed, play, run
from tests.simulation.upgrading import TARGET, upgrading
from tests.simulation.wide import Life

ES1, ES2 = NodeName("es1"), NodeName("es2")


# Runs that show a defect ------------------------------------


def _lapse(simulation: Simulation, state: RunState, ends: Outcome = Outcome.DONE) -> str | None:
    """What is wrong with a run that has ended."""
    world, policy = simulation.world, state.begun.policy
    if world.violations:
        return "; ".join(world.violations)
    if state.outcome is not ends:
        return f"{state.outcome}: {state.message}"
    if ends is not Outcome.DONE:
        return None
    lacks = [lack for name in state.nodes for lack in installs.lacking(world.nodes[name], policy, 0.0)]
    return "; ".join(lacks) or None


def _shown(scenario: Callable[[], str | None]) -> Callable[[], str | None]:
    """The scenario; a run that breaks an invariant, or its own rules, shows the defect as well."""

    def shows() -> str | None:
        try:
            return scenario()
        except (AssertionError, SafetyViolation) as broken:
            return str(broken)

    shows.__name__ = scenario.__name__
    return shows


def _slowly(seconds: float, nodes: int = 3) -> World:
    world = cluster(nodes)
    for each in world.nodes.values():
        each.disk.seconds = seconds
    return world


def _interrupted(*more: Mishap) -> tuple[Simulation, RunState]:
    """Somebody interrupts the run while a step of 200 s runs."""
    asked = Mishap(what=mishaps.Asked(request=Request.INTERRUPT), verb="install", after=5.0)
    return run(_slowly(200.0), plan=[asked, *more], wanted=upgrading())


@_shown
def interrupted_in_a_step() -> str | None:
    return _lapse(*_interrupted(), ends=Outcome.INTERRUPTED)


@_shown
def interrupted_while_its_host_is_away() -> str | None:
    away = [
        Mishap(what=HostCutOff(node=each, seconds=60.0), verb="install", target=each, after=3.0)
        for each in (ES1, ES2, NodeName("es3"))
    ]
    return _lapse(*_interrupted(*away), ends=Outcome.INTERRUPTED)


@_shown
def an_upgrade() -> str | None:
    return _lapse(*run(cluster(3), wanted=upgrading()))


@_shown
def something_starts_the_node() -> str | None:
    """In its first step; nothing of the target is on the disk."""
    world = cluster(3)
    world.nodes[ES1].rises_after = 5.0
    return _lapse(*run(world, wanted=upgrading()))


@_shown
def something_starts_the_node_between_steps() -> str | None:
    """In its second step: it comes up with the target, and without what that step installs."""
    world = cluster(3)
    world.nodes[ES1].rises_after = 25.0
    return _lapse(*run(world, wanted=upgrading()))


@_shown
def a_step_fails() -> str | None:
    """The first step fails once on one node, and the run is resumed."""
    world = cluster(3)
    world.nodes[ES1].disk.fails = 1
    simulation, state = run(world, wanted=upgrading())
    if state.outcome is Outcome.FAILED:
        state = play(simulation, simulation.resume())
    return _lapse(simulation, state)


@_shown
def it_is_on_the_disk() -> str | None:
    world = cluster(3)
    world.nodes[ES1].disk.holds = world.nodes[ES1].next_version = TARGET
    simulation, state = run(world, wanted=upgrading())
    again = [fact.what for fact in world.nodes[ES1].facts if fact.what.startswith("installed")]
    return f"{again[0]} on es1, where all of it was" if again else _lapse(simulation, state)


def _in_its_first_step(seconds: float, limit: float) -> Simulation:
    """A run whose program is killed right after it has sent its first install step."""
    wanted, point = upgrading(deadlines=Deadlines(install=limit)), 0
    for at in (1, None):
        simulation = Simulation(_slowly(seconds))
        state = simulation.begin(wanted)
        simulation.seams.crash_at = point if at is None else None
        if at is None:
            assert killed(simulation, state)
            return simulation
        play(simulation, state, limit=1e6)
        names = simulation.seams.passed
        point = next(n for n, name in enumerate(names, start=1) if name.startswith("after install"))
    raise AssertionError("no step was sent")


def _killed_in_a_step(seconds: float, pause: float, limit: float) -> tuple[Simulation, RunState]:
    simulation = _in_its_first_step(seconds, limit)
    simulation.world.agenda.advance(pause)
    for each in simulation.world.nodes.values():
        each.disk.seconds = 20.0  # the steps after it
    return simulation, play(simulation, simulation.resume())


@_shown
def a_defect_in_a_step() -> str | None:
    """What the program starts blindly after a defect of its own, while an install step runs."""
    simulation = _in_its_first_step(100.0, 3600.0)
    state = replay(simulation.run, simulation.journal.records)
    starts = guard.blind_starts(state, busy=guard.busy_hosts(state))
    return f"{starts[0].node} is started beside its step" if starts else None


@_shown
def killed_in_a_step() -> str | None:
    """The next process finds the step at work."""
    return _lapse(*_killed_in_a_step(100.0, 5.0, 3600.0))


@_shown
def killed_in_a_long_step() -> str | None:
    """The step ends within its limit, counted from the beginning of the next process."""
    return _lapse(*_killed_in_a_step(900.0, 700.0, 600.0))


@_shown
def a_step_does_not_end() -> str | None:
    world = cluster(3)
    world.nodes[ES1].disk.seconds = 40_000.0
    wanted = upgrading(deadlines=Deadlines(install=600.0))
    simulation = Simulation(world)
    state = play(simulation, simulation.begin(wanted), limit=20_000.0)
    started = any(isinstance(one, StartNode) and one.node == ES1 for one in simulation.hosts.sent)
    return "es1 is started beside its step" if started else _lapse(simulation, state, ends=Outcome.FAILED)


def _on_one_machine() -> World:
    world = cluster(6)
    world.allowed_down = 2
    for name, other in (("es1", "es4"), ("es2", "es5"), ("es3", "es6")):
        world.nodes[NodeName(other)].machine = world.nodes[NodeName(name)].machine
    return world


@_shown
def nodes_of_one_machine() -> str | None:
    """They go in one wave, by their zone, and not because of their machine."""
    wanted = upgrading(
        strategy=Strategy.ZONE, zone_attribute="zone", max_unavailable=None, together=Together.NEVER
    )
    return _lapse(*run(_on_one_machine(), wanted=wanted))


@_shown
def it_returns_with_another_version() -> str | None:
    changed = Mishap(what=ReturnsChanged(node=ES1, version="9.1.0"), verb="start", target=ES1, after=0.0)
    simulation, state = run(cluster(3), plan=[changed], wanted=upgrading())
    stops = sum(isinstance(one, StopNode) and one.node == ES1 for one in simulation.hosts.sent)
    if stops > 1:
        return f"es1 is stopped {stops} times, and comes back as it was each time"
    return _lapse(simulation, state, ends=Outcome.FAILED)


@_shown
def the_same_again() -> str | None:
    """An upgrade of a cluster that runs the target stops nothing."""
    simulation, _ = run(cluster(3), wanted=upgrading())
    again = Simulation(simulation.world, run="run-2")
    state = play(again, again.begin(upgrading()))
    stopped = [one.node for one in again.hosts.sent if isinstance(one, StopNode)]
    return f"{stopped} stopped, which run the target" if stopped else _lapse(again, state)


@_shown
def half_of_it_is_upgraded() -> str | None:
    """Another run has upgraded one node, which has the primaries now."""
    world = cluster(3)
    only = Selection(only=("es1",))
    run(world, wanted=upgrading(selection=only))
    rest = Simulation(world, run="run-2")
    return _lapse(rest, play(rest, rest.begin(upgrading())))


@_shown
def a_machine_is_half_upgraded() -> str | None:
    """One of its two nodes runs the target, and the run reboots the machine of the other one."""
    world = _on_one_machine()
    there = world.nodes[NodeName("es4")]
    there.version = there.next_version = there.disk.holds = TARGET
    return _lapse(*run(world, wanted=upgrading(reboot=True, max_unavailable=None)))


@_shown
def a_late_stop_without_a_journal() -> str | None:
    """It takes a node down that comes back as it was; a shard of it has its primary on an upgraded node."""
    Life(chance(800425)).live()
    return None


# Defects ------------------------------------


def _only_if_seen(barring_start: Any) -> Any:
    def bars(situation: Situation, of: NodeProgress) -> Any:
        unknown = isinstance(situation.seen.host(of.name), Unknown)
        return None if unknown else barring_start(situation, of)

    return bars


def _taking_all_ends_for_good(ended_step: Any) -> Any:
    def ended(host: HostView, of: NodeProgress) -> InstallEnded | None:
        event: InstallEnded | None = ended_step(host, of)
        return None if event is None else replace(event, state=InstallState.DONE)

    return ended


def _found_is_one_step(of_upgrade: Any) -> Any:
    def folded(state: RunState, event: Any, at: float) -> RunState:
        if isinstance(event, InstallEnded) and event.state is InstallState.FOUND:
            event = replace(event, state=InstallState.DONE)
        return of_upgrade(state, event, at)  # type: ignore[no-any-return]  # the original's

    return folded


def _with_its_first_limit(_: Any) -> Any:
    def again(of: NodeProgress, _at: float) -> Installing | None:
        return of.install

    return again


def _news_for_any_target(_: Any) -> Any:
    """A node that reports the target has its version, whatever its steps say."""

    def news(situation: Situation) -> tuple[Event, ...]:
        wanted, events = situation.policy.upgrade, list[Event]()
        if wanted is None or situation.view is None:
            return ()
        for each in situation.state.nodes.values():
            member = upgrade._back(situation, each)
            if member is not None and upgrade.is_target(wanted, member):
                events.append(Upgraded(node=each.name, version=member.version))
        return tuple(events)

    return news


def _without_target(predicates: Any) -> Any:
    """`version_order` that does not count the wave as upgraded."""

    def asked(rule: Any) -> Any:
        def check(question: Any) -> Any:
            return rule.check(replace(question, policy=replace(question.policy, upgrade=None)))

        return replace(rule, check=check) if rule.name == "version_order" else rule

    return tuple(asked(rule) for rule in predicates)


def _forgetting_displaced(not_waited_for: Any) -> Any:
    def folded(state: RunState, event: Any) -> RunState:
        after: RunState = not_waited_for(state, event)
        return replace(after, displaced={})

    return folded


def _open_until_settled(_: Any) -> Any:
    """A step that was sent counts as running until this program has settled it."""
    return lambda _situation, of: of.install is not None


def _hooks_only(_: Any) -> Any:
    return lambda _state: frozenset()


def _leaving_out_all_upgraded(to_upgrade: Any) -> Any:
    def chosen(policy: Policy, members: Any) -> Any:
        return to_upgrade(replace(policy, reboot=False), members)

    return chosen


UPGRADES: Final[tuple[Defect, ...]] = (
    Defect(
        name="starts beside an install step",
        says="a stand-down starts a node while half of a version is on its disk",
        swaps=(Swap(owner=upgrade, name="barring_start", by=always(None)),),
        scenario=interrupted_in_a_step,
    ),
    Defect(
        name="starts where a step may run",
        says="a host that does not answer counts as one without a step",
        swaps=(Swap(owner=upgrade, name="barring_start", by=_only_if_seen),),
        scenario=interrupted_while_its_host_is_away,
    ),
    Defect(
        name="skips the install steps",
        says="a node that is down is started without what it owes",
        swaps=(
            Swap(
                owner=node,
                name="_install",
                by=always(node._Did(enter=NodePhase.STARTING)),
            ),
        ),
        scenario=an_upgrade,
    ),
    Defect(
        name="begins steps and forgets them",
        says="no step is ever taken for ended",
        swaps=(Swap(owner=upgrade, name="install", by=always(Install())),),
        scenario=an_upgrade,
    ),
    Defect(
        name="installs beside a live process",
        says="a step settles, and the next begins, while the process of the node runs",
        swaps=(
            in_the_table(NodePhase.STOPPED, Sight.COMING, restart=Move.WORK, bring_up=Move.TO_STARTING),
            in_the_table(NodePhase.STOPPED, Sight.NEW, restart=Move.WORK, bring_up=Move.TO_STARTING),
        ),
        scenario=something_starts_the_node,
    ),
    Defect(
        name="takes a failed step for done",
        says="a step that failed settles what it was to install",
        swaps=(Swap(owner=upgrade, name="ended_step", by=_taking_all_ends_for_good),),
        scenario=a_step_fails,
    ),
    Defect(
        name="installs what is on the disk",
        says="that all is installed settles one step only",
        swaps=(Swap(owner=fold, name="_of_upgrade", by=_found_is_one_step),),
        scenario=it_is_on_the_disk,
    ),
    Defect(
        name="forgets the step of a killed program",
        says="a resumed run begins a step that runs again",
        swaps=(Swap(owner=succession, name="_installing_again", by=always(None)),),
        scenario=killed_in_a_step,
    ),
    Defect(
        name="counts a step's limit through a kill",
        says="the time in which no program watched counts against the step",
        swaps=(Swap(owner=succession, name="_installing_again", by=_with_its_first_limit),),
        scenario=killed_in_a_long_step,
    ),
    Defect(
        name="waits for a step without end",
        says="`deadlines.install` ends nothing",
        swaps=(Swap(owner=limits, name="install", by=always(Limit(since=1e12, seconds=1.0))),),
        scenario=a_step_does_not_end,
    ),
    Defect(
        name="installs twice at a time on a machine",
        says="the step of another node of the machine is not looked at",
        swaps=(Swap(owner=upgrade, name="_beside", by=always(())),),
        scenario=nodes_of_one_machine,
    ),
    Defect(
        name="begins two steps at once on a machine",
        says="two nodes of a machine begin in one decision",
        swaps=(
            Swap(
                owner=upgrade, name="one_a_machine", by=lambda _: lambda _situation, actions: tuple(actions)
            ),
        ),
        scenario=nodes_of_one_machine,
    ),
    Defect(
        name="takes any target for an upgrade",
        says="a process that began before the last step counts",
        swaps=(Swap(owner=upgrade, name="news", by=_news_for_any_target),),
        scenario=something_starts_the_node_between_steps,
    ),
    Defect(
        name="repeats an upgrade that changes nothing",
        says="a node that comes back without the target is stopped again and again",
        swaps=(Swap(owner=upgrade, name="missed", by=always(None)),),
        scenario=it_returns_with_another_version,
    ),
    Defect(
        name="selects upgraded nodes",
        says="a second upgrade restarts every node",
        swaps=(Swap(owner=upgrade, name="is_target", by=always(answer=False)),),
        scenario=the_same_again,
    ),
    Defect(
        name="asks for the order of old versions",
        says="a node that the wave upgrades counts as one that stays old",
        swaps=(of_kind(predicates=_without_target),),
        scenario=half_of_it_is_upgraded,
    ),
    Defect(
        name="forgets displaced copies",
        says="an upgrade is done while a copy that it took down is on its way",
        seed=72,
        swaps=(Swap(owner=fold, name="_not_waited_for", by=_forgetting_displaced),),
    ),
    Defect(
        name="forgets what a late stop displaced",
        says="an upgrade is done while a copy is missing that a stop of ours took down without a journal",
        scenario=a_late_stop_without_a_journal,
        swaps=(Swap(owner=recovery, name="_displaced", by=always(())),),
    ),
    Defect(
        name="waits for a node that came up beside its step",
        says="another node of its machine is down until allocation has been disabled for too long",
        seed=1414,
        swaps=(Swap(owner=upgrade, name="_may_run", by=_open_until_settled),),
    ),
    Defect(
        name="leaves out nodes that a reboot takes down",
        says="the rest of a machine is never upgraded, since its reboot takes down a node of no wave",
        swaps=(Swap(owner=beginning, name="to_upgrade", by=_leaving_out_all_upgraded),),
        scenario=a_machine_is_half_upgraded,
    ),
    Defect(
        name="starts blindly beside an install step",
        says="a defect of the program starts a node while a step may run there",
        swaps=(Swap(owner=guard, name="busy_hosts", by=_hooks_only),),
        scenario=a_defect_in_a_step,
    ),
)
