"""The commands of an operator on real nodes of one version, under load, and their figures.

All oracles are the nodes' own answers: process ids, settings by the lab's own client, segments of every copy,
and the documents that the load wrote down when they were acknowledged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.integration.killing import Described
from tests.integration.lease_records import lease_records
from tests.integration.restarting import Begun, events, orchestrate
from tests.lab.bulk import BulkLoad, Dialect, numbered
from tests.lab.bulk import load as bulk_load
from tests.lab.client import LabClient
from tests.lab.layout import LOOPBACK
from tests.lab.load import Load, LoadProfile
from tests.lab.nodes import LabCluster
from tests.lab.seed import SeedIndex, seed
from tests.lab.segments import count_segments, told

ENABLE: Final = "cluster.routing.allocation.enable"
FOUND: Final[Mapping[str, Mapping[str, str]]] = {
    "persistent": {ENABLE: "all", "indices.recovery.max_bytes_per_sec": "61mb"},
    "transient": {ENABLE: "all", "cluster.routing.allocation.node_concurrent_recoveries": "3"},
}
"""Set by the operator before: persistent, transient, one that the program may raise, and a transient `all`
that somebody forgot: it overrides every persistent value."""
FLAG: Final = "cluster.routing.allocation.disable_replica_allocation"
"""What 0.90 has instead of `enable`."""
ABSENT_BEFORE: Final = "absent before, its effective value now"
DATA: Final = (
    SeedIndex(name="people", shards=1, replicas=2, documents=300),
    SeedIndex(name="events", shards=2, documents=600),
)
POSTS: Final = BulkLoad(
    indices=numbered("posts", 2), documents=4000, shards=1, documents_per_request=200, document_words=10
)
MOST: Final = 5
ROLES: Final = {"8.19.0": "master,data,ingest,remote_cluster_client"}
"""The archive of 7.17 has no machine learning: the only node with a role is not to be stopped."""
PLAYBOOK: Final[Mapping[str, Any]] = {
    "kind": "elasticsearch",
    "settle": {"consecutive": 2},
    "configuration_management": "ignore",
    "deadlines": {"hold": "1m", "start": "3m", "rejoin": "3m", "recover": "4m", "withheld": "5m"},
}


def small_lab(version: str) -> LabCluster:
    """Three nodes of a version with little memory, to be entered."""
    return LabCluster.start(version=version, heap_mb=256)


def loader(lab: LabCluster) -> Dialect:
    """How documents are sent to this version."""
    distribution = lab.distribution
    words, exact = ({"type": "text"}, {"type": "keyword"})
    if distribution.before(5):
        words, exact = {"type": "string"}, {"type": "string", "index": "not_analyzed"}
    fields = {
        "properties": {"text": words, "topic": exact, "number": {"type": "long"}, "score": {"type": "double"}}
    }
    unset: dict[str, str | None] = {
        "index.merge.policy.segments_per_tier": None,
        "index.merge.policy.floor_segment": None,
    }
    if distribution.before(5):
        unset = {"index.merge.policy.segments_per_tier": "10", "index.merge.policy.floor_segment": "2mb"}
    return Dialect(
        mapping={"doc": fields} if distribution.before(7) else fields,
        bulk=distribution.bulk,
        unset=unset,
        durability=not distribution.before(2),
    )


@dataclass(slots=True)
class Story:
    """What was done on one version, with its figures, for people."""

    version: str
    lines: list[str] = field(default_factory=list)
    row: list[str] = field(default_factory=list)
    """The same, short: a row of the docs' table."""

    def add(self, line: str) -> None:
        """One more line."""
        self.lines.append(line)

    def __str__(self) -> str:
        row = f"  | {' | '.join([self.version, *self.row])} |"
        return "\n".join([self.version, *(f"  {line}" for line in self.lines), row, ""])


def settings_of(client: LabClient) -> dict[str, dict[str, Any]]:
    """Both levels, flat."""
    read = client.ask("GET", "/_cluster/settings?flat_settings=true")
    return {level: read[level] for level in ("persistent", "transient")}


def prepare(lab: LabCluster) -> dict[str, dict[str, Any]]:
    """Data and settings as an operator has them; returns the settings."""
    with closing(lab.client) as client:
        seed(client, DATA, bulk=lab.distribution.bulk)
        found = {level: dict(values) for level, values in FOUND.items()}
        for values in found.values() if lab.distribution.before(1) else ():
            del values[ENABLE]
            values[FLAG] = "false"
        client.ask("PUT", "/_cluster/settings", found)
        return settings_of(client)


