"""A plan: the steps of a run, made by the same decisions over the optimistic world."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Final

from orchestrator.engine.estimate import (
    PastTimes,
    correction,
    least_away,
    predict_wave,
    rests_on,
    stored_by_node,
    total,
)
from orchestrator.engine.every_kind import SELECTED_HOSTS_READY
from orchestrator.engine.fold import evolve
from orchestrator.engine.kind import KindOfCluster
from orchestrator.engine.optimism import OptimisticWorld
from orchestrator.engine.predicates import aggregated
from orchestrator.engine.run import decide
from orchestrator.engine.situation import Decision
from orchestrator.engine.state import RunState
from orchestrator.engine.upgrade import is_target
from orchestrator.engine.waves import fewest_waves, nodes_to_restart
from orchestrator.formats import listed
from orchestrator.model.action import Action, action_name, action_target
from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    BaselineRecorded,
    Event,
    ForeseenNotToReturn,
    Hold,
    PhaseEntered,
    Record,
    RunStarted,
    SettingChanged,
    StandingDown,
    WaveStarted,
)
from orchestrator.model.observation import ClusterView, MissingCopy, Observation
from orchestrator.model.phase import Outcome, Phase
from orchestrator.model.plan import (
    FoundAndWanted,
    Plan,
    PlannedWait,
    PlannedWave,
    Step,
    ValueToday,
    by_key,
)
from orchestrator.model.policy import (
    DisabledPredicate,
    Policy,
    Strategy,
    Wave,
)
from orchestrator.model.reading import Unknown

Describe = Callable[[Action], str]
"""The exact call or command line of an action."""

NO_ACCESS: Final[Mapping[str, str]] = MappingProxyType({})
"""The access of a simulated cluster."""
_HOSTS_READY: Final = SELECTED_HOSTS_READY.name
"""Its holds are also cleared in the world: no stop could be planned on a host that does not answer."""
_LIVES: Final = "lives_are_told"
"""Cleared as well: a node without a known process could not be seen to come back."""
_STAND_DOWN: Final = "stand_down"
"""Used in place of a predicate when a run would stand down for another reason."""

_TURNS_A_NODE: Final = 200
"""Decisions that a node's restart may take without delays; with more, the plan has no end."""


def make_plan(
    kind: KindOfCluster,
    started: RunStarted,
    seen: Observation,
    *,
    describe: Describe,
    times: PastTimes,
    access: Mapping[str, str] = NO_ACCESS,
) -> Plan:
    """Play the run through from this observation.

    Holds are reported and then switched off, so that the plan shows the whole run. Only holds of predicates
    that cannot be disabled end the plan.

    Args:
        kind: of the cluster.
        started: the event with which the run would begin.
        seen: a whole observation of the real world.
        describe: the exact call of an action, from the ports.
        times: past runs, for the prediction.
        access: how cluster and hosts are reached and services are stopped, by key; for the fingerprint.
    """
    play = _Play(kind, started, seen)
    for _ in range(_TURNS_A_NODE * (len(started.nodes) + len(started.indices) + 1)):
        if play.state.phase is Phase.ENDED:
            break
        play.now += 1.0
        decision = decide(kind, play.state, play.world.at(play.now), play.now)
        refusals = _refusals(decision)
        if not refusals:
            play.carry_out(decision, describe)
        elif not play.pass_over(decision, refusals):
            break
    return _finished(started, seen, play, times, access)


def empty_plan(
    kind: KindOfCluster, started: RunStarted, seen: Observation, access: Mapping[str, str] = NO_ACCESS
) -> Plan:
    """The plan of a run without due nodes: no wave, and nothing that could hold it."""
    return _finished(started, seen, _Play(kind, started, seen), PastTimes(), access)


