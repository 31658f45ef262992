"""What goes wrong, as data: verbs that are lost, nodes that die, people who interfere, our own crash.

A mishap is due at a moment, or some time after the program has sent a verb for the nth time, so that a
scenario can name the seam it attacks and still be read.
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
    """The program is killed at this very point; no error, so that no handler catches it."""


class How(Enum):
    """What becomes of a verb that is not simply done."""

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
        target: what it acts on; None is anything.
        first: from the so manieth matching one on, one-based.
        times: so many of them.
        late: seconds after which a LATE one is done.
    """

    verb: str
    how: How
    target: str | None = None
    first: int = 1
    times: int = 1
    late: Seconds = 20.0

    def matches(self, action: Action) -> bool:
        """Whether it is about this verb."""
        return self.verb in ("*", action_name(action)) and self.target in (None, action_target(action))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDies:
    """A process ends by itself, and perhaps somebody starts it again."""

    node: NodeName
    back_after: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCutOff:
    """A host does not answer for a while."""

    node: NodeName
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHangs:
    """For a while SSH to a host hangs: what it is asked it does (or not), and never says so."""

    node: NodeName
    seconds: Seconds
    does: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedByHand:
    """Somebody else restarts a node, and has it back as soon as it starts."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMade:
    """Somebody creates an index whose primary lands on that node."""

    name: str
    on: NodeName
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledOver:
    """An index is rolled over: a new one is written from now on, wherever it lands, and the old no more."""

    index: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBegun:
    """A snapshot begins, and ends after a while, if at all."""

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
    """The cluster answers no read for a while."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleReadings:
    """Reads are answered with what was true at this moment, and say that they are not settled."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStandsStill:
    """The program's machine is suspended for a while, at its next reading; the world goes on."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSet:
    """The system clock of the program's machine is set by so much: the next process begins with it.

    A process reads the wall clock once and counts the time passed since, so none sees a jump of its own.
    """

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTaken:
    """Somebody removes our lease by hand, and works on the cluster without one."""

    holder: str = "eve@elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUnrefreshed:
    """No write of our lease arrives for a while; the record stays ours."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Somebody asks the run to pause or to stop."""

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
    """A node's stop never ends, until somebody repairs it."""

    node: NodeName
    repaired_after: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsFail:
    """So many of a node's next starts fail."""

    node: NodeName
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RisesByItself:
    """Something starts the node's service again, so long after its next stop."""

    node: NodeName
    after: Seconds = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationsFail:
    """So many of an index's next replica allocations fail."""

    index: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterBegins:
    """Documents come into an index that nobody wrote; for so long, None = for good."""

    index: str
    seconds: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedByOthers:
    """Another operator has an index force-merged."""

    index: str
    max_segments: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDeleted:
    """Somebody deletes an index, and perhaps makes another one of that name."""

    index: str
    made_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexClosed:
    """Somebody closes an index."""

    index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFills:
    """A disk fills for a while, by what is none of the cluster's."""

    node: NodeName
    share: float = 0.89
    seconds: Seconds = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsUnreadable:
    """Segments, writes and tasks of indices cannot be read for a while; all else can."""

    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class GateShut:
    """A gate of the playbook closes, or cannot be read any more; after a while, if at all, it is open again.

    Attributes:
        name: the gate's; one that the playbook does not have is passed over.
    """

    name: str
    seconds: Seconds | None = None
    readable: bool = True


OfMachine: TypeAlias = (
    NodeDies | HostCutOff | HostHangs | RestartedByHand | StopHangs | StartsFail | RisesByItself
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
    """Something that happens once.

    Attributes:
        what: what happens.
        after: seconds after the beginning, or after the verb.
        verb: the verb that it waits for; None = the beginning.
        target: what that verb acts on; None is anything.
        nth: the so manieth matching verb, one-based.
    """

    what: What
    after: Seconds = 0.0
    verb: str | None = None
    target: str | None = None
    nth: int = 1


class Seams:
    """Every point at which the program could be killed, counted; at one of them it is.

    Attributes:
        crash_at: one-based; None = never.
        passed: what each point was.
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
