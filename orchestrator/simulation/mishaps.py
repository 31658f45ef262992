"""Mishaps as data: verbs that are lost, nodes that die, people who interfere, the program's own crash.

A mishap happens at a set time, or some time after the program has sent a verb for the nth time. So a scenario
can name the step that it disturbs, and stays readable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from orchestrator.model.action import Action, action_name, action_target
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import Level, SettingValue
from orchestrator.model.phase import Request
from orchestrator.model.reading import Seconds
from orchestrator.simulation.index_mishaps import OfOthers
from orchestrator.simulation.node_mishaps import OfNodes
from orchestrator.simulation.program_mishaps import OfItsSurroundings
from orchestrator.simulation.riak_mishaps import OfRiak


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
    """A verb that goes wrong.

    Attributes:
        verb: its public name, such as `set_allocation` or `stop`; `*` is any.
        target: the verb's target; None is any.
        first: number of the first matching verb that is affected, one-based.
        times: number of affected verbs.
        late: seconds after which a LATE one is done.
    """

    verb: str
    how: How
    target: str | None = None
    first: int = 1
    times: int = 1
    late: Seconds = 20.0

    def matches(self, action: Action) -> bool:
        """Whether this trip applies to the action."""
        return self.verb in ("*", action_name(action)) and self.target in (None, action_target(action))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDies:
    """A process ends by itself, and a person may start it again."""

    node: NodeName
    back_after: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCutOff:
    """A host does not answer for a while."""

    node: NodeName
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHangs:
    """For a while SSH to a host hangs. The host may carry out a command, but does not answer."""

    node: NodeName
    seconds: Seconds
    does: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedByHand:
    """Another person restarts a node. It starts again as soon as it has stopped."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMade:
    """A person creates an index whose primary is allocated to that node."""

    name: str
    on: NodeName
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledOver:
    """An index is rolled over: writes go to a new index, on any node, and no longer to the old one."""

    index: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBegun:
    """A snapshot begins, and may end after a while."""

    name: str = "repo/nightly"
    seconds: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterExcluded:
    """Another operator excludes a node from voting for a while."""

    node: NodeName
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingMeddled:
    """Another operator changes a setting."""

    key: str
    value: SettingValue | None
    level: Level = Level.PERSISTENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """The cluster does not answer reads for a while."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleReadings:
    """Reads return the state of this moment, and report that they are not settled."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStandsStill:
    """The program's machine is suspended for a while at its next reading. The world continues."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSet:
    """The system clock of the program's machine is set by this much; it affects the next process.

    A process reads the wall clock once and then counts elapsed time, so it never sees a jump of its own.
    """

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTaken:
    """A person removes our lease by hand, and works on the cluster without one."""

    holder: str = "eve@elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUnrefreshed:
    """No write of our lease arrives for a while; the record stays ours."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A person asks the run to pause or to stop."""

    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsRefused:
    """From now on every settings update is refused; an empty reason ends it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFull:
    """From now on the journal cannot be written; `seconds` ends it."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StopHangs:
    """A node's stop never ends, until a person repairs it."""

    node: NodeName
    repaired_after: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsFail:
    """This many of a node's next starts fail."""

    node: NodeName
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RisesByItself:
    """The node's service is started again by something else, this long after its next stop."""

    node: NodeName
    after: Seconds = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementRuns:
    """Configuration management is at work on the node's machine for so long."""

    node: NodeName
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationsFail:
    """This many of an index's next replica allocations fail."""

    index: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterBegins:
    """An index that was not being written gets documents, for this long; None = permanently."""

    index: str
    seconds: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedByOthers:
    """Another operator force-merges an index."""

    index: str
    max_segments: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDeleted:
    """A person deletes an index, and may create another one of that name."""

    index: str
    made_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexClosed:
    """A person closes an index."""

    index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFills:
    """A disk fills for a while with data that is not the cluster's."""

    node: NodeName
    share: float = 0.89
    seconds: Seconds = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsUnreadable:
    """Segments, writes and tasks of indices cannot be read for a while. Everything else can."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class GateShut:
    """A gate of the playbook closes or becomes unreadable. It may open again after a while.

    Attributes:
        name: the gate's name; ignored if the playbook does not have it.
    """

    name: str
    seconds: Seconds | None = None
    readable: bool = True


OfMachine: TypeAlias = (
    NodeDies
    | HostCutOff
    | HostHangs
    | RestartedByHand
    | StopHangs
    | StartsFail
    | RisesByItself
    | ManagementRuns
)
OfCluster: TypeAlias = (
    IndexMade
    | RolledOver
    | SnapshotBegun
    | VoterExcluded
    | SettingMeddled
    | SettingsRefused
    | AllocationsFail
    | GateShut
)
OfIndices: TypeAlias = WriterBegins | MergedByOthers | IndexDeleted | IndexClosed | DiskFills
OfProgram: TypeAlias = (
    Unreadable
    | SegmentsUnreadable
    | StaleReadings
    | ProgramStandsStill
    | ClockSet
    | LeaseTaken
    | LeaseUnrefreshed
    | Asked
    | DiskFull
    | OfItsSurroundings
)
What: TypeAlias = OfMachine | OfNodes | OfCluster | OfIndices | OfOthers | OfProgram | OfRiak


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """An event that happens once.

    Attributes:
        what: what happens.
        after: seconds after the beginning, or after the verb.
        verb: the verb that it waits for; None = the beginning.
        target: that verb's target; None is any.
        nth: number of the matching verb, one-based.
    """

    what: What
    after: Seconds = 0.0
    verb: str | None = None
    target: str | None = None
    nth: int = 1


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
