"""Defects planted in what merges indices and in what waits at gates; see `planted.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from orchestrator.engine import gates
from orchestrator.engine.kinds.predicates import Predicate
from orchestrator.engine.merge_state import MergeProgress
from orchestrator.engine.situation import Decision, Situation, act, note
from orchestrator.merging import again
from orchestrator.model.action import ForceMerge
from orchestrator.model.event import ActionSent, Hold, run_phase
from orchestrator.model.merge_event import IndexMerged
from orchestrator.model.merging import BulkIndex, BulkView, MergePolicy
from orchestrator.model.observation import Observation
from orchestrator.model.phase import Phase
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown
from orchestrator.simulation import allocation
from tests.simulation import play
from tests.simulation.loaded import index_of, loaded, merged_policy
from tests.simulation.planting import Defect, Swap, always, without

merging = import_module("orchestrator.merging.merging")
"""By its path: the package has a function of that name."""
_MOVES_SECONDS: Final = 300.0


def _without_rule(name: str) -> Swap:
    """The rules before a merge, less this one."""

    def less(rules: tuple[Predicate, ...]) -> tuple[Predicate, ...]:
        return tuple(rule for rule in rules if rule.name != name)

    return Swap(owner=merging, name="MERGE_RULES", by=less)


def _asking_blindly(see_to_the_end: Any) -> Any:
    def sees(situation: Situation, bulk: BulkView, policy: MergePolicy) -> Any:
        taken_up = [one for one in situation.state.merging.in_hand if one.asked_at is None]
        if taken_up:
            return act(*(_merge_of(one, policy) for one in taken_up))
        return see_to_the_end(situation, bulk, policy)

    return sees


def _merge_of(one: MergeProgress, policy: MergePolicy) -> ForceMerge:
    target = one.target
    return ForceMerge(index=target.index, index_uuid=target.index_uuid, max_segments=policy.max_segments)


def _believing_the_end(ended: Any) -> Any:
    """A merge that does not run any more has merged, whatever its copies have."""

    def believes(situation: Situation, bulk: BulkView) -> Iterable[IndexMerged]:
        for one in situation.state.merging.in_hand:
            index = bulk.indices.get(one.target.index_uuid)
            if index is not None and not index.under_way and one.refreshed_at is not None:
                yield merging._merged(situation, one, replace(index, copies=index.copies[:0]))
                return
        yield from ended(situation, bulk)

    return believes


def _of_primaries(_: Any) -> Any:
    return property(lambda index: max((c.segments for c in index.copies if c.primary), default=0))


def _of_one_shard(_: Any) -> Any:
    return property(lambda index: min((c.segments for c in index.copies), default=0))


def _going_on_beside_merges(merges: Any) -> Any:
    def goes_on(situation: Situation) -> Decision:
        state = situation.state
        if state.merging.begun and not state.merging.pending:
            return note(run_phase(state.phase, Phase.MERGED))
        return merges(situation)  # type: ignore[no-any-return]  # the original's

    return goes_on


def _overlooking_other_merges(ask_for: Any) -> Any:
    def asks(situation: Situation, index: BulkIndex, policy: MergePolicy) -> Any:
        return ask_for(situation, replace(index, tasks=0, merging=0), policy)

    return asks


def _taking_silence_for_open(closed_gates: Any) -> Any:
    def closed(policy: Policy, observation: Observation) -> tuple[Hold, ...]:
        return tuple(
            hold
            for hold in closed_gates(policy, observation)
            if not isinstance(observation.gate(hold.subject), Unknown)
        )

    return closed


def a_copy_moves() -> str | None:
    """A copy of a loaded index moves to another node for minutes when the run begins."""
    world = loaded(indices=1)
    shard = index_of(world, "posts-1").shards[0]
    free = next(name for name in world.nodes if all(copy.node != name for copy in shard.copies))
    allocation.relocate(world, shard.primary, free, _MOVES_SECONDS)
    there = world.agenda.now + _MOVES_SECONDS
    simulation, state = play.run(world, wanted=merged_policy())
    for record in simulation.journal.records:
        if isinstance(record.event, ActionSent) and isinstance(record.event.action, ForceMerge):
            early = there - record.at
            return f"posts-1 is merged {early:.0f} s before its copy is there" if early > 0 else None
    return f"not merged: {state.outcome} {state.message}"


MERGING: Final[tuple[Defect, ...]] = (
    Defect(
        name="merges on a reading that may be old",
        says="an index is merged on a reading that says it may be old",
        seed=226,
        swaps=(
            _without_rule("observation_is_fresh"),
            Swap(owner=merging, name="not_to_be_believed", by=always(())),
        ),
    ),
    Defect(
        name="merges without the lease",
        says="an index is merged though somebody else has the lease",
        seed=22,
        swaps=(_without_rule("lease_is_held"),),
    ),
    Defect(
        name="merges past a closed gate",
        says="an index is merged while a gate is closed",
        seed=7,
        swaps=(_without_rule("gates_open"),),
    ),
    Defect(
        name="merges what is written",
        says="an index is merged while documents come into it",
        seed=200,
        swaps=(_without_rule("index_is_not_written"),),
    ),
    Defect(
        name="merges beside a copy on its way",
        says="a copy arrives with the segments of before the merge",
        swaps=(_without_rule("no_copy_on_its_way"),),
        scenario=a_copy_moves,
    ),
    Defect(
        name="merges without room",
        says="a node merges a copy for which its disk has no room",
        seed=423,
        swaps=(_without_rule("disk_has_room"),),
    ),
    Defect(
        name="merges too many at a time",
        says="the playbook's limits of indices, in all and on a node, bound nothing",
        seed=7,
        swaps=(Swap(owner=merging, name="_room_for_another", by=always(answer=True)),),
    ),
    Defect(
        name="merges what another operator merges",
        says="an index is merged though a merge of it runs",
        seed=2868,
        swaps=(Swap(owner=merging, name="_ask_for", by=_overlooking_other_merges),),
    ),
    Defect(
        name="resumes by merging again",
        says="whoever takes a run up asks for its merges without a look",
        seed=55,
        swaps=(Swap(owner=merging, name="_see_to_the_end", by=_asking_blindly),),
    ),
    Defect(
        name="does not wait for a merge that may still come",
        says="a merge that was lost on its way is asked for again at once",
        seed=37,
        swaps=(Swap(owner=again, name="_doubted_until", by=always(0.0)),),
    ),
    Defect(
        name="counts no segments after a merge",
        says="what does not run any more counts as merged",
        seed=22,
        swaps=(Swap(owner=merging, name="_ended", by=_believing_the_end),),
    ),
    Defect(
        name="counts the segments of primaries alone",
        says="an index is merged when its primaries are",
        seed=30,
        swaps=(Swap(owner=BulkIndex, name="segments", by=_of_primaries),),
    ),
    Defect(
        name="counts the segments of one copy alone",
        says="an index is merged when one of its copies is",
        seed=30,
        swaps=(Swap(owner=BulkIndex, name="segments", by=_of_one_shard),),
    ),
    Defect(
        name="restarts while merges run",
        says="a node goes down that merges an index of the run",
        seed=7,
        swaps=(
            Swap(
                owner=import_module("orchestrator.merging"),
                name="STEPS",
                by=lambda steps: {**steps, Phase.MERGING: _going_on_beside_merges(steps[Phase.MERGING])},
            ),
        ),
    ),
)

GATES: Final[tuple[Defect, ...]] = (
    Defect(
        name="goes past a closed gate",
        says="a node is stopped while a gate is closed",
        seed=23,
        swaps=(without("gates_open"),),
    ),
    Defect(
        name="takes a silent gate for an open one",
        says="a node is stopped while a gate cannot be read",
        seed=74,
        swaps=(Swap(owner=gates, name="closed_gates", by=_taking_silence_for_open),),
    ),
)
