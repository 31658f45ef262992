"""Seeded whole runs with mishaps and kills: safe at every step, ended in time, everything as found.

`ORCHESTRATE_SEEDS=5000` runs more of them, `ORCHESTRATE_SEED=17` only that one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from orchestrator.engine.state import RunState
from orchestrator.model.event import PhaseEntered, StoodDown
from orchestrator.model.observation import Level, ServiceState, SettingValue
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.simulation import machines
from orchestrator.simulation.mishaps import Crash, SettingMeddled
from orchestrator.simulation.run import Simulation
from orchestrator.simulation.world import World
from tests.simulation.chance import ALLOCATION, Chance, chance, world_of
from tests.simulation.play import StuckError, plan_of, play

Found = tuple[dict[str, SettingValue], dict[str, SettingValue]]
_ATTEMPTS = 20
_WORLD_HEALS_SECONDS = 8000.0


def _seeds() -> Sequence[int]:
    one = os.environ.get("ORCHESTRATE_SEED")
    return [int(one)] if one else range(int(os.environ.get("ORCHESTRATE_SEEDS", "60")))


@pytest.mark.parametrize("seed", _seeds())
def test_a_run_left_to_chance(seed: int) -> None:
    drawn = chance(seed)
    world = world_of(drawn)
    simulation = Simulation(world, plan=drawn.plan, trips=drawn.trips)
    try:
        _live(simulation, drawn, world)
    except (AssertionError, StuckError) as failure:
        story = "\n".join(f"  {at - 1_000_000:9.1f} {what}" for at, what in world.story[-40:])
        journal = "\n".join(f"  {r.at - 1_000_000:9.1f} {_said(r.event)}" for r in simulation.journal.records)
        pytest.fail(f"ORCHESTRATE_SEED={seed}\n{drawn}\n{story}\njournal\n{journal}\n{failure}")


def _said(event: object) -> str:
    return str(event)[:300]


def _live(simulation: Simulation, drawn: Chance, world: World) -> None:
    found, replicas = world.settings(), {i.name: i.replicas for i in world.indices.values()}
    # Every other run is one whose plan was shown: its waves bound those of the run.
    waves = plan_of(world, drawn.wanted).waves if drawn.seed % 2 else ()
    state, restored = simulation.begin(drawn.wanted, planned=tuple(wave.nodes for wave in waves)), False
    for attempt in range(_ATTEMPTS):
        offset = drawn.crashes[attempt] if attempt < len(drawn.crashes) else None
        simulation.seams.crash_at = None if offset is None else len(simulation.seams.passed) + offset
        ended = True
        try:
            state = play(simulation, state)
        except Crash:
            ended = False
        assert world.violations == [], world.violations
        if ended:
            _judge_end(simulation, state, found, replicas)
            if state.outcome is Outcome.DONE:
                _judge_done(simulation, world)
                return
            # Between two attempts somebody repairs what was broken.
            world.agenda.advance(_WORLD_HEALS_SECONDS)
        else:
            world.agenda.advance(5.0)
        simulation.seams.crash_at = None
        _repair(simulation)
        restored = drawn.restores[attempt] and not restored
        state = simulation.restore() if restored else simulation.resume(retry_failed=True)
    raise StuckError(f"not done after {_ATTEMPTS} attempts: {state.outcome} {state.message}")


def _repair(simulation: Simulation) -> None:
    """What only people can do: undo a change that bars the run, start a node that died by itself."""
    _, meddled = simulation.world.meddled.get((Level.PERSISTENT, ALLOCATION), (0.0, None))
    if meddled is not None:
        simulation.fate.befall(SettingMeddled(key=ALLOCATION, value=None))
    for node in simulation.world.nodes.values():
        if node.service is ServiceState.FAILED and not node.stopped_by_us:
            node.starts_that_fail = 0
            machines.start(simulation.world, node)


def _judge_end(
    simulation: Simulation,
    state: RunState,
    found: Found,
    replicas: dict[str, int],
) -> None:
    world = simulation.world
    assert state.phase is Phase.ENDED
    left = next(
        (r.event.left for r in reversed(simulation.journal.records) if isinstance(r.event, StoodDown)), ()
    )
    not_restored = state.outcome is Outcome.NOT_RESTORED
    for level, before, now in zip((Level.PERSISTENT, Level.TRANSIENT), found, world.settings(), strict=True):
        for key in {*before, *now}:
            _, wanted = world.meddled.get((level, key), (0.0, before.get(key)))
            if now.get(key) != wanted:
                said = f"{key} ({level.value}) is {now.get(key)} and should be {wanted}: {state.outcome}"
                assert not_restored, said
                assert any(key in line for line in left), f"{said}, and is not listed in {left}"
    for index in world.indices.values():
        if index.name in replicas and index.replicas != replicas[index.name]:
            assert not_restored, f"{index.name} has {index.replicas} replicas"
    assert not world.exclusions or not_restored, f"exclusions are left: {world.exclusions}"
    ours = [node.name for node in world.nodes.values() if node.stopped_by_us and not node.process]
    failed = [name for name, node in state.nodes.items() if node.phase is NodePhase.FAILED]
    assert set(ours) <= set(failed) or not_restored, f"{ours} left down as {state.outcome}, failed: {failed}"


def _judge_done(simulation: Simulation, world: World) -> None:
    # A node that dies by itself, and is missed only when the last wave has recovered, is none of the run.
    entered = [r for r in simulation.journal.records if isinstance(r.event, PhaseEntered)]
    recovered = max((r.at for r in entered if r.event.to == Phase.SETTLED.value), default=0.0)
    unnoticed = recovered - world.detection_seconds
    died = {
        what.removesuffix(" dies") for at, what in world.story if at >= unnoticed and what.endswith(" dies")
    }
    for node in world.nodes.values():
        assert node.joined or node.name in died, f"{node.name} is away at the end"
        assert node.life > 1, f"{node.name} was not restarted"
        assert node.restarts_by_us <= 1, f"{node.name} was stopped {node.restarts_by_us} times"