def assert_withheld(lab: LabCluster) -> None:
    """Both levels say so now: a transient `all` that was found does not override what the run wrote."""
    with closing(lab.client) as client:
        key, wanted = (FLAG, "true") if lab.distribution.before(1) else (ENABLE, "primaries")
        found = {level: of[key] for level, of in settings_of(client).items()}
        assert found == {"persistent": wanted, "transient": wanted}


def assert_settings(lab: LabCluster, before: Mapping[str, Mapping[str, Any]], story: Story) -> None:
    """The settings are as they were; before 5.0 a setting cannot become absent again."""
    with closing(lab.client) as client:
        after = settings_of(client)
        left = lease_records(client, components=not lab.distribution.before(7, 8))
    assert left == []
    if lab.distribution.before(5):
        for level, values in before.items():
            kept = {key: value for key, value in after[level].items() if key in values}
            assert kept == values, (before, after, str(story))
        more = {key: value for key, value in after["persistent"].items() if key not in before["persistent"]}
        story.add(f"settings: as before; {ABSENT_BEFORE}: {more}")
        assert set(after["transient"]) == set(before["transient"]), after
        return
    assert after == before, (before, after, str(story))
    story.add(f"settings: equal, {json.dumps(after)}")


class Nameless:
    """A lab without `node.name`: its nodes are started and stopped by their addresses."""

    def __init__(self, lab: LabCluster) -> None:
        self._lab = lab

    def names(self) -> dict[str, str]:
        """The random name of each node, by its address."""
        with closing(self._lab.client) as client:
            nodes = client.ask("GET", "/_nodes/transport")["nodes"].values()
        return {_address(str(node["transport_address"])): str(node["name"]) for node in nodes}

    def node_at(self, address: str) -> str:
        """The lab's own name of the node at this address."""
        return self._by_address()[address]

    def _by_address(self) -> dict[str, str]:
        return {f"{LOOPBACK}:{ports.transport}": name for name, ports in self._lab.ports.items()}

    def cluster_document(self) -> dict[str, Any]:
        """The lab's cluster file, with commands that take an address."""
        document: dict[str, Any] = self._lab.cluster_document()
        service = document["hosts"]["service"]
        translated = " ".join(f"{address}) node={name};;" for address, name in self._by_address().items())
        script = self._lab.directory / "by-address"
        script.write_text(
            f'#!/bin/sh\nverb=$1\ncase "$2" in {translated} esac\n'
            + "".join(
                f'[ "$verb" = {verb} ] && exec {command.replace("{node}", chr(36) + "node")}\n'
                for verb, command in service.items()
                if verb != "manager"
            ),
            encoding="utf-8",
        )
        script.chmod(0o755)
        verbs = {verb: f"{script} {verb} {{node}}" for verb in service if verb != "manager"}
        return {**document, "hosts": {**document["hosts"], "service": {"manager": "command", **verbs}}}


def _address(published: str) -> str:
    """`127.0.0.1:9300` of `inet[/127.0.0.1:9300]`."""
    return published.removeprefix("inet[/").removesuffix("]")


def run(
    lab: Described, folder: Path, story: Story, command: str, *words: str, seconds: float = 1500.0
) -> dict[str, Any]:
    """One command to its end; returns its summary."""
    began = time.monotonic()
    code, lines = orchestrate(lab, folder, command, *words, playbook=PLAYBOOK, seconds=seconds)
    last = lines[-1]
    took, name = time.monotonic() - began, " ".join((command, *words))
    recovered = events(lines, "node_recovered")
    reused, copied, replayed = (
        sum(line.get(figure) or 0 for line in recovered)
        for figure in ("bytes_reused", "bytes_copied", "operations_replayed")
    )
    figures = f", {reused} bytes reused, {copied} copied, {replayed} operations" if recovered else ""
    story.add(f"{name}: exit {code}, {last.get('outcome')}, {took:.1f} s{figures}")
    story.row.append(f"{took:.0f}" + (f": {reused >> 10} / {copied >> 10} / {replayed}" if recovered else ""))
    assert code == 0, "\n".join([str(story), *map(str, lines[-12:])])
    return last


