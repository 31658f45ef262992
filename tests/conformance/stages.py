"""One cluster on two stages, a real one and a simulated one, on which the same scenes are played."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from orchestrator.elasticsearch.rules.settings import AWARENESS, MINIMUM_MASTERS
from orchestrator.model.action import ActionResult, ClusterAction, Done, Flush
from orchestrator.model.allocation import FLAGS
from orchestrator.model.cluster import CopyState, Index, NodeName, Role, ShardCopy
from orchestrator.model.merging import BulkIndex, BulkView
from orchestrator.model.observation import ClusterView, HealthView, Level, Look, SettingsView
from orchestrator.model.reading import Instant, Seconds
from orchestrator.ports import ClusterPort, ClusterReadings
from orchestrator.simulation import membership, segments
from orchestrator.simulation.allocation import reroute
from orchestrator.simulation.cluster import SimulatedCluster
from orchestrator.simulation.parts import SimIndex
from orchestrator.simulation.ways import ways_of
from orchestrator.simulation.world import World
from tests.conformance.generations import Generation, generation
from tests.lab.errors import LabError
from tests.lab.nodes import LabCluster
from tests.simulation import index_mishaps

READ: Final = (Look.CLUSTER, Look.SETTINGS, Look.HEALTH)
_STILL: Final[Seconds] = 3.0
"""A cluster in which nothing moved for so long has come to rest; elections and joins take less."""
_STILL_WITHOUT_MASTER: Final[Seconds] = 12.0
"""Before 7 the nodes ask each other for three seconds, and may do so several times, before they elect one."""
_STILL_BEFORE_REROUTE: Final[Seconds] = 12.0
"""Where a master allocates copies every ten seconds only."""
_RESTLESS: Final[Seconds] = 50.0
"""Well below the minute after which a copy that is away is made anew elsewhere."""

_TASK_RESULTS: Final = ".tasks"
_FEW: Final = 5
_MERGE_POLL: Final[Seconds] = 0.5
_NODES_INCLUDED: Final = "index.routing.allocation.include._name"
_UNMERGED: Final = {
    "index.merge.policy.segments_per_tier": 50,
    "index.merge.policy.max_merge_at_once": 50,
}
"""With fewer segments than both, no copy merges by itself. With only the first, ten small segments may become
one, on one copy and not on the other (seen on 1.7.6)."""


class RestlessError(AssertionError):
    """Something in the cluster goes on and on; what the servers say of it is in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An index of one shard, as a scene wants it."""

    name: str = "posts"
    replicas: int = 1
    delay: int = 60  # `index.unassigned.node_left.delayed_timeout` in seconds
    auto_expand: str | None = None
    enable: str | None = None  # its own `index.routing.allocation.enable`
    closed: bool = False
    written: bool = False  # documents come while the scene goes on
    loaded: bool = False  # a bulk load has left it with many small segments, and without refreshes
    at_master: bool = False  # the elected master has its primary


Shot = Mapping[str, object]
"""What a reading says, without what differs between any two clusters: ids, moments, bytes."""


Shots = list[tuple[str, Shot]]
"""The readings of a scene, by title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A scene on real servers."""

    # what is the same in all scenes of a version: how the server works, and the nodes
    cluster: Mapping[str, Any]
    begin: Mapping[str, Any]  # the master, and the nodes of the copies
    shots: Shots  # the readings


class Stage(Protocol):
    """A cluster to which things are done, and which is read when it has come to rest."""

    generation: Generation

    @property
    def port(self) -> ClusterPort:
        """What reads it; what changes it goes through the stage."""
        ...

    def perform(self, action: ClusterAction) -> ActionResult:
        """Have the cluster do what a run does."""
        ...

    def stop(self, *nodes: NodeName) -> None:
        """Their processes end."""
        ...

    def start(self, *nodes: NodeName) -> None:
        """Their processes begin."""
        ...

    def create(self, index: Wanted) -> None:
        """Allocation says where it goes."""
        ...

    def write(self, index: str) -> None:
        """A document is acknowledged by the copies that are there."""
        ...

    def close(self, index: str) -> None:
        """Somebody closes an index."""
        ...

    def reopen(self, index: str) -> None:
        """Somebody opens it again."""
        ...

    def wait(self, seconds: Seconds) -> None:
        """Let the cluster go on for so long."""
        ...

    def read(self) -> ClusterReadings:
        """What the port reads once nothing moves any more."""
        ...


def perform(stage: Stage, action: ClusterAction) -> None:
    """Tell the cluster."""
    said = stage.perform(action)
    assert isinstance(said, Done), said


def view(stage: Stage) -> ClusterView:
    """The cluster at rest."""
    read = stage.read().cluster
    assert isinstance(read, ClusterView), read
    return read


def loaded(stage: Stage, index: str) -> BulkIndex:
    """What is read of an index after a bulk load, once no merge of it runs any more."""
    uuid = next(each.uuid for each in view(stage).indices if each.name == index)
    for _ in range(round(_RESTLESS / _MERGE_POLL)):
        read = stage.port.bulk([uuid])
        if isinstance(read, BulkView) and not read.indices[uuid].under_way:
            return read.indices[uuid]
        stage.wait(_MERGE_POLL)
    raise AssertionError(f"{index} is merged on and on: {stage.port.bulk([uuid])}")


Called = Mapping[NodeName | None, NodeName]
"""The names of nodes in shots, by their own names."""


def called_by_copies(read: ClusterReadings, indices: Sequence[Wanted]) -> Called:
    """Names by the copies that the nodes have: `es1` has the primary, the next ones have the replicas.

    The balancer chooses among equal nodes, so two recordings of a scene may begin on different ones. With
    these names their shots are equal.
    """
    cluster = read.cluster
    assert isinstance(cluster, ClusterView), cluster
    names = sorted(cluster.members)
    first = [node for index in indices for node in _nodes_of(cluster, index) if node is not None]
    return dict(zip(dict.fromkeys([*first, *names]), names, strict=True))


def _nodes_of(cluster: ClusterView, index: Wanted) -> list[NodeName | None]:
    """The nodes of its copies: the primary's, the others by name, and None for each copy without a node."""
    copies = [copy for copy in cluster.copies if copy.shard.index == index.name]
    copies.sort(key=lambda copy: (not copy.primary, copy.node is None, copy.node or ""))
    return [copy.node for copy in copies]


