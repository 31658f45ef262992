"""What an upgrade plans, and what the simulated hosts make of its steps."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.model.action import Refused, RunInstall
from orchestrator.simulation import installs, machines
from orchestrator.simulation.facts import Fact
from tests.simulation.play import cluster, plan_of, policy
from tests.simulation.scene import ES1, ES2, Scene
from tests.simulation.scenes.upgrades import upgraded
from tests.simulation.upgrading import STEPS, TARGET, upgrading, wanted


def test_run_install_that_arrives_beside_a_start_is_refused() -> None:
    """On a host it asks the service manager, for which a start under way counts as running."""
    world = cluster(3)
    node = world.nodes[ES1]
    machines.stop(world, node)
    world.agenda.advance(30.0)
    machines.start(world, node)
    step = RunInstall(node=ES1, number=0, step=STEPS[0], ticket="r/es1/0/1", target=TARGET)
    assert not node.process
    assert installs.begin(world, node, step) == Refused(reason="its service runs", passes=True)


def test_plugins_are_planned_and_loaded_with_the_target() -> None:
    asked = upgrading()
    assert asked.upgrade is not None
    asked = replace(asked, upgrade=replace(asked.upgrade, plugins=("analysis-icu",)))
    plan = plan_of(cluster(3), asked)
    assert (plan.holds, [wave.nodes for wave in plan.waves]) == ((), [("es2",), ("es3",), ("es1",)])
    Scene(name="plugins", wanted=asked, shows=upgraded).play()


def test_a_step_that_others_left_out_is_no_lack_of_this_run() -> None:
    """Their run ended after the first of two steps: the version is the target's, and this run says so."""
    node = cluster(3).nodes[ES2]
    node.version, node.began = TARGET, 2.0
    node.facts.append(Fact(at=1.0, what="installed 0", alive=False, by="run-of-another"))
    asked = policy(upgrade=wanted())
    assert len(STEPS) == 2
    assert installs.lacking(node, asked, 0.0) == ["install step 1 never ran on es2"]
    assert installs.lacking(node, asked, 0.0, by_others=True) == []
