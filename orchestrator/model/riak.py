"""A Riak cluster as its commands and `/stats` tell it. Every part is read or `Unknown`; nothing is guessed.

A partition is known by its number, 0 to the ring's size less one; its index is that number times 2^160 over
the size. Which readings prove what is the business of `engine/kinds/riak/predicates.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import NOT_READ, Reading, Unknown

HASH_SPACE: Final = 2**160
"""Size of the space of keys (SHA-1) that the partitions of a ring divide evenly."""


class Membership(Enum):
    """What the ring says of a member. It says nothing of whether the node runs: a stopped one is `valid`."""

    JOINING = "joining"
    VALID = "valid"
    LEAVING = "leaving"
    EXITING = "exiting"
    DOWN = "down"


class Availability(Enum):
    """Whether a member answers, as `cluster status` prints it; `!` is what nobody announced."""

    UP = "up"
    UP_THOUGH_MARKED_DOWN = "up!"
    DOWN_AS_MARKED = "down"
    DOWN = "down!"


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakMember:
    """A line of `member-status`.

    Attributes:
        ring_share: percent of the partitions it owns now.
        pending_share: percent it will own when the pending changes are through; None while none is pending.
        location: the failure domain, where the version has one and it is set.
    """

    node: NodeName
    membership: Membership
    ring_share: float
    pending_share: float | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMember:
    """A line of `cluster status`; the shares are those of `RiakMember`."""

    node: NodeName
    membership: Membership
    availability: Availability
    claimant: bool
    ring_share: float
    pending_share: float | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """`cluster status`, asked of one node.

    Attributes:
        ring_ready: None while the claimant, who alone knows, does not answer.
    """

    ring_ready: bool | None
    members: tuple[ClusterMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingReady:
    """`ringready`: do the rings of all nodes agree?

    Attributes:
        agreed: True for `TRUE`.
        nodes: those whose rings were compared and agree. A node that is up but did not answer this question
            is in neither list, so this has to be held against the members.
        down: nodes that could not be asked.
        differing: two nodes that list different owners.
    """

    agreed: bool
    nodes: tuple[NodeName, ...] = ()
    down: tuple[NodeName, ...] = ()
    differing: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPartition:
    """A partition that is to change its owner.

    Attributes:
        index: its index in the hash space.
        waiting_on: vnode modules whose data is still to be handed over.
        complete: those that are handed over.
    """

    index: int
    waiting_on: tuple[str, ...] = ()
    complete: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipChange:
    """Partitions on their way from one owner to the next."""

    owner: str
    next_owner: str
    partitions: tuple[PendingPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingStatus:
    """`ring-status`, asked of one node.

    Attributes:
        ring_ready: None while the claimant does not answer.
        unreachable: members that do not answer and were not marked as down.
    """

    claimant: NodeName
    claimant_up: bool
    ring_ready: bool | None
    pending: tuple[OwnershipChange, ...] = ()
    unreachable: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCount:
    """So many partitions of a node: waiting to be handed off, or not running though it owns them."""

    node: NodeName
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveTransfer:
    """A transfer that moves data now.

    Attributes:
        kind: `hinted`, `ownership`, `resize` or `repair`; `unknown` from a node too old to tell.
        index: of the partition it goes to.
        source: None from a node too old to tell.
        percent: as far as it has come; None while nobody knows.
    """

    kind: str
    vnode: str
    index: int
    source: NodeName | None
    target: NodeName
    percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """`transfers`, asked of one node.

    Attributes:
        down: `are currently down`.
        waiting: `waiting to handoff`; a node that has just started reports its own fallbacks here.
        not_running: `does not have N primary partitions running`.
        uncontacted: `could not be contacted` about what it transfers now.
    """

    down: tuple[NodeName, ...] = ()
    waiting: tuple[PartitionCount, ...] = ()
    not_running: tuple[PartitionCount, ...] = ()
    active: tuple[ActiveTransfer, ...] = ()
    uncontacted: tuple[NodeName, ...] = ()

    @property
    def clean(self) -> bool:
        """None of the five. `No transfers active` alone is not it: that stands there while a node is down."""
        return not (self.down or self.waiting or self.not_running or self.active or self.uncontacted)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLimits:
    """How many transfers a node may have at once, by node; `offline` ones did not say."""

    limits: Mapping[NodeName, int]
    offline: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSet:
    """What became of a change of the transfer limit; the return term says `ok` in any case.

    Attributes:
        limit: None where the answer does not repeat it.
        node: None for the whole cluster, or for the node that was asked.
        failed: nodes that do not have it.
    """

    limit: int | None
    node: NodeName | None = None
    failed: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceWait:
    """`wait-for-service`: is the service up?

    Attributes:
        last: what it said last; for people.
    """

    service: str
    up: bool
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStats:
    """`/stats` of one node.

    Attributes:
        kv_vnodes: vnodes of the key-value store that run, fallbacks included. It climbs for some 10 s after a
            start, while `/ping` answers already.
        connected: other nodes that this one has a connection with.
        ring_size: partitions of the ring.
        ownership: how many of them each node owns.
        pipe_vnodes: those of `riak_pipe`, which are handed off as well; 0 where it does not say.
        schedulers: Erlang schedulers that exist; `schedulers_online` of them work. None where not told.
        release: Erlang/OTP's, such as `25`.
    """

    node: NodeName
    kv_vnodes: int
    connected: frozenset[NodeName]
    members: frozenset[NodeName]
    ring_size: int
    ownership: Mapping[NodeName, int]
    pipe_vnodes: int = 0
    schedulers: int | None = None
    schedulers_online: int | None = None
    release: str | None = None

    @property
    def owned(self) -> int:
        """Partitions that it owns, by its own ring."""
        return self.ownership.get(self.node, 0)

    @property
    def beyond_its_own(self) -> int:
        """Vnodes of partitions that others own: each is to be handed off.

        This followed `transfers` within one vnode while a node came back (five nodes of 3.2.1, ring size 64).
        """
        return max(0, max(self.kv_vnodes, self.pipe_vnodes) - self.owned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Who owns which partition: everything that preference lists follow from.

    Attributes:
        owners: by number of the partition.
    """

    owners: tuple[NodeName, ...]

    @property
    def size(self) -> int:
        """Its partitions."""
        return len(self.owners)

    @property
    def ownership(self) -> Mapping[NodeName, int]:
        """How many partitions each node owns."""
        return Counter(self.owners)

    def preference_list(self, first: int, n_val: int) -> tuple[NodeName, ...]:
        """Owners of the `n_val` consecutive partitions from this one, over the end of the ring too.

        A list cannot be longer than the ring; an owner that has two of the partitions stands in it twice.
        """
        return tuple(self.owners[(first + step) % self.size] for step in range(min(n_val, self.size)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignsOfLife:
    """What tells that a node serves again; none of these proves it alone.

    Attributes:
        ping: its HTTP port answers. It does so while no vnode runs.
        stats: what it counts of itself.
        service: whether a peer sees its key-value store; asked only of nodes that this run took down.
    """

    ping: Reading[bool] = NOT_READ
    stats: Reading[NodeStats] = NOT_READ
    service: Reading[ServiceWait] = NOT_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakView:
    """One reading of a Riak cluster. What a decision did not ask for is `NOT_READ`.

    Read with `Look.CLUSTER`: cluster. With `Look.HEALTH`: ring_ready and signs. With `Look.ACTIVITY`, as
    before every stop: also members, ring_status, transfers, ring and n_vals. With `Look.RECOVERIES` and
    without `Look.ACTIVITY`, as while handoff is waited for: transfers alone, or `beyond` alone. With
    `Look.PACE` beside it: unstarted.

    Attributes:
        beyond: vnodes of partitions of others, by node, where the `/stats` of all members count some. They
            prove that handoff is not done. That it is done, only `transfers` proves.
        signs: by member, of those that are up.
        transfers: by the node that was asked; two nodes that agree are better than one.
        n_vals: every `n_val` in use: the default's and those of bucket types and buckets.
        untold: why the process of a member that is up cannot be told, by member.
        unstarted: of each member that is up: how many vnodes it has never started since it runs. While there
            are any, handoff that is clean may be so for a moment.
    """

    members: Reading[tuple[RiakMember, ...]] = NOT_READ
    cluster: Reading[ClusterStatus] = NOT_READ
    ring_ready: Reading[RingReady] = NOT_READ
    ring_status: Reading[RingStatus] = NOT_READ
    signs: Mapping[NodeName, SignsOfLife] = field(default_factory=dict)
    transfers: Reading[Mapping[NodeName, Reading[Transfers]]] = NOT_READ
    ring: Reading[Ring] = NOT_READ
    n_vals: Reading[frozenset[int]] = NOT_READ
    untold: Mapping[NodeName, str] = field(default_factory=dict)
    beyond: Mapping[NodeName, int] = field(default_factory=dict)
    unstarted: Mapping[NodeName, Reading[int]] = field(default_factory=dict)

    @property
    def ring_size(self) -> int | None:
        """The number of partitions, by the ring or by the `/stats` of a member; None if neither was read."""
        if not isinstance(self.ring, Unknown):
            return self.ring.size
        stats = (sign.stats for sign in self.signs.values())
        return next((each.ring_size for each in stats if not isinstance(each, Unknown)), None)