def renamed(read: ClusterReadings, called: Called) -> ClusterReadings:
    """The same reading, of nodes with these names."""
    cluster = read.cluster
    if not isinstance(cluster, ClusterView):
        return read
    return replace(
        read,
        cluster=replace(
            cluster,
            master=called.get(cluster.master),
            nodes=tuple(replace(node, name=called[node.name]) for node in cluster.nodes),
            copies=tuple(copy._replace(node=called.get(copy.node)) for copy in cluster.copies),
            voting_exclusions=tuple(called.get(NodeName(each), each) for each in cluster.voting_exclusions),
        ),
    )


def cluster_of(read: ClusterReadings) -> Mapping[str, Any]:
    """What a simulated cluster has of a real one, in every scene."""
    view, settings = read.cluster, read.settings
    assert isinstance(view, ClusterView), view
    assert isinstance(settings, SettingsView), settings
    # What an absent setting is worth, where it cannot be made absent again, is what is set in its place. The
    # addresses that 0.90 lists differ from boot to boot.
    files = {
        key: value
        for key, value in settings.files.items()
        if key == MINIMUM_MASTERS or not (settings.resets or key.startswith("discovery."))
    }
    return {
        "allocation_flags": settings.allocation_flags,
        "distribution": view.distribution,
        "files": files,
        "nodes": {
            node.name: {"roles": sorted(role.value for role in node.roles), "zone": node.zone("zone")}
            for node in view.nodes
        },
        "resets": settings.resets,
        "version": view.version,
        "voting_by_count": view.voting_by_count,
    }


def begin_of(read: ClusterReadings, indices: Sequence[Wanted]) -> Mapping[str, Any]:
    """The master, and the nodes of each index's copies."""
    view = read.cluster
    assert isinstance(view, ClusterView), view
    return {"copies": {index.name: _nodes_of(view, index) for index in indices}, "master": view.master}