class _Play:
    """A run while it is played through, and what a plan says of it."""

    def __init__(self, kind: KindOfCluster, started: RunStarted, seen: Observation) -> None:
        self.world, self.now = OptimisticWorld(kind=kind, seen=seen), seen.at
        self.kind, self.state = kind, RunState(run="plan")
        self.waves: list[Wave] = []
        self.holds: tuple[Hold, ...] = ()
        self.lasting: dict[str, None] = {}
        self.steps: list[Step] = []
        self.waits: list[PlannedWait] = []
        self.levels: dict[str, dict[str, FoundAndWanted]] = {}
        self.missing: tuple[MissingCopy, ...] = ()
        self._never_pass = {rule.name for rule in kind.predicates if not rule.passes_with_time}
        self._fixed = {_STAND_DOWN, *(rule.name for rule in kind.predicates if not rule.may_be_disabled)}
        # All readings of this world agree, so one of them is enough. The seconds of the play are not those of
        # a run, so `--timeout` does not end it: the prediction is compared with it.
        self._policy = replace(started.policy, settle_consecutive=1, timeout=None)
        self._follow(replace(started, policy=self._policy))

    @property
    def settings(self) -> dict[str, FoundAndWanted]:
        """By key, of the first level at which it is changed."""
        return {key: each[0][1] for key, each in by_key(self.levels).items()}

    def carry_out(self, decision: Decision, describe: Describe) -> None:
        """Record what was decided, and do it in the world."""
        self._follow(*decision.events)
        for action in decision.actions:
            self.steps.append(
                Step(
                    wave=self.state.wave.number if self.state.wave else self.state.waves_finished,
                    order=len(self.steps) + 1,
                    target=action_target(action),
                    action=action_name(action),
                    detail=describe(action),
                )
            )
            self._follow(ActionConfirmed(action=action))
        foreseen = (event for event in decision.events if isinstance(event, ForeseenNotToReturn))
        lost = [one for each in foreseen for one in each.shards]
        self.world = self.world.after(*decision.actions).without(lost)

    def pass_over(self, decision: Decision, refusals: tuple[Hold, ...]) -> bool:
        """Report these holds and switch them off; False when one of them cannot be."""
        if not self.waves:
            self.lasting |= dict.fromkeys(self._lasting(decision, refusals))
        self.holds = aggregated([*self.holds, *refusals])
        if any(hold.predicate in self._fixed for hold in refusals):
            return False
        off = [DisabledPredicate(name=name) for hold in refusals for name in (hold.predicate, *hold.also)]
        self._under(_without(self.state.begun.policy, off))
        self._policy = _without(self._policy, [rule for rule in off if rule.name in self._never_pass])
        if any(_HOSTS_READY in (hold.predicate, *hold.also) for hold in refusals):
            self.world = self.world.in_reach()
        if any(hold.predicate == _LIVES for hold in refusals):
            self._give_lives()
        return True

    def _follow(self, *events: Event) -> None:
        for event in events:
            self.state = evolve(self.state, Record(run="plan", sequence=0, at=self.now, event=event))
            if isinstance(event, WaveStarted):
                self.waves.append(event.wave)
            elif isinstance(event, BaselineRecorded):
                self.missing = event.missing
            elif isinstance(event, SettingChanged):
                level = self.levels.setdefault(event.level.value, {})
                level.setdefault(event.key, (event.found, event.wanted))
            elif isinstance(event, PhaseEntered) and event.node is None and event.to == Phase.DOWN.value:
                # Predicates that pass with time are checked again on the next wave.
                self._under(self._policy)
            if isinstance(event, PhaseEntered) and event.node is None:
                self._wait(Phase(event.to))

    def _wait(self, entered: Phase) -> None:
        """Record what the run waits for before its next step, by the phase that begins or is over there."""
        policy, wave = self._policy, self.state.wave
        names = "" if wave is None else listed(wave.nodes, 3)
        gates = listed([gate.name for gate in policy.gates], 3)
        found = {
            Phase.GATED: [
                ("hold", "all checks to pass"),
                ("gate", f"gates to open: {gates}" if gates else ""),
            ],
            Phase.REJOINED: [("rejoin", f"{names} to join the cluster")],
            Phase.SETTLED: [
                (
                    "recover",
                    self.kind.words.awaits.get(Phase.REASSIGNED) or f"the copies of {names} to recover",
                )
            ],
        }
        number = self.state.waves_finished + 1 if entered is Phase.GATED or wave is None else wave.number
        for key, what in found.get(entered, []):
            if what:
                limit = getattr(policy.deadlines, key)
                self.waits.append(
                    PlannedWait(wave=number, after=len(self.steps), what=what, limit=limit, key=key)
                )

    def _under(self, policy: Policy) -> None:
        self.state = replace(self.state, begun=replace(self.state.begun, policy=policy))

    def _lasting(self, decision: Decision, refusals: tuple[Hold, ...]) -> Iterator[str]:
        """The predicates for which the run does not begin, since waiting cannot clear them."""
        down = _stand_down(decision)
        if down is not None and down.outcome is Outcome.HELD:
            whole = down.never_began
            yield from (hold.predicate for hold in refusals if whole or hold.predicate in self._never_pass)

    def _give_lives(self) -> None:
        """Each node of the next stop reports its process, and one of a wave that has begun is known by it."""
        state = self.state
        self.world = self.world.with_lives(state.wave.nodes if state.wave else state.begun.nodes)
        view = self.world.seen.cluster
        lives = {} if isinstance(view, Unknown) else {node.name: node.incarnation for node in view.nodes}
        untold = (node for node in state.nodes.values() if node.life == Incarnation())
        reported = (replace(node, life=lives.get(node.name, node.life)) for node in untold)
        self.state = replace(state, nodes=state.nodes.changed(*reported))