def restarted_once(
    lab: LabCluster, story: Story, what: Callable[[], Any], nodes: tuple[str, ...] | None = None
) -> None:
    """Every one of these nodes has another process afterwards, and the others have not."""
    before = lab.pids()
    what()
    after = lab.pids()
    chosen = set(before) if nodes is None else set(nodes)
    changed = {name for name, pid in after.items() if before[name] != pid}
    assert (set(after), changed) == (set(before), chosen), str(story)
    lab.wait_ready(status="green", seconds=120)


def kill_in_mid_wave(lab: LabCluster, folder: Path, story: Story) -> None:
    """SIGKILL while a node is down and nothing is allocated, then `restore`: it is up, allocation enabled."""
    # The hook keeps the node down until the kill, however quickly a node of this version starts.
    hooks = {"hooks": {"while_stopped": [{"run": "sleep 60", "local": True}]}}
    with Begun(lab, folder, "restart", "--only", "es2", playbook={**PLAYBOOK, **hooks}) as run_:
        run_.wait_for(lambda line: line["event"] == "phase_entered" and line["to"] == "stopped")
        assert_withheld(lab)
    story.add(f"SIGKILL while es2 was down: processes {sorted(lab.pids())}")
    assert sorted(lab.pids()) == ["es1", "es3"], str(story)
    began = time.monotonic()
    code, lines = orchestrate(lab, folder, "restore", playbook=PLAYBOOK)
    took = time.monotonic() - began
    story.add(f"restore: exit {code}, {lines[-1].get('outcome')}, {took:.1f} s")
    story.row.append(f"{took:.0f}")
    assert code == 0, "\n".join([str(story), *map(str, lines)])
    assert sorted(lab.pids()) == [node.name for node in lab.nodes]
    lab.wait_ready(status="green", seconds=180)


def under_load(lab: LabCluster, what: Callable[[], None], story: Story) -> None:
    """Do it while documents are written and searched; every acknowledged document is there afterwards.

    Before 2.0 a node that stops acknowledges now and then what no other copy has (seen on 1.7.6 after SIGTERM
    alone): there, at most one request's documents may be missing for each node.
    """
    profile = LoadProfile(
        documents_per_second=100.0,
        searches_per_second=5.0,
        bulk=lab.distribution.bulk,
        shards=2,
        scrolls=not lab.distribution.before(2),
    )
    load = Load(lab.access, profile)
    load.start()
    try:
        load.wait_acknowledged(200)
        what()
    finally:
        result = load.stop()
    lab.wait_ready(status="green", seconds=180)
    checked = load.verify()
    story.add(
        f"documents: {checked.acknowledged} acknowledged, {len(checked.missing)} missing; load: {result}"
    )
    story.row.append(f"{checked.acknowledged} / {len(checked.missing)} / {result.indexing.failed}")
    lost = len(lab.nodes) * profile.documents_per_request if lab.distribution.before(2) else 0
    assert not checked.duplicated, str(story)
    assert len(checked.missing) <= lost, str(story)


def everything(lab: LabCluster, folder: Path, story: Story) -> None:
    """Plan, both strategies, merge and restart, a kill and its repair: each under load, each looked at."""
    before = prepare(lab)

    def all_of_it() -> None:
        run(lab, folder, story, "plan")
        restarted_once(lab, story, lambda: run(lab, folder, story, "restart", "--strategy", "node"))
        assert_settings(lab, before, story)
        restarted_once(lab, story, lambda: run(lab, folder, story, "restart", "--strategy", "zone"))
        assert_settings(lab, before, story)
        kill_in_mid_wave(lab, folder, story)
        assert_settings(lab, before, story)

    under_load(lab, all_of_it, story)
    merged(lab, folder, story)
    assert_settings(lab, before, story)


def merged(lab: LabCluster, folder: Path, story: Story) -> None:
    """A bulk load, merged and restarted by `post-bulk-index`."""
    with closing(lab.client) as client:
        bulk_load(client, POSTS, dialect=loader(lab))
        found = count_segments(client, "posts-*")
        step = ("--index", "posts-*")
        restarted_once(lab, story, lambda: run(lab, folder, story, "post-bulk-index", *step))
        after = count_segments(client, "posts-*")
    story.add(f"before: {told(found)}")
    story.add(f"after: {told(after)}")
    assert max(copy.most for copy in after) <= MOST < max(copy.most for copy in found), str(story)