def shot_of_loaded(stage: Stage, indices: Sequence[Wanted], called: Called) -> Shot:
    """What two stages must agree on of indices after a bulk load; how many segments it leaves is chance."""
    told: dict[str, object] = {}
    for wanted in indices:
        if wanted.loaded:
            index = loaded(stage, wanted.name)
            copies = sorted((copy.primary, called[copy.node], copy.segments <= _FEW) for copy in index.copies)
            told[f"{wanted.name} merged"] = f"{copies}, {index.tasks} tasks"
            told[f"{wanted.name} as loaded"] = (
                f"{index.replicas} replicas, refresh {index.refresh_interval}, {index.translog_durability}"
            )
    return told


def shot(
    read: ClusterReadings,
    indices: Collection[str],
    *,
    made_meanwhile: Collection[str] = (),
    reasons: bool = True,
) -> Shot:
    """What two stages must agree on; where an index made meanwhile goes is for the balancer to say.

    `reasons`: why copies are unassigned, too.
    """
    cluster, settings, health = read.cluster, read.settings, read.health
    if not isinstance(cluster, ClusterView) or cluster.master is None:
        return {"master": "none"}
    assert isinstance(settings, SettingsView), settings
    assert isinstance(health, HealthView), health
    told: dict[str, object] = {
        "master": "elected",
        "members": " ".join(sorted(cluster.members)),
        "voters": len(cluster.voters or ()),
        "exclusions": " ".join(sorted(cluster.voting_exclusions)),
        "health": health.status.value,
        "copies": _copies_counted(cluster, health),
        **{f"{level.value} settings": _flat(settings, level) for level in Level},
    }
    for index in sorted(cluster.indices, key=lambda index: index.name):
        if index.name in indices or index.name in made_meanwhile:
            copies = [copy for copy in cluster.copies if copy.shard.index == index.name]
            told[index.name] = "; ".join(
                sorted(_copy(copy, index.name in indices, reasons) for copy in copies)
            )
            told[f"{index.name} as made"] = _index(index)
    return told


def _copies_counted(cluster: ClusterView, health: HealthView) -> str:
    """As health says, but for the index in which real clusters keep results of tasks, once there are any."""
    results = [copy for copy in cluster.copies if copy.shard.index == _TASK_RESULTS]
    missing = sum(copy.state is CopyState.UNASSIGNED for copy in results)
    active = health.active_shards - sum(copy.started for copy in results)
    return f"{active} active, {health.unassigned_shards - missing} unassigned"


def _flat(settings: SettingsView, level: Level) -> str:
    layer = settings.persistent if level is Level.PERSISTENT else settings.transient
    return ", ".join(f"{key}={value}" for key, value in sorted(layer.items()))


def _copy(copy: ShardCopy, where: bool, reasons: bool) -> str:  # noqa: FBT001  (private, and read at its only call)
    unassigned = copy.state is CopyState.UNASSIGNED
    state = copy.unassigned_reason if unassigned and reasons else copy.state.value
    place = "-" if copy.node is None else copy.node if where else "somewhere"
    return f"{'primary' if copy.primary else 'replica'} {place} {state}"


def _index(index: Index) -> str:
    in_sync = len((index.in_sync or {}).get(0, ()))
    return (
        f"{'open' if index.open else 'closed'}, {index.replicas} replicas, {in_sync} in sync, "
        f"expands {index.auto_expand}, enable {index.allocation_enable}"
    )


