"""Defects planted in the program, each through one of its seams: the runs left to chance must catch them.

`python -m tests.simulation.planted` prints the table: what was planted, which property caught it, at which
seed. A defect that nothing catches means that a property, or a mishap, is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from orchestrator.engine import admit, changes, fold, node, recover, run, sight, succession, tuning, waves
from orchestrator.engine.kinds.elasticsearch import predicates, redundancy, settings
from orchestrator.engine.kinds.every_kind import on_cluster
from orchestrator.engine.kinds.predicates import Finding, Predicate, Question
from orchestrator.engine.node import Turn
from orchestrator.engine.progress import NodeProgress
from orchestrator.engine.situation import RETRY_SECONDS, Decision, Situation, act, note
from orchestrator.engine.state import RunState
from orchestrator.engine.tuning import Tuning
from orchestrator.merging import decide
from orchestrator.model.action import (
    Action,
    Purpose,
    RetryFailed,
    SettingChange,
    StartNode,
    StopNode,
    TuneHost,
    WriteSettings,
)
from orchestrator.model.allocation import ALLOCATION
from orchestrator.model.cluster import CopyState, NodeName, ShardCopy, Zone
from orchestrator.model.event import (
    ActionSent,
    Event,
    NodeRecovered,
    ReplicasAdded,
    ReplicasRestored,
    SettingChanged,
    SettingRestored,
    VotingRestored,
    WorkDone,
)
from orchestrator.model.observation import ClusterView, Level, Observation, SettingsView
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.model.policy import Hook, Hooks
from orchestrator.model.turn import Work
from orchestrator.runs import takeover
from orchestrator.runtime.loop import Loop
from orchestrator.simulation import deciders
from orchestrator.simulation.mishaps import How, Mishap, NodeDies, Trip
from tests.simulation import (
    deletion,
    planted_merging,
    planted_nights,
    planted_old,
    planted_riak,
    planted_sets,
    planted_upgrades,
    play,
)
from tests.simulation.overlapping import overlapped, slow, under_way
from tests.simulation.planting import Defect, Swap, always, catch, of_kind, without
from tests.simulation.play import cluster
from tests.simulation.zones import by_zone, zoned

# Where chance makes no run that shows it ------------------------------------------------------------------


def a_stop_is_done_late() -> str | None:
    """Its node was restarted by somebody else meanwhile, and another one is down by then."""
    for late in (14.0, 20.0, 25.0, 29.0):
        world = cluster(3)
        died = Mishap(what=NodeDies(node=NodeName("es2"), back_after=0.5), verb="stop", after=1.0)
        play.run(world, plan=[died], trips=[Trip(verb="stop", how=How.LATE, late=late)])
        if world.violations:
            return world.violations[0]
    return None


def a_stop_is_done_when_nobody_waits_for_it() -> str | None:
    """It was taken as not done, and its node left the wave."""
    for late in (35.0, 40.0):
        world = zoned()
        world.nodes[NodeName("es2")].start_seconds = 30.0
        trip = Trip(verb="stop", how=How.LATE, target="es5", late=late)
        _, state = play.run(world, trips=[trip], wanted=by_zone())
        away = [node.name for node in world.nodes.values() if not node.joined]
        if away or world.settings() != ({}, {}):
            return f"{', '.join(away)} away at the end: {state.message}"
    return None


def a_second_node_is_gone() -> str | None:
    """A node of another zone leaves while the wave is on its way: the run stands down."""
    world = zoned()
    world.nodes[NodeName("es2")].start_seconds = 60.0
    gone = NodeDies(node=NodeName("es3"), back_after=300.0)
    _, state = play.run(world, plan=[Mishap(what=gone, verb="stop", after=20.0)], wanted=by_zone())
    return None if state.process.second_failure is not None else f"es3 left unnoticed: {state.outcome}"


def a_copy_was_missing_before() -> str | None:
    """A replica had failed before the run began: the run neither waits for it nor has it tried again."""
    world = cluster(3)
    world.add_index("wide", replicas=2)
    shard = next(shard for index, shard in deciders.shards_of(world) if index.name == "wide")
    replica = next(copy for copy in shard.copies if not copy.primary)
    replica.node, replica.state, replica.reason = None, CopyState.UNASSIGNED, "ALLOCATION_FAILED"
    replica.failed_attempts = 5
    simulation, state = play.run(world)
    if any(isinstance(action, RetryFailed) for action in simulation.cluster.sent):
        return "what had failed before the run is tried again"
    return None if state.outcome is Outcome.DONE else f"{state.outcome}: {state.message}"


_POOL: Final = Hooks(before_stop=(Hook(run="depool {node}"),), after_recovery=(Hook(run="pool {node}"),))


def a_wave_made_room() -> str | None:
    """Each node is recovered when no copy is on its way to it any more, whatever else recovers."""
    simulation, _ = play.run(slow(), wanted=overlapped(hooks=_POOL))
    for record in simulation.journal.records:
        if not isinstance(record.event, NodeRecovered):
            continue
        early = [to for _, to in under_way(simulation, record.at) if to == record.event.node]
        if early:
            return f"{early[0]} counts as recovered while {len(early)} copies are on their way to it"
    return None


# How they are planted ---------------------------------------------------------------------------------------


def _putting_back(by: Callable[[Any], Any]) -> tuple[Swap, ...]:
    return (Swap(owner=changes, name="restore_settings", by=by),)


def _acting_first(_: Any) -> Any:
    def turn(self: Loop, observation: Observation) -> None:
        decision = decide(self.state, observation, self._ports.clock.now())
        self._last = decision
        outcomes = self._executor.perform(decision.actions)
        if not self._commit(decision):
            return
        self._ports.reporter.waiting(self.state, decision)
        if outcomes:
            self._write(outcomes)
        elif decision.watch is not None:
            self._ports.listener.listen(decision.watch)

    return turn


def _once(asks: Any) -> Any:
    def refusals(situation: Situation, rules: tuple[Predicate, ...], wave: Any) -> Any:
        return () if situation.state.phase is Phase.WITHHELD else asks(situation, rules, wave)

    return refusals


def _stopping_blindly(turn: Any) -> Any:
    def turned(situation: Situation, one: NodeProgress) -> Turn:
        found: Turn = turn(situation, one)
        failure = situation.state.failure_of(StopNode(node=one.name))
        soon = situation.now - situation.state.process.acted_at < RETRY_SECONDS
        if one.phase is NodePhase.STOPPING and failure is not None and failure.in_doubt and not soon:
            return replace(found, actions=(StopNode(node=one.name),))
        return found

    return turned


def _restored(debts: tuple[SettingChange, ...]) -> Decision:
    return note(*(SettingRestored(level=d.level, key=d.key, value=d.found) for d in debts))


def _not_putting_back_allocation(put_back: Any) -> Any:
    def claims(situation: Situation, purpose: Purpose) -> Decision | None:
        debts = changes.unrestored(situation.state, purpose)
        if purpose is Purpose.REASSIGN:
            return _restored(debts) if debts else None
        return put_back(situation, purpose)  # type: ignore[no-any-return]  # the original's

    return claims


def _believing_the_write(put_back: Any) -> Any:
    def believes(situation: Situation, purpose: Purpose) -> Decision | None:
        debts = changes.unrestored(situation.state, purpose)
        write = WriteSettings(changes=tuple(debt.undone() for debt in debts), purpose=purpose)
        failure = situation.state.failure_of(write)
        if debts and failure is not None and failure.in_doubt:
            return _restored(debts)
        return put_back(situation, purpose)  # type: ignore[no-any-return]  # the original's

    return believes


def _overwriting(put_back: Any) -> Any:
    def overwrites(situation: Situation, purpose: Purpose) -> Decision | None:
        debts, seen = changes.unrestored(situation.state, purpose), situation.seen.settings
        write = WriteSettings(changes=tuple(debt.undone() for debt in debts), purpose=purpose)
        if debts and write in situation.state.in_phase.confirmed:
            return _restored(debts)
        if isinstance(seen, SettingsView) and situation.fresh:
            foreign = [d for d in debts if seen.at(d.level, d.key) not in (d.found, d.wanted)]
            if foreign:
                return act(write)
        return put_back(situation, purpose)  # type: ignore[no-any-return]  # the original's

    return overwrites


def _finding_all(changed: Any) -> Any:
    def found(state: RunState, event: SettingChanged, at: float) -> Any:
        return changed(state, replace(event, found="all") if event.key == ALLOCATION else event, at)

    return found


def _finding_what_counts(change: Any) -> Any:
    def changes(seen: SettingsView, key: str, wanted: str) -> Any:
        return tuple(replace(one, found=seen.effective(key)) for one in change(seen, key, wanted))

    return changes


def _persistent_alone(change: Any) -> Any:
    def changes(seen: SettingsView, key: str, wanted: str) -> Any:
        return tuple(one for one in change(seen, key, wanted) if one.level is Level.PERSISTENT)

    return changes


def _quorum_of_nodes(question: Question, view: ClusterView) -> Iterator[Finding]:
    left = [node for node in view.nodes if node.name not in question.wave.nodes]
    if 2 * len(left) <= len(view.nodes):
        yield "wave", "no majority of the nodes"


def _counting_nodes(predicates: Any) -> Any:
    return tuple(
        replace(rule, check=on_cluster(_quorum_of_nodes)) if rule.name == "master_quorum_survives" else rule
        for rule in predicates
    )


def _starting_behind_a_gate(turn: Any) -> Any:
    def barred(situation: Situation, one: NodeProgress) -> Turn:
        found: Turn = turn(situation, one)
        starts = any(isinstance(action, StartNode) for action in found.actions)
        lost = situation.state.process.lease_lost is not None
        return replace(found, actions=()) if starts and lost else found

    return barred


def _unpublished(_: Any) -> Any:
    def acts(self: Loop, actions: tuple[Action, ...]) -> None:
        self._write(self._executor.perform(actions))

    return acts


def _taking_over_less(*left_out: type) -> Callable[[Any], Any]:
    def less(from_record: Any) -> Any:
        return lambda record, started: tuple(
            event for event in from_record(record, started) if not isinstance(event, left_out)
        )

    return less


def _taking_over_no_nodes(from_record: Any) -> Any:
    return lambda record, started: from_record(replace(record, in_hand=()), started)


def _forgetting_debts(in_doubt: Any) -> Any:
    def forgets(state: RunState, *event: Any) -> RunState:
        left = replace(state.unrestored, settings={}, withheld=frozenset(), withheld_since=None)
        return replace(in_doubt(state, *event), unrestored=left)

    return forgets


def _forgetting_nodes(in_doubt: Any) -> Any:
    def forgets(state: RunState, *event: Any) -> RunState:
        state = in_doubt(state, *event)
        nodes = {
            name: replace(node, phase=NodePhase.PENDING) if node.phase is NodePhase.STOPPING else node
            for name, node in state.nodes.items()
        }
        return replace(state, nodes=nodes)

    return forgets


def _giving_nothing_up(_: Any) -> Any:
    return lambda one, *events: Tuning(events=(*events, WorkDone(node=one.name, work=Work.TUNING)))


def _keeping_to_itself(_: Any) -> Any:
    return lambda one, *_events: Tuning(events=(WorkDone(node=one.name, work=Work.TUNING),))


def _untuned(_: Any) -> Any:
    return lambda _situation, one: Tuning(events=(WorkDone(node=one.name, work=Work.TUNING),))


def _starting_nothing(moves: Any) -> Any:
    def moved(situation: Situation) -> Decision | None:
        found: Decision | None = moves(situation)
        if found is None or situation.state.phase is not Phase.STANDING_DOWN:
            return found
        kept = tuple(action for action in found.actions if not isinstance(action, StartNode))
        sent = tuple(e for e in found.events if not (isinstance(e, ActionSent) and e.action not in kept))
        return replace(found, events=sent, actions=kept) if sent or kept else None

    return moved


def _tuning_unwritten(_: Any) -> Any:
    def acts(*actions: Action, events: Iterable[Event] = ()) -> Decision:
        sent = tuple(ActionSent(action=one) for one in actions if not isinstance(one, TuneHost))
        return Decision(events=(*events, *sent), actions=actions)

    return acts


def _pardoning(lost_beyond_baseline: Any) -> Any:
    def missing(state: RunState, view: ClusterView) -> tuple[ShardCopy, ...]:
        overlap = state.begun.policy.overlap_recovery
        beyond: tuple[ShardCopy, ...] = lost_beyond_baseline(state, view)
        return tuple(copy for copy in beyond if not (overlap and copy.unassigned_reason == "NODE_LEFT"))

    return missing


def _beside_one_that_is_gone(predicates: Any) -> Any:
    """No rule looks for a node that left while it recovered."""

    def blind(rule: Predicate) -> Predicate:
        def check(question: Question) -> Iterator[Finding]:
            return iter(()) if question.state.recovering else rule.check(question)

        return replace(rule, check=check)

    about = ("expected_nodes_present", "budget_not_exceeded")
    return tuple(blind(rule) if rule.name in about else rule for rule in predicates)


def _pardoning_what_recovers(second_failure: Any) -> Any:
    def failure(situation: Situation) -> str | None:
        return None if situation.state.recovering else second_failure(situation)

    return failure


def _forgetting_replicas(_: Any) -> Any:
    def claims(situation: Situation) -> Decision | None:
        owed = situation.state.unrestored.replicas
        return note(*(ReplicasRestored(index_uuid=uuid) for uuid in owed)) if owed else None

    return claims


def _forgetting_exclusions(_: Any) -> Any:
    return lambda situation: note(VotingRestored()) if situation.state.unrestored.excluded else None


_OF_OVERLAP: Final[tuple[Defect, ...]] = (
    Defect(
        name="stops the source of a recovery",
        says="a wave goes beside a recovery though it has a copy of the shard",
        seed=28,
        swaps=(without("no_recovery_on_candidates"),),
    ),
    Defect(
        name="counts copies on their way as kept",
        says="a wave goes though the only other copies of a shard are still made, some of them from its own",
        seed=3,
        swaps=(
            Swap(
                owner=redundancy,
                name="counts_as_safe",
                by=lambda _: lambda _index, copy: copy.state is not CopyState.UNASSIGNED,
            ),
            without("no_recovery_on_candidates"),
        ),
    ),
    Defect(
        name="pardons a delayed copy",
        says="a wave goes though a copy of the one before it waits for its turn to recover",
        swaps=(Swap(owner=predicates, name="lost_beyond_baseline", by=_pardoning),),
        scenario=deletion.copy_that_nobody_works_on,
    ),
    Defect(
        name="goes beside a node that is gone",
        says="a node that leaves while it recovers is not missed, so that more are away than allowed",
        seed=202,
        swaps=(
            of_kind(predicates=_beside_one_that_is_gone),
            Swap(owner=run, name="_second_failure", by=_pardoning_what_recovers),
        ),
    ),
    Defect(
        name="takes a wave for recovered too soon",
        says="a wave that made room is done while copies are on their way to it",
        swaps=(Swap(owner=recover, name="_arriving", by=always(frozenset())),),
        scenario=a_wave_made_room,
    ),
)
"""Of `overlap_recovery`."""

DEFECTS: Final[tuple[Defect, ...]] = (
    Defect(
        name="acts before it journals",
        says="an action is sent, and only then written down",
        swaps=(Swap(owner=Loop, name="turn", by=_acting_first),),
    ),
    Defect(
        name="acts on what could not be written",
        says="a full disk under the journal stops nothing",
        seed=104,
        swaps=(Swap(owner=Loop, name="_may_act_unjournalled", by=always(answer=True)),),
    ),
    Defect(
        name="asks the gates once",
        says="the last reading before a stop is not asked the rules",
        seed=23,
        swaps=(Swap(owner=admit, name="refusals", by=_once),),
    ),
    Defect(
        name="sends a stop again blindly",
        says="a stop in doubt is sent again without a look",
        seed=109,
        swaps=(Swap(owner=run, name="turn", by=_stopping_blindly),),
    ),
    Defect(
        name="does not withhold allocation",
        says="a node is stopped with allocation on",
        swaps=(of_kind(withhold=always(())),),
    ),
    Defect(
        name="does not put allocation back",
        says="allocation counts as put back, and nothing was written",
        swaps=_putting_back(_not_putting_back_allocation),
    ),
    Defect(
        name="puts `all` back",
        says="allocation goes back to `all`, not to what was found",
        seed=1,
        swaps=(Swap(owner=fold, name="_setting_changed", by=_finding_all),),
    ),
    Defect(
        name="confuses unset with set",
        says="what counts is taken for what stands at the level",
        swaps=(Swap(owner=settings, name="_change", by=_finding_what_counts),),
    ),
    Defect(
        name="writes past a transient value",
        says="a transient value that shadows ours is left standing",
        seed=16,
        swaps=(Swap(owner=settings, name="_change", by=_persistent_alone),),
    ),
    Defect(
        name="believes a write in doubt",
        says="settings count as put back without being read back",
        seed=19,
        swaps=_putting_back(_believing_the_write),
    ),
    Defect(
        name="overwrites another operator",
        says="what somebody else set meanwhile is put back over",
        seed=1,
        swaps=_putting_back(_overwriting),
    ),
    Defect(
        name="has no rescue",
        says="a shard that lost its last copy waits for hooks and a reboot",
        seed=120,
        swaps=(Swap(owner=run, name="_rescue", by=always(())),),
    ),
    Defect(
        name="goes on after a second failure",
        says="another node's death changes nothing",
        swaps=(Swap(owner=run, name="_second_failure", by=always(None)),),
        scenario=a_second_node_is_gone,
    ),
    Defect(
        name="does not ask for the lease",
        says="a stop is sent though the lease is lost",
        seed=1295,
        swaps=(without("lease_is_held"),),
    ),
    Defect(
        name="trusts a stale reading",
        says="a reading that says it may be old is decided on",
        seed=779,
        swaps=(without("observation_is_fresh"),),
    ),
    Defect(
        name="does not wait for copies",
        says="a wave is done, and the run, while copies are on their way",
        seed=7,
        swaps=(of_kind(missing=always(())),),
    ),
    Defect(
        name="does not compare incarnations",
        says="a node that is there counts as restarted",
        swaps=planted_riak.WHOEVER_IS_THERE,
    ),
    Defect(
        name="forgets the baseline",
        says="what was missing before the run is waited for",
        swaps=(of_kind(baseline=lambda of: lambda view, boots: replace(of(view, boots), missing=())),),
        scenario=a_copy_was_missing_before,
    ),
    Defect(
        name="does not ask for copies elsewhere",
        says="a wave takes all copies of a shard",
        seed=19,
        swaps=(without("every_shard_keeps_started_copies"),),
    ),
    Defect(
        name="ignores the in-sync set",
        says="a stale copy counts as one that a shard keeps",
        swaps=(
            Swap(owner=redundancy, name="counts_as_safe", by=lambda _: lambda _index, copy: copy.started),
        ),
        scenario=deletion.every_shard_keeps_started_copies,
    ),
    Defect(
        name="counts nodes for the quorum",
        says="a majority of nodes is taken for one of the committed voters",
        seed=56,
        swaps=(of_kind(predicates=_counting_nodes),),
    ),
    Defect(
        name="ignores the budget of a wave",
        says="more nodes go down at once than the operator said",
        seed=15,
        swaps=(without("budget_not_exceeded"),),
    ),
    Defect(
        name="takes all zones for one",
        says="a wave has nodes of two zones",
        seed=5,
        swaps=(
            Swap(owner=waves.Choice, name="zone", by=always(Zone("one"))),
            without("one_zone_at_a_time"),
        ),
    ),
    Defect(
        name="makes a wave wider than planned",
        says="what the operator agreed to bounds nothing",
        seed=22,
        swaps=(Swap(owner=waves, name="_groups", by=lambda _: lambda _planned: {}),),
    ),
    Defect(
        name="leaves voting exclusions",
        says="exclusions count as cleared, and nothing was sent",
        seed=6,
        swaps=(Swap(owner=changes, name="restore_voting", by=_forgetting_exclusions),),
    ),
    Defect(
        name="leaves added replicas",
        says="an added replica counts as taken away",
        seed=17,
        swaps=(Swap(owner=changes, name="_restore_replicas", by=_forgetting_replicas),),
    ),
    Defect(
        name="runs hooks again",
        says="a hook that ran is not remembered",
        seed=11,
        swaps=(
            Swap(
                owner=fold,
                name="_hook_ran",
                by=lambda _: lambda state, _hook, _at: state,
            ),
        ),
    ),
    Defect(
        name="bars a start by a gate",
        says="a node stays down while the lease is lost",
        seed=27,
        swaps=(Swap(owner=run, name="turn", by=_starting_behind_a_gate),),
    ),
    Defect(
        name="takes a lost stop for one not done",
        says="a stop whose connection was lost is forgotten at once",
        swaps=(Swap(owner=sight, name="_doubt_is_open", by=always(answer=False)),),
        scenario=a_stop_is_done_late,
    ),
    Defect(
        name="overlooks a stop that is done late",
        says="a node that goes down late is nobody's to start",
        swaps=(Swap(owner=run, name="is_ours", by=always(answer=False)),),
        scenario=a_stop_is_done_when_nobody_waits_for_it,
    ),
    Defect(
        name="starts nothing when it stands down",
        says="a stand-down leaves its nodes down",
        seed=3,
        swaps=(Swap(owner=run, name="_moves", by=_starting_nothing),),
    ),
    Defect(
        name="keeps no record in the cluster",
        says="another machine cannot know what is owed",
        seed=3,
        swaps=(Swap(owner=Loop, name="_act", by=_unpublished),),
    ),
    Defect(
        name="takes over without the settings",
        says="a takeover leaves the dead run's settings",
        seed=3,
        swaps=(Swap(owner=takeover, name="from_record", by=_taking_over_less(SettingChanged)),),
    ),
    Defect(
        name="takes over without the replicas",
        says="a takeover leaves the dead run's replicas",
        seed=102,
        swaps=(Swap(owner=takeover, name="from_record", by=_taking_over_less(ReplicasAdded)),),
    ),
    Defect(
        name="takes over without the nodes",
        says="a takeover leaves down what the dead run stopped",
        seed=15,
        swaps=(Swap(owner=takeover, name="from_record", by=_taking_over_no_nodes),),
    ),
    Defect(
        name="resumes without its debts",
        says="what was changed before the kill is not put back",
        swaps=(Swap(owner=succession, name="_in_doubt", by=_forgetting_debts),),
    ),
    Defect(
        name="resumes without its nodes",
        says="a node in the middle of its stop counts as untouched",
        seed=248,
        swaps=(Swap(owner=succession, name="_in_doubt", by=_forgetting_nodes),),
    ),
    Defect(
        name="tunes nothing",
        says="a profile is wanted, and hosts stay as they are",
        seed=3,
        swaps=(Swap(owner=node, name="tuned", by=_untuned),),
    ),
    Defect(
        name="keeps a failed tunable to itself",
        says="a host that is not as wanted looks as if it were",
        seed=19,
        swaps=(Swap(owner=tuning, name="_missed", by=_keeping_to_itself),),
    ),
    Defect(
        name="goes on past a tunable that must not fail",
        says="on_failure: stop stops nothing",
        seed=25,
        swaps=(Swap(owner=tuning, name="_missed", by=_giving_nothing_up),),
    ),
    Defect(
        name="tunes before it has written down",
        says="what was found is nowhere, and nothing can undo it",
        seed=3,
        swaps=(Swap(owner=run, name="act", by=_tuning_unwritten),),
    ),
    *_OF_OVERLAP,
    *planted_nights.NIGHTS,
    *planted_merging.MERGING,
    *planted_old.OLD,
    *planted_merging.GATES,
    *planted_riak.RIAK,
    *planted_sets.SETS,
    *planted_upgrades.UPGRADES,
)


def main() -> int:
    """Print the table; 1 when a defect is caught by nothing."""
    missed = 0
    only = sys.argv[1:]
    for defect in DEFECTS:
        if only and defect.name not in only:
            continue
        began = time.monotonic()
        caught = catch(defect)
        missed += caught is None
        how = f"{caught.rule:12} {caught.where:10} {caught.said[:90]}" if caught else "CAUGHT BY NOTHING"
        sys.stdout.write(f"{defect.name:38} {time.monotonic() - began:5.1f} s  {how}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
