"""What a plan says of `overlap_recovery: true`, and that it takes less time."""

from __future__ import annotations

from orchestrator.view.plan import plan_text
from tests.simulation.overlapping import overlapped, slow
from tests.simulation.play import plan_of
from tests.simulation.scene import Scene


def test_overlap_recovery_takes_less_time() -> None:
    took = {}
    for on in (False, True):
        played = Scene(name=f"overlap {on}", of=slow, wanted=overlapped(overlap_recovery=on)).play()
        took[on] = played.world.agenda.now - played.began
    assert took[True] < 0.8 * took[False]


def test_the_plan_says_that_overlap_recovery_is_on() -> None:
    plans = {on: plan_of(slow(), overlapped(overlap_recovery=on)) for on in (False, True)}
    assert plans[True].waves[0].why == "one node at a time, zone by zone"
    assert ["overlap_recovery" in plan_text(plans[on]) for on in (False, True)] == [False, True]
    least = sum(wave.predicted.low for wave in plans[True].waves)
    assert plans[True].predicted.low == least, "nothing is on record: their nodes are away one after another"
    assert plans[True].predicted == plans[False].predicted
    without_zones = plan_of(slow(), overlapped(zone_attribute=None))
    assert without_zones.waves[0].why == "one node at a time, in order"