class RealStage:
    """A cluster of real server processes.

    Once it has come to rest, it stays so until something is done to it.
    """

    def __init__(self, lab: LabCluster, port: ClusterPort, indices: Sequence[Wanted]) -> None:
        self._lab, self.port = lab, port
        self._rested: ClusterReadings | None = None
        self.generation = generation(lab.distribution.name)
        for index in indices:
            self.create(index)
        lab.wait_ready(status="yellow")
        if self.generation.server.before(2):  # where only equal files make a copy be found again
            for index in indices:
                self._ask("POST", f"/{index.name}/{self.generation.document}", {"text": "written at first"})

    def _ask(self, method: str, path: str, body: object = None) -> None:
        self._rested = None
        with closing(self._lab.client) as client:
            client.ask(method, path, body)

    def stop(self, *nodes: NodeName) -> None:
        """Flush first, as a run does: before 7.6 a copy is found again only if it was flushed so."""
        if not self.generation.by_operations:
            self.perform(Flush())
        self._rested = None
        self._lab.stop_nodes(nodes)

    def start(self, *nodes: NodeName) -> None:
        self._rested = None
        self._lab.start_nodes(nodes)

    def perform(self, action: ClusterAction) -> ActionResult:
        self._rested = None
        return self.port.perform(action)

    def create(self, index: Wanted) -> None:
        settings: dict[str, object] = {
            "number_of_shards": 1,
            "number_of_replicas": index.replicas,
            "unassigned.node_left.delayed_timeout": f"{index.delay}s",
        }
        if index.auto_expand is not None:
            settings["auto_expand_replicas"] = index.auto_expand
        if index.at_master:
            settings |= {"number_of_replicas": 0, _NODES_INCLUDED: self._master()}
        self._ask("PUT", f"/{index.name}?wait_for_active_shards=0", {"settings": settings})
        if index.at_master:
            self._lab.wait_ready(status="green")
            anywhere = {_NODES_INCLUDED: "*", "index.number_of_replicas": index.replicas}
            self._ask("PUT", f"/{index.name}/_settings", anywhere)
        if index.loaded:
            self._load(index.name)
        if index.closed:
            self._ask("POST", f"/{index.name}/_close?wait_for_active_shards=0")
        if index.enable is not None:  # once it is where it is
            self._lab.wait_ready(status="green")
            self._ask("PUT", f"/{index.name}/_settings", self._enabled(index.enable))

    def _master(self) -> NodeName:
        read = self.port.observe(READ).cluster
        assert isinstance(read, ClusterView), read
        assert read.master is not None, read
        return read.master

    def _enabled(self, enable: str) -> dict[str, str]:
        if not self.generation.dialect.allocation_flags:
            return {"index.routing.allocation.enable": enable}
        return {FLAGS[enable].replace("cluster.", "index.", 1): "true"}

    def _load(self, index: str) -> None:
        settings = {"index.refresh_interval": "-1", **_UNMERGED}
        self._ask("PUT", f"/{index}/_settings", settings)
        self._lab.wait_ready(status="green")
        for number in range(2 * _FEW):
            path = f"/{index}/{self.generation.document}?refresh=true"
            self._ask("POST", path, {"text": f"document {number}"})

    def close(self, index: str) -> None:
        self._ask("POST", f"/{index}/_close?wait_for_active_shards=0")

    def reopen(self, index: str) -> None:
        self._ask("POST", f"/{index}/_open?wait_for_active_shards=0")

    def wait(self, seconds: Seconds) -> None:
        time.sleep(seconds)

    def write(self, index: str) -> None:
        path = f"/{index}/{self.generation.document}?wait_for_active_shards=1"
        self._ask("POST", path, {"text": "written meanwhile"})

    def read(self) -> ClusterReadings:
        if self._rested is None:
            late = self.generation.reroutes_late
            try:
                self._rested = at_rest(
                    lambda: self.port.observe(READ), now=time.monotonic, wait=time.sleep, late=late
                )
            except RestlessError as error:
                raise RestlessError(f"{error}\n{self._at_work()}") from None
        return self._rested

    def _at_work(self) -> str:
        """What the servers say that they are about."""
        asked = ("/_cluster/pending_tasks", "/_cat/recovery?active_only=true&v", "/_nodes/hot_threads")
        client, told = self._lab.client, []
        try:
            for path in asked:
                try:
                    told.append(f"{path}: {client.ask('GET', path)}")
                except LabError as error:
                    told.append(f"{path}: {error}")
        finally:
            client.close()
        return "\n".join(told)


def at_rest(
    observe: Callable[[], ClusterReadings],
    *,
    now: Callable[[], Instant],
    wait: Callable[[Seconds], None],
    late: bool = False,
) -> ClusterReadings:
    """What is read once nothing has moved for long enough.

    A reading may itself take seconds, since health waits for a master. So it takes a second one, equal to the
    first, and the time counts between their ends: each reads the copies last.

    Raises:
        RestlessError: something moves for too long.
    """
    began = now()
    last, still_since = observe(), now()
    while now() - began <= _RESTLESS:
        wait(0.3)
        read = observe()
        if _restless(read) or _moved(last, read):
            still_since = now()
        last = read
        if now() - still_since >= _long_enough(read, late=late):
            return read
    raise RestlessError(f"the cluster does not come to rest: {last}")


