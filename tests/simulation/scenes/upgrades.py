"""Upgrades: every node ends on the target, by a process that began after its last install step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from orchestrator.model.event import COULD_NOT_FINISH, WaveStarted
from orchestrator.model.observation import Level
from orchestrator.model.phase import Request
from orchestrator.model.policy import (
    Deadlines,
    Hook,
    Hooks,
    Strategy,
    Together,
)
from orchestrator.model.reading import Unknown
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from orchestrator.model.work_event import InstallEnded, Upgraded, UpgradeMissed
from orchestrator.simulation import mishaps
from orchestrator.simulation.facts import FIT
from orchestrator.simulation.world import World
from orchestrator.view.progress import half_done
from orchestrator.view.summary import summary, summary_lines
from tests.simulation import node_mishaps
from tests.simulation.play import cluster, policy
from tests.simulation.scene import (
    DONE,
    ES1,
    ES2,
    ES3,
    FAILED,
    HELD,
    INTERRUPTED,
    Played,
    Scene,
    asked,
    at,
    late,
    lost,
    refused,
    resume,
    unheard,
)
from tests.simulation.tuned import profile
from tests.simulation.upgrading import STEPS, TARGET, upgrading, wanted

FAILS_ONCE: Final = {"*": {"disk.fails": 1}}
INSTALLS: Final = ["stop", "install", "install", "start"]


def upgraded(played: Played, *, steps: int | None = None) -> None:
    """Every node runs the target, and every step ran once on it."""
    world = played.world
    count = len(world.nodes) if steps is None else steps
    facts = Counter(fact.what for node in world.nodes.values() for fact in node.facts)
    assert {node.version for node in world.nodes.values()} == {TARGET}
    assert (facts["installed 0"], facts["installed 1"]) == (count, count)


def upgrade(name: str, **more: object) -> Scene:
    return Scene(**{"name": name, "wanted": upgrading(), "shows": upgraded, **more})


def _by_us(played: Played) -> None:
    upgraded(played)
    told = {(event.node, event.version, event.by_others) for event in played.found(Upgraded)}
    assert told == {(name, TARGET, False) for name in played.world.nodes}
    ends = Counter((end.node, end.number) for end in played.found(InstallEnded))
    assert ends == {(name, number): 1 for name in played.world.nodes for number in (0, 1)}


def _by_others(played: Played) -> None:
    assert {node.version for node in played.world.nodes.values()} == {TARGET}
    assert [event.node for event in played.found(Upgraded) if event.by_others] == [ES3]


def _unread(unread: Unknown, part: str | None, after: float) -> World:
    """An upgrade to the next major version; what it has to know beforehand can be read only after a while."""
    world = cluster(3)
    for node in world.nodes.values():
        node.version = "8.19.0"
    fit = replace(FIT, snapshot_ended=world.agenda.now)
    world.fitness = unread if part is None else replace(fit, **{part: unread})
    world.agenda.after(after, lambda: setattr(world, "fitness", fit))
    return world


_BUSY: Final = Unknown(reason="GET _nodes was answered with 503", passes=True)
_TOLD_LATE: Final = upgrading(upgrade=wanted(snapshot_younger_than=86_400.0), deadlines=Deadlines(hold=100.0))


def _six(*, paired: bool = False) -> World:
    world = cluster(6)
    world.allowed_down = 2
    for node in list(world.nodes.values())[3:] if paired else ():
        node.machine = world.nodes[{"es4": ES1, "es5": ES2, "es6": ES3}[node.name]].machine
    return world


def _one_machine() -> World:
    world = cluster(3)
    for node in world.nodes.values():
        node.machine = world.nodes[ES1].machine
    return world


def _of_two_steps() -> World:
    world = cluster(3)
    world.steps = len(STEPS)
    return world


def _learning(mode: str = "false") -> World:
    world = cluster(3)
    world.persistent[ML_UPGRADE_MODE] = mode
    return world


def _modes(played: Played) -> list[str]:
    """The values that upgrade_mode was given, in order."""
    said = f"{ML_UPGRADE_MODE} (persistent) = "
    return [what.removeprefix(said) for _, what in played.world.story if what.startswith(said)]


def _last_lines(played: Played) -> str:
    assert played.state.outcome is not None
    end = summary(played.state, played.state.outcome, played.events, played.simulation.journal.records[-1].at)
    return "\n".join(summary_lines(end))


def _unfinished(played: Played) -> None:
    said = _last_lines(played)
    assert half_done(played.state) == "0 of 3 nodes restarted and an unfinished install on es2"
    assert f"0 of 3 nodes upgraded to {TARGET}" in said
    assert "Not upgraded  es" in said
    assert "repair what failed, then continue:\n    orchestrate resume run-1 --retry-failed" in said


def _no_repair_helps(played: Played) -> None:
    said = _last_lines(played)
    assert "Held by  no_node_is_newer" in said.replace("       ", "  ")
    assert "begin another run, with the options of this one and another `--to`" in said
    assert "orchestrate resume" not in said


def _half_installed(played: Played) -> None:
    """The same node is the next one, each time."""
    assert {node.name for node in played.state.nodes.values() if node.installs} == {ES2}


def _repaired(played: Played) -> None:
    for node in played.world.nodes.values():
        node.disk.fails, node.disk.seconds = 0, 20.0


def _one_step(played: Played) -> None:
    facts = [fact.what for node in played.world.nodes.values() for fact in node.facts]
    assert [what for what in facts if what.startswith("installed")] == ["installed 0"]


APART: Final = [pytest.mark.proves("installs-apart")]
# fmt: off
SCENES: Final = (
    upgrade("upgrade: every node while it is down", verbs={ES1: INSTALLS}, shows=_by_us, lives={}),
    upgrade(
        "upgrade: 3 of 3 nodes in the last lines",
        shows=lambda played: (
            f"3 of 3 nodes upgraded to {TARGET}" in _last_lines(played)
            and "not upgraded" not in _last_lines(played)
        ),
    ),
    upgrade(
        "upgrade: install steps come after while_stopped hooks and before tuning",
        prepares=lambda played: [
            node.kernel.update({"vm.swappiness": "60"}) for node in played.world.nodes.values()
        ],
        wanted=upgrading(
            hooks=Hooks(while_stopped=(Hook(run="patch {node}"),)), tune=profile("vm.swappiness")
        ),
        verbs={ES1: ["stop", "while_stopped", "install", "install", "tune", "start"]},
    ),
    *(
        upgrade(f"upgrade: fitness that cannot be read for now is waited for, {part}, {after:.0f} s",
            of=partial(_unread, unread, part, after), wanted=_TOLD_LATE,
            ends=HELD if says else DONE, says=says, shows=None)
        for part, unread, after, says in (
            (None, _BUSY, 40.0, ""),
            (None, _BUSY, 400.0, _BUSY.reason),
            ("deprecations", _BUSY, 40.0, ""),
            ("snapshot_ended", _BUSY, 400.0, _BUSY.reason),
            ("snapshot_ended", replace(_BUSY, passes=False), 41.0, COULD_NOT_FINISH),
        )
    ),
    upgrade("upgrade: a zone together",
        of=_six, wanted=upgrading(strategy=Strategy.ZONE, zone_attribute="zone", max_unavailable=None)),
    upgrade(
        "upgrade: nodes of one machine go in one wave, and install one after the other",
        of=partial(_six, paired=True),
        wanted=upgrading(max_unavailable=None),
        shows=lambda played: (
            (upgraded(played), [len(e.wave.nodes) for e in played.found(WaveStarted)])[1] == [2, 2, 2]
        ),
    ),
    upgrade(
        "upgrade: what is on the disk already is not installed again",
        prepares=lambda played: (
            setattr(played.world.nodes[ES1].disk, "holds", TARGET),
            setattr(played.world.nodes[ES1], "next_version", TARGET),
        ),
        verbs={ES1: ["stop", "install", "start"]},
        shows=partial(upgraded, steps=2),
    ),
    upgrade(
        "upgrade: a step that fails ends the run with its node up, and the last lines name who needs it",
        nodes=FAILS_ONCE, ends=FAILED, says="install step 1 on es",
        then=[_unfinished, *[resume(ends=FAILED)] * 2, resume()]),
    upgrade("upgrade: a half-installed node is the next one while the cause is there",
        nodes={"*": {"disk.fails": 3}}, ends=FAILED,
        then=[
            *[_half_installed, resume(ends=FAILED, says="install step 1 on es2")] * 2, _half_installed,
            _repaired, resume()
        ]),
    upgrade("no_node_is_newer: a run that no repair helps is not to be resumed",
        nodes={ES2: {"version": "99.0.0"}}, ends=HELD, shows=_no_repair_helps),
    *(
        upgrade(f"upgrade: a step in doubt, {one.how.name}, runs once", befalls=[replace(one, times=2)])
        for one in (lost("install"), unheard("install"), late("install", 20.0))
    ),
    upgrade("upgrade: a step that is REFUSED ends the run with its node up",
        befalls=[refused("install")], ends=FAILED, says="sudo: a password is required", then=[resume()]),
    upgrade("upgrade: interrupted in a step, its node is started after the step",
        nodes={"*": {"disk.seconds": 200.0}}, befalls=[asked(Request.INTERRUPT, "install", after=5.0)],
        ends=INTERRUPTED, then=[_one_step, resume()], marks=APART),
    upgrade("upgrade: a step past deadlines.install is left alone with its node",
        nodes={ES1: {"disk.seconds": 5000.0}}, wanted=upgrading(deadlines=Deadlines(install=600.0)),
        ends=FAILED, says="install step 1", away=[ES1],
        then=[
            lambda played: played.verbs(ES1)[-1] == "install", 5000.0, _repaired,
            resume(retry_failed=True)
        ],
        marks=APART),
    upgrade(
        "upgrade: a node that is started too early gets another turn",  # that upgrades nothing
        nodes={ES1: {"rises_after": 5.0}},
        lives={ES1: 3},
        sent={"stop es1": 2},
        marks=[pytest.mark.proves("upgraded")],
    ),
    upgrade("upgrade: a step is waited for beside a node that was started too early",
        of=_one_machine, nodes={ES2: {"rises_after": 5.0}}, wanted=upgrading(together=Together.NEVER),
        lives={ES2: 3}),
    upgrade("upgrade: a node that others upgrade is not stopped",
        nodes={ES3: {"next_version": TARGET, "disk.holds": TARGET}},
        befalls=[at("stop", node_mishaps.RestartedByHand(node=ES3), ES2, after=1.0)], verbs={ES3: []},
        shows=_by_others),
    upgrade(
        "UpgradeMissed: a node that returns with another version ends the run",  # a wrong link
        befalls=[at("start", node_mishaps.ReturnsChanged(node=ES1, version="9.1.0"), ES1)],
        ends=FAILED,
        says="came back with 9.1.0, though its install steps ended well: 9.2.0 was to be installed",
        shows=lambda played: [(e.node, e.version) for e in played.found(UpgradeMissed)] == [(ES1, "9.1.0")],
        marks=[pytest.mark.proves("upgraded")],
    ),
    upgrade("upgrade: a step in doubt, refused when it is sent again, and done late is not taken again",
        of=_of_two_steps, nodes={ES1: {"disk.seconds": 3.0}},
        wanted=upgrading(upgrade=replace(wanted(), installed=None)),
        befalls=[
            replace(late("install", 15.0, ES1), first=2), refused("install", target=ES1, first=3),
            lost("start", target=ES1, times=2)
        ],
        ends=FAILED, then=[resume(retry_failed=True)]),
    upgrade("upgrade: plugins are loaded with the target",
        wanted=upgrading(upgrade=wanted(plugins=("analysis-icu",)))),
    upgrade("upgrade_mode: machine learning pauses for the upgrade",
        of=_learning, shows=lambda played: _modes(played) == ["true", "false"]),
    upgrade("upgrade_mode: a pause of others stays",
        of=partial(_learning, "true"),
        shows=lambda played: _modes(played) == [] and played.world.persistent[ML_UPGRADE_MODE] == "true"),
    upgrade("upgrade_mode: a restart does not pause machine learning",
        of=_learning, wanted=policy(), shows=lambda played: _modes(played) == []),
    upgrade("archived: settings that the target archived are named at the end",
        befalls=[
            at(
                "start",
                mishaps.SettingMeddled(level=Level.PERSISTENT, key="archived.tribe.name", value="x"),
                after=1.0
            )
        ],
        says=("archived.tribe.name", '"persistent": {"archived.*": null}')),
)
# fmt: on
