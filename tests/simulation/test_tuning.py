"""What a plan says of tuning: nothing is set for it."""

from __future__ import annotations

from tests.simulation.play import cluster, plan_of, policy
from tests.simulation.scene import ES2
from tests.simulation.tuned import detune, profile


def test_a_plan_shows_each_tune_and_sets_nothing() -> None:
    world = detune(cluster(3))
    world.nodes[ES2].kernel.clear()
    plan = plan_of(world, policy(tune=profile()))
    assert not plan.holds
    steps = [(step.target, step.action) for step in plan.steps if step.action in ("stop", "tune", "start")]
    per_node = {name: [action for target, action in steps if target == name] for name in world.nodes}
    tuned = ["stop", "tune", "tune", "tune", "start"]
    assert per_node == {"es1": tuned, "es2": ["stop", "start"], "es3": tuned}
    assert all(node.kernel.get("vm.swappiness") != "1" for node in world.nodes.values())
