"""Install steps on the simulated machines: a step runs on without the program, and its host keeps the end."""

from __future__ import annotations

from collections import Counter

from orchestrator.model.action import ActionResult, Done, Refused, RunInstall
from orchestrator.model.observation import ServiceState
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Instant
from orchestrator.model.upgrade import InstallState, InstallView
from orchestrator.simulation import machines
from orchestrator.simulation.facts import Fact
from orchestrator.simulation.parts import SimNode
from orchestrator.simulation.world import World

_FOUND = "found on disk"
"""The fact that all that the steps install was on the disk of a machine."""


def view(node: SimNode) -> InstallView | None:
    """The record on its host."""
    disk = node.disk
    if disk.state is None:
        return None
    return InstallView(ticket=disk.ticket, state=disk.state, said=f"the simulation says: {disk.state.value}")


def begin(world: World, node: SimNode, action: RunInstall) -> ActionResult:
    """Begin a step, unless it runs, has ended well, or must not run beside another one or a live process."""
    disk = node.disk
    if disk.state is InstallState.RUNNING:
        same = disk.ticket == action.ticket
        return Done() if same else Refused(reason="another install step runs there", passes=True)
    if disk.ticket == action.ticket and disk.state is not None:
        return Done()
    if _is_older(action.ticket, disk.ticket):
        return Refused(reason="a later install step was begun")
    if node.process or node.service is ServiceState.STARTING:
        return Refused(reason="its service runs", passes=True)
    disk.ticket, disk.number, disk.began = action.ticket, action.number, world.agenda.now
    if action.installed is not None and disk.holds == action.target:
        disk.state = InstallState.FOUND
        node.facts.append(Fact(at=world.agenda.now, what=_FOUND, alive=False))
        return Done()
    disk.state = InstallState.RUNNING
    fails, disk.fails = disk.fails > 0, max(0, disk.fails - 1)
    world.agenda.after(world.jittered(disk.seconds), lambda: _ended(world, node, action, fails=fails))
    return Done()


def _is_older(ticket: str, last: str) -> bool:
    """Whether a step that arrives late was sent before the last one of the same run and node."""
    of, _, tries = ticket.rpartition("/")
    of_last, _, tries_last = last.rpartition("/")
    same = of.rpartition("/")[0] == of_last.rpartition("/")[0] != ""
    return same and int(tries) < int(tries_last)


def _ended(world: World, node: SimNode, action: RunInstall, *, fails: bool) -> None:
    disk = node.disk
    if disk.ticket != action.ticket or disk.state is not InstallState.RUNNING:
        return
    disk.state, disk.ended = InstallState.FAILED if fails else InstallState.DONE, world.agenda.now
    if fails:
        return
    by, what = action.ticket.partition("/")[0], f"installed {action.number}"
    node.facts.append(Fact(at=world.agenda.now, what=what, alive=node.process, by=by))
    node.next_version = action.target
    disk.plugins |= frozenset(action.plugins)
    disk.done = {*disk.done, action.number} if action.number else {0}
    disk.holds = action.target if len(disk.done) == world.steps else ""


def judge(world: World, node: SimNode) -> None:
    """Record that a step is begun beside a live process, or another step, that the program has seen."""
    beside = [n for n in machines.of_one(world, node) if bars_start(n) and n.name != node.name]
    if beside:
        world.violated(f"an install step is begun on {node.name} beside that of {beside[0].name}")
    if node.process and node.began < world.last_read and not world.news(node.name):
        world.violated(f"an install step is begun on {node.name} beside its process")


def judge_start(world: World, node: SimNode) -> None:
    """Record that a start is sent while a step runs, which a reading of this process showed.

    A process that brings a master back has none: there the lock of the host refuses the start.
    """
    if bars_start(node) and max(node.disk.began, world.program_since) < world.last_read:
        world.violated(f"{node.name} is started while an install step runs there")


def bars_start(node: SimNode) -> bool:
    """Whether the lock of its host refuses a start of the program."""
    return node.disk.state is InstallState.RUNNING


def lacking(node: SimNode, policy: Policy, began: Instant, *, by_others: bool = False) -> list[str]:
    """What a node still lacks of its upgrade at the end of a run that reports success.

    `by_others`: the run has reported that others brought it to the target; a step of theirs may be missing.

    No run takes a step twice to its end. Another run may take it again where nothing is known of the disk: it
    owes all steps to a node that a step of its own has failed on, whatever others did there meanwhile.
    """
    if policy.upgrade is None:
        return []
    name, wrong = node.name, []
    if node.version != policy.upgrade.target:
        wrong.append(f"{name} runs {node.version}")
    for number in range(len(policy.upgrade.install)):
        ever = [fact for fact in node.facts if fact.what == f"installed {number}"]
        ends = [fact for fact in ever if fact.at >= began]
        if not ever and not by_others and not any(fact.what == _FOUND for fact in node.facts):
            wrong.append(f"install step {number} never ran on {name}")
        known = policy.upgrade.installed is not None
        times = len(ends) if known else max(Counter(fact.by for fact in ends).values(), default=0)
        if times > 1:
            wrong.append(f"install step {number} ran {times} times on {name}")
        if ends and ends[-1].at > node.began:
            wrong.append(f"{name} began before its install step {number} ended")
    return wrong
