"""Read the requested parts of a cluster with few and small calls.

| part | calls |
|---|---|
| CLUSTER | 1 small one while only our lease changes the master's state, else 1 more of the cluster's size;
  after the restart of a node 1 more, and 1 more if it is dedicated to cold or frozen data |
| SETTINGS | 1; none beside CLUSTER once only our lease has changed the master's state for two minutes |
| HEALTH | 1 |
| RECOVERIES | 1; 1 more without CLUSTER when an index is new to us |
| FINISHED | none beside RECOVERIES, whose answer is many times larger with it |
| ACTIVITY | 1 beside CLUSTER, else 2; before Elasticsearch 2 always 2 |
| DISKS | 1 beside SETTINGS, else 2 |
| STORED | 1 beside DISKS |
| UPGRADE | 4, and 1 for each snapshot repository |
| MODES | 1 beside SETTINGS |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.client import ElasticsearchClient
from orchestrator.elasticsearch.dialect import Dialect, parse_version
from orchestrator.elasticsearch.faults import Fault
from orchestrator.elasticsearch.fields import ReadFailed, known, reading
from orchestrator.elasticsearch.old_versions import file_values, name_of, renames, with_smallest_quorum
from orchestrator.elasticsearch.parse import (
    parse_disks,
    parse_health,
    parse_recoveries,
    parse_settings,
    parse_snapshots,
    parse_stored,
    parse_tasks,
    recovering_indices,
)
from orchestrator.elasticsearch.parse_cluster import (
    Life,
    Member,
    parse_cluster,
    parse_index_uuids,
    parse_lives,
    process_of,
    unfamiliar,
)
from orchestrator.elasticsearch.recovery_rates import goes_by_memory, parse_memory, rate_of, with_largest_rate
from orchestrator.elasticsearch.upgrade import read_upgrade, with_modes
from orchestrator.model.cluster import NodeName
from orchestrator.model.observation import (
    Activity,
    ClusterView,
    Disk,
    HealthView,
    Look,
    Recovery,
    RunningSnapshot,
    SettingsView,
)
from orchestrator.model.reading import NOT_READ, Instant, Reading, Seconds, Unknown
from orchestrator.ports import ClusterReadings


class Observer:
    """Reads one cluster. Caches facts that cannot change: facts of a node's process, and uuids by name.

    A state that nothing but our lease has changed is not read again either, nor are the settings in it.

    Args:
        client: the way to it.
    """

    def __init__(self, client: ElasticsearchClient) -> None:
        self._client = client
        self._lives: dict[str, Life] = {}
        self._uuids: dict[str, str] = {}
        self._names: dict[str, NodeName] = {}
        self._memory: dict[str, int] = {}
        self._patience = Patience()
        self._present: frozenset[str] = frozenset()
        self._master: str | None = None
        self._kept: KeptState | None = None

    def observe(self, look: Collection[Look], *, restarted: Collection[NodeName]) -> ClusterReadings:
        """Read the requested parts.

        Args:
            look: the parts; parts about hosts are ignored.
            restarted: nodes whose finished recoveries are needed too, if any are.
        """
        dialect = self._client.dialect()
        if isinstance(dialect, Fault):
            return ClusterReadings(
                **{part: dialect.unknown() for part in _PARTS if Look[part.upper()] in look}
            )
        found: dict[str, Any] = {}
        snapshots: Reading[tuple[RunningSnapshot, ...]] = NOT_READ
        beside = Look.CLUSTER in look and dialect.snapshots_in_state
        if Look.HEALTH in look:  # first: it waits for the master's queue, so the later reads are not older
            found["health"] = reading(self._health)
        if Look.CLUSTER in look:
            both = reading(self._cluster, with_snapshots=beside and Look.ACTIVITY in look)
            found["cluster"], snapshots = (both, both) if isinstance(both, Unknown) else both
        if Look.SETTINGS in look:
            found["settings"] = reading(self._settings_for, look, dialect)
        if Look.RECOVERIES in look:
            finished = Look.FINISHED in look
            read = reading(self._recoveries, restarted if finished else ())
            running = read if isinstance(read, Unknown) else tuple(each for each in read if not each.done)
            done = read if isinstance(read, Unknown) else tuple(each for each in read if each.done)
            found |= {"recoveries": running} | ({"finished": done} if finished else {})
        if Look.ACTIVITY in look:
            if not beside:
                snapshots = reading(self._snapshots)
            found["activity"] = reading(self._activity, snapshots, found.get("cluster", NOT_READ))
        if Look.DISKS in look:
            settings = found["settings"] if Look.SETTINGS in look else reading(self._settings, dialect)
            found["disks"] = reading(self._disks, settings, stored=Look.STORED in look)
        if Look.UPGRADE in look:
            found["upgrade"] = reading(read_upgrade, self._client)
        return ClusterReadings(**found)

    def _health(self) -> HealthView:
        priority = self._patience.priority
        body = self._client.body(calls.health(priority=priority))
        health = parse_health(body)
        self._patience.answered(settled=health.settled)
        return replace(health, waited_for=priority)

    def _cluster(
        self, *, with_snapshots: bool
    ) -> tuple[Reading[ClusterView], Reading[tuple[RunningSnapshot, ...]]]:
        kept, self._kept = self._kept, None
        if kept is not None:
            beside = with_snapshots and kept.snapshots is NOT_READ
            own = self._client.own_updates.since(kept.reading)
            with suppress(ReadFailed):  # then the whole state is read
                body = self._client.body(calls.state_uuid(self._client.limits, with_snapshots=beside))
                if kept.is_still(body, own):
                    if beside:
                        kept = replace(kept, snapshots=reading(parse_snapshots, body))
                    self._kept = kept
                    return kept.cluster, kept.snapshots
        return self._whole_cluster(with_snapshots=with_snapshots)

    def _whole_cluster(
        self, *, with_snapshots: bool
    ) -> tuple[Reading[ClusterView], Reading[tuple[RunningSnapshot, ...]]]:
        body = self._client.body(calls.state(self._client.limits, with_snapshots=with_snapshots))
        number = self._client.own_updates.was_read()
        server = self._client.server()
        if isinstance(server, Fault):
            raise ReadFailed(server.unknown())
        complete = self._meet(body)
        view = reading(parse_cluster, body, self._lives, distribution=server.distribution)
        if not isinstance(view, Unknown):
            self._uuids = {index.name: index.uuid for index in view.indices}
            self._names = {node.node_id: node.name for node in view.nodes}
            present = {node.incarnation.ephemeral_id for node in view.nodes}
            self._lives = {key: life for key, life in self._lives.items() if key in present}
            self._memory = {key: size for key, size in self._memory.items() if key in present}
            self._present = frozenset(key for key in present if key is not None)
            master = None if view.master is None else view.node(view.master)
            self._master = None if master is None else master.incarnation.ephemeral_id
            self._client.only([node.name for node in view.nodes])
            spoken = self._client.dialect()
            if isinstance(spoken, Fault):  # a node of another version has joined
                view = spoken.unknown()
        snapshots = reading(parse_snapshots, body) if with_snapshots else NOT_READ
        match body:
            case {"state_uuid": str(uuid), "master_node": str(elected)} if complete:
                if not isinstance(view, Unknown):
                    self._kept = KeptState(
                        uuid=uuid,
                        master=elected,
                        version=view.state_version,
                        reading=number,
                        since=self._client.clock.now(),
                        cluster=view,
                        snapshots=snapshots,
                    )
        return view, snapshots

    def _meet(self, state: Any) -> bool:
        """Read the facts of nodes that are new or were restarted. Returns whether all facts are known.

        These answers are later than the state. If a node restarted in between, its new start time would be
        taken for the old process. So an incarnation is compared by its ephemeral id first.
        """
        new = unfamiliar(state, self._lives)
        if not new:
            return True
        try:
            lives = parse_lives(self._client.body(calls.lives(new)))
        except ReadFailed:
            return False  # the parser of the state reports its missing facts
        members: dict[NodeName, Member] = {}
        names: dict[str, NodeName] = {}
        for node_id, life in lives.items():
            match state["nodes"].get(node_id):
                case {"name": str(name), "transport_address": str()} as node:
                    self._lives[process_of(node_id, node)] = life
                    known = NodeName(name)
                    if renames(life.server):
                        names[node_id] = known = name_of(node, life.settings, f"nodes.{node_id}")
                    members[known] = Member(server=life.server, http=life.http)
                case _:
                    continue  # it has left the cluster since
        self._client.call(names)
        self._client.learn(members)
        self._weigh(state)
        return not unfamiliar(state, self._lives)

    def _weigh(self, state: Any) -> None:
        """Read the memory of nodes whose recovery rate depends on it; unread memory counts as the largest."""
        wanted: dict[str, str] = {}
        for node_id, node in state["nodes"].items():
            ephemeral = process_of(node_id, node) if isinstance(node, dict) else ""
            life = self._lives.get(ephemeral)
            if life is not None and goes_by_memory(life.roles) and ephemeral not in self._memory:
                wanted[node_id] = ephemeral
        if not wanted:
            return
        with suppress(ReadFailed):
            found = parse_memory(self._client.body(calls.memory(tuple(wanted))))
            self._memory |= {wanted[node_id]: size for node_id, size in found.items() if node_id in wanted}

    def _settings_for(self, look: Collection[Look], dialect: Dialect) -> SettingsView:
        settings = self._settings_beside(dialect) if Look.CLUSTER in look else self._settings(dialect)
        return with_modes(self._client, settings) if Look.MODES in look else settings

    def _settings_beside(self, dialect: Dialect) -> SettingsView:
        """The settings, just after the state was read or found to be the same."""
        kept = self._kept
        if kept is not None and kept.settings is not None:
            return kept.settings
        asked_at = self._client.clock.now()
        settings = self._settings(dialect)
        if kept is not None and asked_at - kept.since > APPLIED_SECONDS:
            self._kept = replace(kept, settings=settings)
        return settings

    def _settings(self, dialect: Dialect) -> SettingsView:
        settings = parse_settings(self._client.body(calls.settings(self._client.limits)))
        settings = replace(settings, allocation_flags=dialect.allocation_flags)
        if not settings.resets:
            settings = replace(settings, files=self._old_files())
        if dialect.voting_by_count:
            lives = [life for key in self._present if (life := self._lives.get(key)) is not None]
            nodes = [(each.server.version, each.settings) for each in lives]
            settings = with_smallest_quorum(settings, nodes)
        if not self._present:
            return settings
        return with_largest_rate(settings, [self._rate(ephemeral) for ephemeral in self._present])

    def _old_files(self) -> Mapping[str, str]:
        """Before 5.0: the values that absent settings have on the elected master, which allocates."""
        life = None if self._master is None else self._lives.get(self._master)
        return {} if life is None else file_values(life.settings, life.server.version)

    def _rate(self, ephemeral: str) -> int | None:
        """Bytes per second that this node process may copy; None if unknown."""
        life = self._lives.get(ephemeral)
        if life is None:
            return None
        version = parse_version(life.server.version)
        return rate_of(life.roles, life.rate, self._memory.get(ephemeral), version=version)

    def _recoveries(self, restarted: Collection[NodeName]) -> tuple[Recovery, ...]:
        body = self._client.body(calls.recoveries(active_only=not restarted))
        if new := [name for name in recovering_indices(body) if name not in self._uuids]:
            request = calls.index_uuids(self._client.limits, new)
            self._uuids |= parse_index_uuids(self._client.body(request))
        return parse_recoveries(body, uuids=self._uuids, finished_on=restarted)

    def _snapshots(self) -> tuple[RunningSnapshot, ...]:
        return parse_snapshots(self._client.body(calls.snapshots(self._client.limits)))

    def _activity(
        self, snapshots: Reading[tuple[RunningSnapshot, ...]], cluster: Reading[ClusterView]
    ) -> Activity:
        running = tuple(
            replace(one, nodes=tuple(self._names.get(node, node) for node in one.nodes))
            for one in known(snapshots)
        )
        members = {} if isinstance(cluster, Unknown) else {node.node_id: node.name for node in cluster.nodes}
        return parse_tasks(self._client.body(calls.tasks()), snapshots=running, members=members)

    def _disks(self, settings: Reading[SettingsView], *, stored: bool) -> Mapping[NodeName, Disk]:
        watermarks = known(settings)
        disks = parse_disks(self._client.body(calls.disks()), watermarks)
        held: Mapping[NodeName, int] = {}
        if stored:
            with suppress(ReadFailed):  # what a node holds only makes predictions better
                held = parse_stored(self._client.body(calls.stored()))
        return {name: replace(disk, stored_bytes=held.get(name)) for name, disk in disks.items()}


_PARTS: Final = tuple(part.name for part in fields(ClusterReadings))


APPLIED_SECONDS: Final[Seconds] = 120.0
"""A member applies a state within this time or is removed, which is another state: the master waits 30 s
(`cluster.publish.timeout`), then 90 s more (`cluster.follower_lag.timeout`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """What was read of the master's state. It stays true while nothing but our lease has changed that.

    The state has an id, which is the same while the state is. Our lease is in it too, and changes nothing
    of what is read: each update of it makes the state one version later, as does everything else that
    changes the state. So where it is later by just as many versions as updates were begun since it was
    read, and acknowledged, nothing else has changed.
    """

    uuid: str  # the id of the state
    master: str  # the id of the master: a state that has only lost its master keeps its own id
    version: int  # of the state, counted by the master
    reading: int  # its number, as `OwnUpdates` counts
    since: Instant  # when it was first read
    cluster: ClusterView
    snapshots: Reading[tuple[RunningSnapshot, ...]]  # in progress; `NOT_READ` if that part was not asked for
    # certainly those of this state; None until then. Since 9.0 the node that is asked answers with its
    # own state, which may be older than the master's.
    settings: SettingsView | None = None

    def is_still(self, answer: Any, own: int) -> bool:
        """Whether an answer shows the same state. One that lacks the id or the master shows nothing.

        Args:
            answer: to `calls.state_uuid`.
            own: updates of ours that were made before the question, and begun since the reading.
        """
        match answer:
            case {"master_node": self.master, "state_uuid": self.uuid}:
                return True
            case {"master_node": self.master, "state_uuid": str(), "version": int(version)}:
                return 0 < own == version - self.version
            case _:
                return False


_PRIORITIES: Final = (calls.LANGUID, "normal", "high", "urgent")
_MISSES: Final = 2
"""Waits in a row that timed out, before the next one waits for a higher priority only."""
_GOOD: Final = 10
"""Readings with a higher priority, before `languid` is tried again."""


class Patience:
    """Chooses the priority for the next reading of health from the results of the last ones.

    Health with `wait_for_events=P` is itself a task of priority P in the master's queue. All earlier
    tasks of that priority or a higher one are done before the answer. The queue always takes higher
    priorities first. So on a master that is always busy (mapping updates are HIGH) a `languid` wait never
    ends. After several waits that timed out, the next reading waits for a higher priority only. It then
    includes all tasks of that priority, and the reading names the priority. Joins and departures of nodes
    and started shards are URGENT or above.
    """

    def __init__(self) -> None:
        self._step = self._misses = self._good = 0

    @property
    def priority(self) -> str:
        """The value of `wait_for_events` for the next reading."""
        return _PRIORITIES[self._step]

    def answered(self, *, settled: bool) -> None:
        """Record an answer; `settled`: its wait did not time out."""
        if settled:
            self._misses = 0
            self._good += self._step > 0
            if self._good >= _GOOD:
                self._step = self._good = 0
            return
        self._good = 0
        self._misses += 1
        if self._misses >= _MISSES and self._step < len(_PRIORITIES) - 1:
            self._step += 1
            self._misses = 0
