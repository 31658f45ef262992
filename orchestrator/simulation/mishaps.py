"""Mishaps: verbs that are lost, nodes that die, people who interfere, the program's own crash.

A mishap happens at a set time, or some time after the program has sent a verb for the nth time. So a scenario
can name the step that it disturbs, and stays readable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from orchestrator.model.action import Action, action_name, action_target
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level, SettingValue
from orchestrator.model.phase import Request
from orchestrator.model.reading import Seconds
from orchestrator.simulation import allocation, machines

if TYPE_CHECKING:
    from orchestrator.simulation.fate import Fate


class What(ABC):
    """Something that befalls a world or the program; a subclass has the data, and does it."""

    __slots__ = ()

    @abstractmethod
    def befall(self, fate: Fate) -> None:
        """Do it now."""


class OfMachine(What):
    """What befalls a node or its host."""

    __slots__ = ()


class OfProgram(What):
    """What comes between the program and its world."""

    __slots__ = ()


class Crash(BaseException):
    """The program is killed at this point. Not an error, so that no handler catches it."""


class How(Enum):
    """The fate of a verb that is not simply done."""

    REFUSED = "refused"
    LOST = "lost, and not done"
    UNACKNOWLEDGED = "done, and not acknowledged"
    LATE = "in doubt, and done later"
    PARTLY = "in doubt, and done in part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """A verb that goes wrong."""

    verb: str  # its public name, such as `set_allocation` or `stop`; `*` is any
    how: How
    target: str | None = None  # the verb's target; None is any
    first: int = 1  # number of the first matching verb that is affected, one-based
    times: int = 1  # number of affected verbs
    late: Seconds = 20.0  # seconds after which a LATE one is done

    def matches(self, action: Action) -> bool:
        """Whether this trip applies to the action."""
        return self.verb in ("*", action_name(action)) and self.target in (None, action_target(action))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDies(OfMachine):
    """A process ends by itself, and a person may start it again."""

    node: NodeName
    back_after: Seconds | None = None

    def befall(self, fate: Fate) -> None:
        world, node = fate.world, fate.world.nodes[self.node]
        machines.die(world, node)
        if self.back_after is not None:
            world.agenda.after(self.back_after, lambda: machines.start(world, node))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCutOff(OfMachine):
    """A host does not answer for a while."""

    node: NodeName
    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        until = fate.now + self.seconds
        for each in machines.of_one(fate.world, fate.world.nodes[self.node]):
            each.unreachable_until = max(each.unreachable_until, until)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMade(What):
    """A person creates an index whose primary is allocated to that node."""

    name: str
    on: NodeName
    replicas: int = 1

    def befall(self, fate: Fate) -> None:
        fate.world.create_index(self.name, on=self.on, replicas=self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBegun(What):
    """A snapshot begins, and may end after a while."""

    name: str = "repo/nightly"
    seconds: Seconds | None = None

    def befall(self, fate: Fate) -> None:
        world = fate.world
        world.begin_snapshot(self.name)
        if self.seconds is not None:
            world.agenda.after(self.seconds, lambda: world.end_snapshot(self.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAborted(What):
    """A snapshot that was aborted does not end on a node: a restart of the node ends it, or time, if ever."""

    node: NodeName
    name: str = "repo/nightly"
    seconds: Seconds | None = None

    def befall(self, fate: Fate) -> None:
        world = fate.world
        world.aborted[self.name] = self.node
        world.changed(f"snapshot {self.name} does not end")
        if self.seconds is not None:
            world.agenda.after(self.seconds, lambda: world.aborted.pop(self.name, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingMeddled(What):
    """Another operator changes a setting."""

    key: str
    value: SettingValue | None
    level: Level = Level.PERSISTENT

    def befall(self, fate: Fate) -> None:
        fate.world.meddle(self.level, self.key, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesRuled(SettingMeddled):
    """Another operator changes a setting by which copies are allocated, and those move that must."""

    def befall(self, fate: Fate) -> None:
        SettingMeddled.befall(self, fate)
        allocation.vacate(fate.world)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRuled(What):
    """Another operator sets the rule by which copies of an index are allocated."""

    index: str
    key: str  # what follows `index.routing.allocation.`; an empty value removes the rule
    value: str

    def befall(self, fate: Fate) -> None:
        rules = {self.key: self.value} if self.value else {}
        for index in fate.world.indices.values():
            if index.name == self.index:
                allocation.rule(fate.world, index, rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPinned(What):
    """A shrink by hand begins, and what it set stays: each copy of an index has to be on this node.

    A node of that name may be gone.
    """

    index: str
    node: NodeName

    def befall(self, fate: Fate) -> None:
        IndexRuled(index=self.index, key="require._name", value=self.node).befall(fate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(OfProgram):
    """The cluster does not answer reads for a while."""

    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        fate.unreadable_until = fate.now + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStalls(OfProgram):
    """The program's machine is suspended for a while at its next reading. The world continues."""

    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        fate.standing_still = self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRemoved(OfProgram):
    """A person removes our lease by hand, and works on the cluster without one."""

    holder: str = "eve@elsewhere"

    def befall(self, fate: Fate) -> None:
        fate.lose_the_lease(self.holder)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUnrefreshed(OfProgram):
    """No write of our lease arrives for a while; the record stays ours."""

    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        fate.unrefreshed = (fate.now, fate.now + self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonAsked(OfProgram):
    """A person asks the run to pause or to stop."""

    request: Request

    def befall(self, fate: Fate) -> None:
        fate.request = max(fate.request, self.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFull(OfProgram):
    """From now on the journal cannot be written; `seconds` ends it."""

    seconds: Seconds

    def befall(self, fate: Fate) -> None:
        fate.disk_full_until, fate.journal_says = fate.now + self.seconds, "no space left on device"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopHangs(OfMachine):
    """A node's stop never ends, until a person repairs it."""

    node: NodeName
    repaired_after: Seconds | None = None

    def befall(self, fate: Fate) -> None:
        world, node = fate.world, fate.world.nodes[self.node]
        node.stop_hangs = True
        if self.repaired_after is not None:
            world.agenda.after(self.repaired_after, lambda: machines.unhang(world, node))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsFail(OfMachine):
    """This many of a node's next starts fail."""

    node: NodeName
    times: int = 1

    def befall(self, fate: Fate) -> None:
        fate.world.nodes[self.node].starts_that_fail = self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class RisesByItself(OfMachine):
    """The node's service is started again by something else, this long after its next stop."""

    node: NodeName
    after: Seconds = 0.5

    def befall(self, fate: Fate) -> None:
        fate.world.nodes[self.node].rises_after = self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationsFail(What):
    """This many of an index's next replica allocations fail."""

    index: str
    times: int

    def befall(self, fate: Fate) -> None:
        for index in fate.world.indices.values():
            for shard in index.shards if index.name == self.index else ():
                shard.failing = self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """An event that happens once."""

    what: What  # what happens
    after: Seconds = 0.0  # seconds after the beginning, or after the verb
    verb: str | None = None  # the verb that it waits for; None = the beginning
    target: str | None = None  # that verb's target; None is any
    nth: int = 1  # number of the matching verb, one-based


class Seams:
    """Counts every point at which the program can be killed, and kills it at one of them.

    Attributes:
        crash_at: one-based; None = never.
        passed: names of the points passed.
    """

    def __init__(self, crash_at: int | None = None) -> None:
        self.crash_at = crash_at
        self.passed: list[str] = []

    def point(self, what: str) -> None:
        """Pass a point, or be killed at it.

        Raises:
            Crash: this is the point.
        """
        self.passed.append(what)
        if len(self.passed) == self.crash_at:
            raise Crash(what)
