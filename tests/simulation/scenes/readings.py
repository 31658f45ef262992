"""What a run reads, when, and of whom: the next wave's hosts, a cluster that recovers, and after a signal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import pytest

from orchestrator.model.action import Flush
from orchestrator.model.event import ActionConfirmed, PhaseEntered, WaveStarted
from orchestrator.model.observation import CopiesActive, Look, Watch
from orchestrator.model.phase import Phase, Request
from orchestrator.model.policy import Deadlines
from orchestrator.model.reading import Instant
from orchestrator.simulation.mishaps import HostCutOff, Mishap, SnapshotBegun, Unreadable
from orchestrator.simulation.world import World
from tests.simulation.play import cluster, phase_of, policy
from tests.simulation.scene import ES5, INTERRUPTED, POOL, Played, Scene, at, before, first
from tests.simulation.zones import ZONED, zoned

# Hosts, while a run holds ------------------------------------------------------------------------------

NIGHTLY: Final = SnapshotBegun(seconds=1200.0)
twelve: Final = partial(cluster, 12)
_PATIENT: Final = policy(deadlines=Deadlines(hold=7200.0))
note_hosts: Final = before("hosts", "observe", lambda played, nodes: played.note(frozenset(nodes)))


def _sizes(played: Played, since: Instant, until: Instant) -> list[int]:
    """How many hosts each reading read."""
    return [len(nodes) for at, nodes in played.noted if since < at < until]


def _read_alone(most: int, played: Played) -> bool:
    """While the snapshot runs, less the first few readings."""
    began = next(at for at, what in played.world.story if "nightly" in what)
    sizes = _sizes(played, began + 60.0, began + 1190.0)
    return len(sizes) > 50 and max(sizes) == most


def _each_before_its_stop(played: Played) -> None:
    """And all of them first: a fault found at the last node leaves a cluster of two kinds."""
    for number, (began, wave) in enumerate(zip(played.times(WaveStarted), played.waves, strict=True)):
        last = [nodes for at, nodes in played.noted if began - 10.0 < at <= began]
        assert {*wave} <= last[-1]
        assert number or {*played.world.nodes} in last


def _many_at_once(played: Played) -> None:
    """A few readings find a host that is not cut off, and not one more host in each."""
    assert [wave for (wave,) in played.waves[:2]] == ["es10", "es8"]
    sizes = _sizes(played, played.happened("es10 left") + 11.0, played.times(WaveStarted)[1])
    assert max(sizes) > 2
    assert sum(size > 1 for size in sizes) <= 3


_REACHED: Final = {"es10", "es8", "es1"}
_BETWEEN: Final = at("stop", NIGHTLY, nth=2)


def held(name: str, *befalls: Mishap, shows: Callable[[Played], object], **more: object) -> Scene:
    """Nothing holds the run for longer than it may."""
    changes = {"name": f"hosts read: {name}", "of": twelve, "wanted": _PATIENT, **more}
    return Scene(**changes, befalls=befalls, prepares=note_hosts, shows=shows)


# fmt: off
_HOSTS: Final = (
    *(
        held(f"of the next wave alone, {when}", *befalls, shows=partial(_read_alone, 1))
        for when, befalls in (
            ("before the first stop", [first(NIGHTLY)]),
            ("between two", [_BETWEEN]),
            ("another out of reach", [_BETWEEN, at("stop", HostCutOff(node=ES5, seconds=1200.0), nth=2)]),
        )
    ),
    held("all first, and each before its own stop", first(NIGHTLY), shows=_each_before_its_stop),
    held("of many skipped candidates at once",
        *(
            at("restore_allocation", HostCutOff(node=name, seconds=600.0))
            for name in twelve().nodes if name not in _REACHED
        ),
        shows=_many_at_once),
    held("of a zone as a whole and no other",
        at("stop", NIGHTLY, nth=4), of=partial(zoned, 12, most=4),
        wanted=policy(deadlines=_PATIENT.deadlines, **ZONED), shows=partial(_read_alone, 4)),
)
# fmt: on

# The cluster, while copies recover ---------------------------------------------------------------------


def slow() -> World:
    """Three nodes whose copies come back in about five minutes."""
    world = World(seed=1)
    for number in range(3):
        world.add_node(f"es{number + 1}", zone="abc"[number])
    world.add_index("logs", shards=3, replicas=1, size=100 << 30).keeps = 0.0
    return world


def _note_wait(played: Played, watch: Watch) -> None:
    """For how long the wave has waited for copies, and for how long the run listens now."""
    if isinstance(watch.cluster, CopiesActive):
        assert watch.cluster.count == 6, "each poll ends with the last copy, and not before"
        waits = [r.at for r in played.simulation.journal.records if isinstance(r.event, PhaseEntered)]
        played.note((played.world.agenda.now - waits[-1], watch.until - played.world.agenda.now))


def _less_and_less_often(played: Played) -> None:
    waits = [wait for _, wait in played.noted]
    assert max(waited for waited, _ in waits) > 200, "it is a long one"
    assert {pause for waited, pause in waits if waited < 20} == {2.0}
    assert {round(pause, 6) for waited, pause in waits if waited >= 150} == {15.0}
    assert [wait for wait in waits if abs(wait[1] - min(max(2.0, wait[0] / 10), 15.0)) >= 0.001] == []


def _finished_once_a_wave(played: Played) -> bool:
    running = sum(Look.RECOVERIES in looks for _, looks in played.noted)
    finished = sum(Look.FINISHED in looks for _, looks in played.noted)
    return 3 <= finished <= 6 < running / 5


_RECOVERIES: Final = (
    Scene(
        name="a long recovery is read less and less often",
        of=slow,
        prepares=before("listener", "listen", _note_wait),
        shows=_less_and_less_often,
    ),
    Scene(
        name="recoveries that have ended are read once a wave",
        of=slow,
        prepares=before("cluster", "observe", lambda played, looks: played.note(looks)),
        shows=_finished_once_a_wave,
    ),
)

# A signal that comes in a reading ----------------------------------------------------------------------


def _flushed(played: Played) -> bool:
    return played.events[-1] == ActionConfirmed(action=Flush())


def _in(phase: Phase, played: Played) -> bool:
    return phase_of(played.simulation) is phase


def interrupted(name: str, when: Callable[[Played], bool], *, reads: bool, changed: bool = True) -> Scene:
    """Interrupted in the first such reading; and whether it reads after that."""

    def look(played: Played, looks: Collection[Look]) -> None:
        if played.simulation.fate.request is not Request.NONE:
            played.note(looks)
        elif when(played):
            played.simulation.fate.request = Request.INTERRUPT

    return Scene(
        name=f"interrupted in a reading: {name}",
        prepares=before("cluster", "observe", look),
        ends=INTERRUPTED,
        sent={"stop": int(changed), "set_allocation": int(reads)},
        shows=lambda played: bool(played.noted) is reads,
        marks=[pytest.mark.proves("early-signal")],
    )


_SIGNALS: Final = (
    interrupted("no stop is sent after the last one", _flushed, reads=True, changed=False),
    *(
        interrupted(
            f"none follows if nothing was changed, {phase.value}",
            partial(_in, phase),
            reads=False,
            changed=False,
        )
        for phase in (Phase.PREPARING, Phase.GATED)
    ),
    interrupted("others follow until all is restored", partial(_in, Phase.DOWN), reads=True),
)

# fmt: off
_DROPPED: Final = tuple(
    Scene(name=f"Unreadable: packets are dropped, each reading fails after half a minute, from {verb} on",
        wanted=policy(hooks=POOL, deadlines=Deadlines(hold=600.0, recover=600.0, withheld=600.0)),
        befalls=[at(verb, Unreadable(seconds=1e7))],
        prepares=before("cluster", "observe", lambda played, _looks: played.world.agenda.advance(31.0)),
        ends=None, within=20_000.0)
    for verb in ("start", "hook_after_recovery", "restore_settings")
)
# fmt: on

SCENES: Final = (*_DROPPED, *_HOSTS, *_RECOVERIES, *_SIGNALS)