def _without(policy: Policy, off: Sequence[DisabledPredicate]) -> Policy:
    return replace(policy, disabled_predicates=(*policy.disabled_predicates, *off))


def _checked(kind: KindOfCluster, policy: Policy) -> int:
    """How many predicates such a run checks: those of an upgrade in one, and none that is switched off."""
    off = {each.name for each in policy.disabled_predicates if each.subject is None}
    return sum(
        rule.name not in off and (policy.upgrade is not None or not rule.of_upgrade)
        for rule in kind.predicates
    )


def _refusals(decision: Decision) -> tuple[Hold, ...]:
    """Holds of a decision, whether it waits on them or stands down because of them.

    A requested pause is not a hold: the plan continues with the settings that the pause restores.
    """
    down = _stand_down(decision)
    if down is not None and down.outcome is not Outcome.PAUSED:
        said = tuple(event for event in decision.events if isinstance(event, Hold))
        return said or (Hold(predicate=_STAND_DOWN, subject="run", evidence=down.reason),)
    return decision.holds


def _stand_down(decision: Decision) -> StandingDown | None:
    return next((event for event in decision.events if isinstance(event, StandingDown)), None)


def _fewest(kind: KindOfCluster, started: RunStarted, view: ClusterView | None) -> tuple[int | None, str]:
    """The lower bound of the waves, where a strategy looks for few of them."""
    policy = started.policy
    if policy.strategy is not Strategy.SHARD_SAFE or view is None or not started.nodes:
        return None, ""
    units = tuple((name,) for name in started.nodes)
    return fewest_waves(kind, policy, view, units)


