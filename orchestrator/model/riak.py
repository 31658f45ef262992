"""A Riak cluster as its commands and `/stats` report it. Every part is read or `Unknown`, never guessed.

A partition is identified by its number, from 0 to the ring size minus one. Its index is that number times
2^160 divided by the ring size. `riak/rules/predicates.py` defines which readings prove what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import NOT_READ, Reading, Unknown

LOCATION: Final = "location"
"""The node attribute that has a member's location, which Riak has for zones from 3.0 on."""
HASH_SPACE: Final = 2**160
"""Size of the key space (SHA-1), which the partitions of a ring divide evenly."""


class Membership(Enum):
    """A member's state in the ring. It does not show whether the node runs: a stopped one is `valid`."""

    JOINING = "joining"
    VALID = "valid"
    LEAVING = "leaving"
    EXITING = "exiting"
    DOWN = "down"


class Availability(Enum):
    """Whether a member answers, as `cluster status` prints it; `!` is down without being marked so."""

    UP = "up"
    UP_THOUGH_MARKED_DOWN = "up!"
    DOWN_AS_MARKED = "down"
    DOWN = "down!"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMember:
    """A line of `cluster status`."""

    node: NodeName
    membership: Membership
    availability: Availability
    claimant: bool  # whether it makes the changes of the ring
    ring_share: float  # percent of the partitions it owns now
    # percent it will own after the pending changes; None while none is pending
    pending_share: float | None = None
    location: str | None = None  # the failure domain, where the version has one and it is set


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Output of `cluster status`, from one node."""

    ring_ready: bool | None  # None while the claimant does not answer; only the claimant has this value
    members: tuple[ClusterMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingReady:
    """Output of `ringready`: whether the rings of all nodes agree."""

    agreed: bool  # True for `TRUE`
    # nodes whose rings were compared and agree. A node that is up but did not answer is in neither list, so
    # compare this list with the members.
    nodes: tuple[NodeName, ...] = ()
    down: tuple[NodeName, ...] = ()  # nodes that could not be queried
    differing: tuple[NodeName, ...] = ()  # two nodes that list different owners


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCount:
    """A number of partitions of a node: waiting for handoff, or owned but not running."""

    node: NodeName
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePartitions:
    """Output of `cluster partitions`, of one node."""

    node: NodeName
    owned: frozenset[int]  # indices of its partitions, whether their vnodes run or are stopped
    # indices of partitions of others that run on it (`secondary`): each waits for handoff
    others: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveTransfer:
    """A transfer that is moving data."""

    kind: str  # `hinted`, `ownership`, `resize` or `repair`; `unknown` from a node too old to report it
    vnode: str
    index: int  # index of the target partition
    source: NodeName | None  # None from a node too old to report it
    target: NodeName
    percent: int | None = None  # progress; None while it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """Output of `transfers`, from one node."""

    down: tuple[NodeName, ...] = ()  # `are currently down`
    # `waiting to handoff`; a node that has just started reports its own fallbacks here
    waiting: tuple[PartitionCount, ...] = ()
    not_running: tuple[PartitionCount, ...] = ()  # `does not have N primary partitions running`
    active: tuple[ActiveTransfer, ...] = ()
    uncontacted: tuple[NodeName, ...] = ()  # `could not be contacted` for its active transfers

    @property
    def clean(self) -> bool:
        """Whether all five are empty. `No transfers active` also appears while a node is down."""
        return not (self.down or self.waiting or self.not_running or self.active or self.uncontacted)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLimits:
    """Maximum concurrent transfers by node. The `offline` nodes did not answer."""

    limits: Mapping[NodeName, int]
    offline: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSet:
    """Result of a change of the transfer limit. The command's return term is `ok` in any case."""

    limit: int | None  # None where the answer does not repeat it
    node: NodeName | None = None  # None for the whole cluster, or for the node that received the command
    failed: tuple[NodeName, ...] = ()  # nodes on which the limit was not set


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceWait:
    """Output of `wait-for-service`: whether the service is up."""

    service: str
    up: bool
    last: str  # its last line, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStats:
    """`/stats` of one node."""

    node: NodeName
    # running vnodes of the key-value store, including fallbacks. It grows for some 10 s after a start, while
    # `/ping` already answers.
    kv_vnodes: int
    connected: frozenset[NodeName]  # other nodes that this one has a connection with
    members: frozenset[NodeName]
    ring_size: int  # partitions of the ring
    ownership: Mapping[NodeName, int]  # number of partitions that each node owns
    pipe_vnodes: int = 0  # vnodes of `riak_pipe`, which are handed off as well; 0 where it is not reported
    # number of Erlang schedulers; `schedulers_online` of them are active. None where not reported.
    schedulers: int | None = None
    schedulers_online: int | None = None
    release: str | None = None  # Erlang/OTP release, such as `25`

    @property
    def owned(self) -> int:
        """Number of partitions that it owns, by its own ring."""
        return self.ownership.get(self.node, 0)

    @property
    def beyond_its_own(self) -> int:
        """Number of vnodes of partitions that others own. Each of them is to be handed off.

        This number was within one vnode of `transfers` while a node came back (five nodes of 3.2.1, ring size
        64).
        """
        return max(0, max(self.kv_vnodes, self.pipe_vnodes) - self.owned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The owner of each partition. Preference lists follow from it."""

    owners: tuple[NodeName, ...]  # by number of the partition

    @property
    def size(self) -> int:
        """Number of partitions."""
        return len(self.owners)

    @property
    def ownership(self) -> Mapping[NodeName, int]:
        """Number of partitions that each node owns."""
        return Counter(self.owners)

    def preference_list(self, first: int, n_val: int) -> tuple[NodeName, ...]:
        """Owners of the `n_val` consecutive partitions from this one, wrapping at the end of the ring.

        A list cannot be longer than the ring. An owner of two of the partitions is listed twice.
        """
        return tuple(self.owners[(first + step) % self.size] for step in range(min(n_val, self.size)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignsOfLife:
    """Signs that a node serves again. None of them proves it alone."""

    ping: Reading[bool] = NOT_READ  # its HTTP port answers. It also answers while no vnode runs.
    stats: Reading[NodeStats] = NOT_READ  # its own `/stats`
    # whether a peer sees its key-value store; read only for nodes that this run took down
    service: Reading[ServiceWait] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakView:
    """One reading of a Riak cluster. Parts that the decision did not request are `NOT_READ`.

    `Look.CLUSTER` reads cluster. `Look.HEALTH` reads ring_ready and signs. `Look.ACTIVITY`, as before every
    stop, also reads transfers, waiting, ring and n_vals. `Look.RECOVERIES` without
    `Look.ACTIVITY`, as during the wait for handoff, reads transfers and waiting, or `beyond` alone.
    `Look.PACE` adds unstarted.
    """

    cluster: Reading[ClusterStatus] = NOT_READ
    ring_ready: Reading[RingReady] = NOT_READ
    signs: Mapping[NodeName, SignsOfLife] = field(default_factory=dict)  # by member that is up
    # by the node that answered; two nodes that agree are better than one
    transfers: Reading[Mapping[NodeName, Reading[Transfers]]] = NOT_READ
    # numbers of the partitions of others that a node holds, by node, for each node of which `transfers` says
    # that some wait; before a stop for every node that has any
    waiting: Reading[Mapping[NodeName, frozenset[int]]] = NOT_READ
    ring: Reading[Ring] = NOT_READ
    # every `n_val` in use: the default's and those of bucket types and buckets
    n_vals: Reading[frozenset[int]] = NOT_READ
    # by member that is up, why its process could not be identified
    unidentified: Mapping[NodeName, str] = field(default_factory=dict)
    # vnodes of partitions that others own, by node, where the `/stats` of all members count more than waited
    # before the stop. They prove that handoff is not done. Only `transfers` proves that handoff is done.
    beyond: Mapping[NodeName, int] = field(default_factory=dict)
    # by member that is up, the number of vnodes it has not started since its own start. While there are any,
    # a clean handoff may be so only for a moment.
    unstarted: Mapping[NodeName, Reading[int]] = field(default_factory=dict)

    @property
    def ring_size(self) -> int | None:
        """Number of partitions, by the ring or by the `/stats` of a member; None if neither was read."""
        if not isinstance(self.ring, Unknown):
            return self.ring.size
        stats = (sign.stats for sign in self.signs.values())
        return next((each.ring_size for each in stats if not isinstance(each, Unknown)), None)


# Settings in the memory of a node ------------------------------------

_LIMIT: Final = "transfer_limit."
_TIMER: Final = "vnode_management_timer."


def limit_key(node: NodeName) -> str:
    """The key of a node's transfer limit among the settings, at the transient level."""
    return f"{_LIMIT}{node}"


def timer_key(node: NodeName) -> str:
    """That of the time between two steps of its vnode manager, in milliseconds."""
    return f"{_TIMER}{node}"


def is_limit(key: str) -> bool:
    """Whether a key is that of a transfer limit."""
    return key.startswith(_LIMIT)


def is_timer(key: str) -> bool:
    """Whether a key is that of a vnode manager's timer."""
    return key.startswith(_TIMER)


def holder(key: str) -> NodeName | None:
    """The node that has this setting in its memory, and loses it with that process; None for other keys."""
    return NodeName(key.partition(".")[2]) if is_limit(key) or is_timer(key) else None