def _long_enough(read: ClusterReadings, *, late: bool) -> Seconds:
    view = read.cluster
    if not isinstance(view, ClusterView) or view.master is None:
        return _STILL_WITHOUT_MASTER
    if late and any(copy.state is CopyState.UNASSIGNED for copy in view.copies):
        return _STILL_BEFORE_REROUTE
    return _STILL


def _restless(read: ClusterReadings) -> bool:
    if not isinstance(read.cluster, ClusterView):
        return False
    moving = (CopyState.INITIALIZING, CopyState.RELOCATING)
    return any(copy.state in moving for copy in read.cluster.copies)


def _moved(last: ClusterReadings, now: ClusterReadings) -> bool:
    if isinstance(last.cluster, ClusterView) and isinstance(now.cluster, ClusterView):
        return last.cluster.copies != now.cluster.copies or last.cluster.members != now.cluster.members
    return type(last.cluster) is not type(now.cluster)


class SimulatedStage:
    """A simulated cluster that begins as the recorded one did, and is of its generation."""

    def __init__(
        self,
        port: SimulatedCluster,
        like: Recording,
        indices: Sequence[Wanted],
        generation: Generation,
    ) -> None:
        self.port, self._world = port, port.world
        self.generation = generation
        port.world.forced.task_list = generation.dialect.task_list
        build(port.world, like, indices)

    def stop(self, *nodes: NodeName) -> None:
        for name in nodes:
            membership.process_ended(self._world, self._world.nodes[name], clean=True)

    def start(self, *nodes: NodeName) -> None:
        for name in nodes:
            membership.process_began(self._world, self._world.nodes[name])
        self._world.agenda.advance(max(self._world.nodes[name].join_seconds for name in nodes))

    def perform(self, action: ClusterAction) -> ActionResult:
        return self.port.perform(action)

    def create(self, index: Wanted) -> None:
        self._world.create_index(index.name, replicas=index.replicas)
        _shape(self._world.indices[f"{index.name}-uuid"], index)

    def write(self, index: str) -> None:
        """An index of the simulation that is `written` is written all the time."""
        assert self._world.indices[f"{index}-uuid"].written

    def close(self, index: str) -> None:
        index_mishaps.close(self._world, self._world.indices[f"{index}-uuid"])

    def reopen(self, index: str) -> None:
        index_mishaps.reopen(self._world, self._world.indices[f"{index}-uuid"], written=False)

    def wait(self, seconds: Seconds) -> None:
        self._world.agenda.advance(seconds)

    def read(self) -> ClusterReadings:
        agenda = self._world.agenda
        return at_rest(lambda: self.port.observe(READ), now=lambda: agenda.now, wait=agenda.advance)


def build(world: World, like: Recording, indices: Sequence[Wanted]) -> None:
    """Nodes, master, and the copies of each index where they are on the real cluster."""
    cluster = like.cluster
    world.ways = ways_of(
        ClusterView(
            name="recorded",
            uuid="recorded",
            version=cluster["version"],
            distribution=cluster["distribution"],
            state_version=0,
            master=None,
            nodes=(),
            indices=(),
            copies=(),
            voting_by_count=cluster["voting_by_count"],
        ),
        SettingsView(resets=cluster["resets"], allocation_flags=cluster["allocation_flags"]),
    )
    defaults = world.files if cluster["resets"] else {}
    world.files = {**defaults, **cluster["files"], AWARENESS: "zone"}
    for name, node in sorted(cluster["nodes"].items()):
        world.add_node(name, roles=frozenset(map(Role, node["roles"])), zone=node["zone"])
    world.master = like.begin["master"]
    for index in indices:
        copies = like.begin["copies"][index.name]
        places = [node for node in copies if node is not None]
        made = world.add_index(index.name, replicas=len(copies) - 1, places=places, written=index.written)
        _shape(made, index)
        if index.loaded:
            made.refresh_interval = "-1"
            segments.load(world, made, 2 * _FEW)
    reroute(world)


def _shape(made: SimIndex, index: Wanted) -> None:
    made.delay, made.auto_expand = float(index.delay), index.auto_expand
    made.allocation_enable, made.closed, made.written = index.enable, index.closed, index.written