def _finished(
    started: RunStarted, seen: Observation, play: _Play, times: PastTimes, access: Mapping[str, str]
) -> Plan:
    view = None if isinstance(seen.cluster, Unknown) else seen.cluster
    usual = play.kind.usual(seen, started.policy)
    stored = stored_by_node(seen)
    waves = tuple(
        PlannedWave(
            number=wave.number,
            zone=wave.zone,
            nodes=wave.nodes,
            why=wave.why,
            predicted=predict_wave(wave, times, usual, stored=stored),
        )
        for wave in play.waves
    )
    begins = replace(started, planned=tuple(wave.nodes for wave in waves))
    fewest, why = (None, "") if play.lasting else _fewest(play.kind, started, view)
    each = [wave.predicted for wave in waves]
    away = [least_away(wave, times, usual) for wave in play.waves]
    return Plan(
        cluster=started.cluster,
        kind=started.policy.kind,
        distribution=started.distribution,
        version=started.version,
        strategy=started.policy.strategy,
        fingerprint=fingerprint(seen.cluster, started.policy, [wave.nodes for wave in play.waves], access),
        waves=waves,
        lower_bound_waves=fewest,
        lower_bound_reason=why,
        overlaps=started.policy.overlap_recovery and len(waves) > 1,
        holds=play.holds,
        predicates=_checked(play.kind, started.policy),
        lasting=tuple(play.lasting),
        steps=tuple(play.steps),
        waits=tuple(wait for wait in play.waits if wait.wave <= len(waves)),
        settings_changed=play.settings,
        settings_by_level=play.levels,
        predicted=total(each, away=away if started.policy.overlap_recovery else None),
        timeout=started.policy.timeout,
        predicted_from=rests_on(times, usual) if waves else "",
        measured=times.measured,
        correction=correction(times),
        stored=stored,
        target_version=started.policy.upgrade.target if started.policy.upgrade else None,
        owed=dict.fromkeys(started.nodes, _owed(started.policy)),
        other_versions=_other_versions(started, view),
        nodes_selected=len(started.nodes),
        settings_today=_today(started, seen, play),
        missing=play.missing,
        pauses=bool(waves) and nodes_to_restart(begins) < len(started.nodes),
    )


def _today(started: RunStarted, seen: Observation, play: _Play) -> Mapping[str, ValueToday]:
    """The values in force now of the settings that the run changes."""
    settings = seen.settings
    if isinstance(settings, Unknown):
        return {}
    return {
        key: play.kind.value_today(settings, key, wanted, started)
        for key, (_, wanted) in play.settings.items()
    }


def _owed(policy: Policy) -> tuple[str, ...]:
    """What every node of the run needs beside its restart, in the order of a turn."""
    hooks = policy.hooks
    words = {
        "hooks": bool(hooks.before_stop or hooks.while_stopped or hooks.after_recovery),
        "tuning": policy.tune is not None,
        "reboot": policy.reboot,
        "version": policy.upgrade is not None,
    }
    return tuple(word for word, owed in words.items() if owed)


def _other_versions(started: RunStarted, view: ClusterView | None) -> dict[NodeName, str]:
    """The nodes that an upgrade leaves with another version, since they are not selected."""
    upgrade = started.policy.upgrade
    if upgrade is None or view is None:
        return {}
    return {
        node.name: node.version
        for node in view.nodes
        if node.name not in started.nodes and not is_target(upgrade, node)
    }


def fingerprint(view: ClusterView | Unknown, policy: Policy, waves: object, access: Mapping[str, str]) -> str:
    """What a plan depends on: the cluster, its members with zones and roles, policy, waves and access.

    It detects drift, and no forgery: an author of a plan can compute it. It leaves out lives of processes,
    places of shards, and all else that changes from minute to minute. The predicates check those before every
    stop.
    """
    members = (
        []
        if isinstance(view, Unknown)
        else sorted(
            (n.name, n.node_id, sorted(r.value for r in n.roles), sorted(n.attributes.items()))
            for n in view.nodes
        )
    )
    uuid = None if isinstance(view, Unknown) else view.uuid
    text = json.dumps([uuid, members, asdict(policy), waves, dict(access)], sort_keys=True, default=_plain)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    """Sets get a fixed order, since theirs differs between processes."""
    return sorted(map(str, value)) if isinstance(value, frozenset) else str(value)
