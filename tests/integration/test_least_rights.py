"""The shipped role: every call that the program makes is allowed by it, and each of its lines is needed."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest
from ruamel.yaml import YAML

from orchestrator.lab.client import LabClient
from orchestrator.model.action import (
    ClearVotingExclusions,
    Done,
    ExcludeFromVoting,
    Flush,
    ForceMerge,
    IndexAction,
    ProbeSettings,
    Purpose,
    RefreshIndex,
    RetryFailed,
    SetIndexSettings,
    SetReplicas,
    SettingChange,
    WriteSettings,
)
from orchestrator.model.cluster import NodeName
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Level
from orchestrator.model.upgrade import ML_UPGRADE_MODE
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch.access import Limits
from orchestrator.stores.elasticsearch.act import request_for
from orchestrator.stores.elasticsearch.dialect import Dialect, dialect_for
from orchestrator.stores.elasticsearch.faults import Answer
from orchestrator.stores.elasticsearch.kept_state import OwnUpdates
from orchestrator.stores.elasticsearch.lease import PREFIX, ElasticsearchLease, lease_body
from orchestrator.stores.elasticsearch.request import Request
from tests.integration.hostlab.docker import run
from tests.integration.hostlab.hosts import wait_until
from tests.integration.hostlab.images import REFERENCE
from tests.integration.hostlab.material import ORCHESTRATOR, ROLE

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory
    from tests.integration.hostlab.hosts import HostCluster, LabHost

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400)]

SECURED = ("9.1.0", "8.19.0")
FORBIDDEN = 403
NO_HANDLER = {400, 405}
"""What a server says to a path that it does not know."""
NO_TASK = "GET /_tasks/none%3A1"
LEASES = "GET /_template/orchestrate-lease-*"
SNAPSHOTS = "GET /_snapshot/none/_all"
NOT_IN_THESE_ARCHIVES = {"GET /_migration/deprecations", "GET /_ml/info", "POST /_ml/set_upgrade_mode"}
"""Parts of X-Pack that the servers of these tests lack, so nothing shows that their lines are needed."""
RELOAD_SECONDS = 60.0
"""Nodes look at their role and user files every 5 s."""


LIMITS = Limits()
DIALECT = dialect_for("elasticsearch", "9.1.0")
"""Elasticsearch 8 and 9 get the same paths; their parameters differ, which no right depends on."""
READS: Mapping[str, Request] = {
    "identity": calls.identity(),
    "members": calls.members(),
    "own_names": calls.own_names(),
    "processes": calls.processes(),
    "state": calls.state(DIALECT, LIMITS, with_snapshots=True),
    "state_uuid": calls.state_uuid(DIALECT, LIMITS, with_snapshots=True),
    "snapshots": calls.snapshots(DIALECT, LIMITS),
    "index_uuids": calls.index_uuids(DIALECT, LIMITS, ["posts"]),
    "names": calls.names(DIALECT, LIMITS),
    "bulk_state": calls.bulk_state(DIALECT, LIMITS, ["posts"]),
    "segments": calls.segments(DIALECT, ["posts"]),
    "writes": calls.writes(DIALECT, ["posts"]),
    "lives": calls.lives(["_all"], DIALECT),
    "settings": calls.settings(DIALECT, LIMITS),
    "levels": calls.levels(DIALECT, LIMITS),
    "health": calls.health(DIALECT),
    "recoveries": calls.recoveries(DIALECT, active_only=True),
    "tasks": calls.tasks(),
    "merge_pools": calls.merge_pools(),
    "task": calls.task("none:1", patience=1.0),
    "disks": calls.disks(DIALECT),
    "stored": calls.stored(),
    "data_paths": calls.data_paths(),
    "memory": calls.memory(["_local"]),
    "leases": calls.leases(DIALECT, PREFIX, 10.0),
    "creations": calls.creations(DIALECT, LIMITS),
    "node_settings": calls.node_settings(),
    "repositories": calls.repositories(DIALECT, LIMITS),
    "finished_snapshots": calls.finished_snapshots(DIALECT, LIMITS, "none"),
    "deprecations": calls.deprecations(DIALECT),
    "ml_info": calls.ml_info(),
}
VERBS: tuple[IndexAction, ...] = (
    ProbeSettings(),
    WriteSettings(
        changes=(
            SettingChange(
                level=Level.PERSISTENT, key="cluster.routing.allocation.enable", found="all", wanted=None
            ),
        ),
        purpose=Purpose.REASSIGN,
    ),
    WriteSettings(
        changes=(SettingChange(level=Level.PERSISTENT, key=ML_UPGRADE_MODE, found="false", wanted="true"),),
        purpose=Purpose.WITHHOLD,
    ),
    RetryFailed(),
    ExcludeFromVoting(node=NodeName("es9")),
    ClearVotingExclusions(),
    Flush(),
    SetReplicas(index="posts", index_uuid="any", found=0, wanted=1),
    ForceMerge(index="posts", index_uuid="any", max_segments=5),
    RefreshIndex(index="posts", index_uuid="any"),
    SetIndexSettings(index="posts", index_uuid="any", found={}, wanted={"index.refresh_interval": "5s"}),
)
RECORD = LeaseRecord(epoch=1, run="r1", owner="ops@bastion", process="p", started="2026-11-01T00:00:00Z")


class Recorder:
    """Stands where the client does: keeps what would be sent, and answers with the leases that then stand."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        self.own_updates = OwnUpdates()
        self.stands = False

    def dialect_to_write(self) -> Dialect:
        return DIALECT

    def read(self, _: Request) -> Answer:
        return Answer(status=200, body={f"{PREFIX}1": lease_body(RECORD)} if self.stands else {})

    def write(self, request: Request) -> Answer:
        self.sent.append(request)
        self.stands = True
        return Answer(status=200, body={"acknowledged": True})


def lease_writes() -> tuple[Request, ...]:
    """What the lease sends from its taking to its release."""
    recorder = Recorder()
    lease = ElasticsearchLease(recorder)  # type: ignore[arg-type]  # of it three methods are used, and the count
    assert [lease.create(RECORD), lease.write(RECORD), lease.remove(1)] == [Done(), Done(), Done()]
    return tuple(recorder.sent)


def every_call() -> tuple[Request, ...]:
    """All that the program sends, in an order in which it also works."""
    # A merge that is begun as a task is refused by the task's result alone; the call for it is the same.
    answered = replace(DIALECT, merge_task=False)
    return (*READS.values(), *(request_for(verb, answered) for verb in VERBS), *lease_writes())


def test_every_read_and_every_verb_is_tried() -> None:
    made = {
        name
        for name, function in inspect.getmembers(calls, inspect.isfunction)
        if function.__module__ == calls.__name__
        and not name.startswith("_")
        and inspect.signature(function).return_annotation == "Request"
    }
    assert made == set(READS)
    assert {type(verb) for verb in VERBS} == set(get_args(IndexAction))


def refused(method: str, path: str, body: Any = None) -> Request:
    """Something that the program never sends."""
    return Request(method=method, path=path, body=body)


REFUSED = (
    refused("DELETE", "/posts"),
    refused("PUT", "/other"),
    refused("GET", "/posts/_search"),
    refused("PUT", "/posts/_doc/1", {"text": "no"}),
    refused("PUT", "/posts/_mapping", {"properties": {"a": {"type": "keyword"}}}),
    refused("POST", "/posts/_close"),
    refused("POST", "/other/_forcemerge"),
    refused("GET", "/other/_segments"),
    refused("PUT", "/_snapshot/mine", {"type": "fs", "settings": {"location": "/srv/snapshots"}}),
    refused("GET", "/_security/user"),
)
NEEDED_FOR = {
    "monitor": {
        "GET /_nodes/_local/http",
        "GET /_nodes/http",
        "GET /_nodes/settings",
        "GET /_nodes/process",
        "GET /_nodes/_local/stats/os",
        "GET /_cluster/state/master_node,nodes,metadata,routing_table,version,customs",
        "GET /_cluster/state/version,master_node,customs",
        "GET /_cluster/state/customs",
        "GET /_cluster/state/metadata/posts",
        "GET /_cluster/state/metadata",
        "GET /_cluster/state/nodes,metadata,routing_table/posts",
        "GET /_cluster/health",
        "GET /_cluster/settings",
        "GET /_nodes/_all/jvm,http,settings,plugins",
        "GET /_nodes/stats/fs",
        "GET /_nodes/stats/indices/store",
        "GET /_nodes/stats/thread_pool",
        "GET /_tasks",
        NO_TASK,
        LEASES,
    },
    "cluster:admin/repository/get": {"GET /_snapshot"},
    "cluster:admin/snapshot/get": {SNAPSHOTS},
    "cluster:admin/xpack/deprecation/info": set(),
    "cluster:admin/xpack/ml/upgrade_mode": set(),
    "cluster:admin/settings/update": {"PUT /_cluster/settings"},
    "cluster:admin/reroute": {"POST /_cluster/reroute"},
    "cluster:admin/voting_config/add_exclusions": {"POST /_cluster/voting_config_exclusions"},
    "cluster:admin/voting_config/clear_exclusions": {"DELETE /_cluster/voting_config_exclusions"},
    "indices:admin/template/put": {"PUT /_template/orchestrate-lease-1"},
    "indices:admin/template/delete": {"DELETE /_template/orchestrate-lease-1"},
    "indices:monitor/recovery": {"GET /_recovery"},
    "indices:admin/flush": {"POST /_flush"},
    "indices:admin/settings/update": {"PUT /posts/_settings"},
    "indices:monitor/segments": {"GET /posts/_segments"},
    "indices:monitor/stats": {"GET /posts/_stats/indexing,merge"},
    "indices:admin/forcemerge": {"POST /posts/_forcemerge"},
    "indices:admin/refresh": {"POST /posts/_refresh"},
}
"""What is refused when a line of the role is taken away."""


def shipped_role() -> dict[str, Any]:
    """The role as `roles.yml` has it."""
    role: dict[str, Any] = YAML(typ="safe").load(REFERENCE / "elasticsearch-role.yml")[ROLE]
    return role


def lines(role: dict[str, Any]) -> list[str]:
    """Every privilege in a role."""
    return [*role["cluster"], *(line for entry in role["indices"] for line in entry["privileges"])]


def without(role: dict[str, Any], taken: str) -> dict[str, Any]:
    """The role without one line."""
    return {
        "cluster": [line for line in role["cluster"] if line != taken],
        "indices": [
            {**entry, "privileges": [line for line in entry["privileges"] if line != taken]}
            for entry in role["indices"]
        ],
    }


def answers(cluster: HostCluster, user: str, requests: Sequence[Request]) -> dict[str, set[int]]:
    """The statuses of each call as a user; all users of a test share one password."""
    client = LabClient(replace(cluster.orchestrator, user=user))
    found: dict[str, set[int]] = {}
    try:
        for each in requests:
            answer = client.send(cluster.endpoints[0], each.method, each.target, each.body)
            found.setdefault(f"{each.method} {each.path}", set()).add(answer.status)
        return found
    finally:
        client.close()


def make_index(cluster: HostCluster) -> None:
    client = LabClient(cluster.admin)
    client.ask("PUT", "/posts", {"settings": {"number_of_shards": 2, "number_of_replicas": 1}})
    client.close()
    cluster.wait_ready(status="green")


@contextmanager
def further_users(cluster: HostCluster, roles: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Give every node further roles, each with a user of the role's name, while the context lasts."""
    text = io.StringIO()
    YAML().dump(json.loads(json.dumps(roles)), text)  # through JSON: shared lists would become YAML aliases
    before = {}
    for host in cluster.hosts:
        for file in ("roles.yml", "users", "users_roles"):
            before[host, file] = cluster.exec(host.name, "cat", f"/etc/node/{file}").stdout
    try:
        for (host, file), content in before.items():
            hashed = next(
                line.partition(":")[2]
                for line in before[host, "users"].split()
                if line.startswith(f"{ORCHESTRATOR}:")
            )
            added = {
                "roles.yml": text.getvalue(),
                "users": "".join(f"{name}:{hashed}\n" for name in roles),
                "users_roles": "".join(f"{name}:{name}\n" for name in roles),
            }
            write(host, file, content + added[file])
        assert wait_until(lambda: known(cluster, list(roles)), seconds=RELOAD_SECONDS)
        yield
    finally:
        for (host, file), content in before.items():
            write(host, file, content)


def write(host: LabHost, file: str, content: str) -> None:
    run(("docker", "exec", "-i", host.container, "tee", f"/etc/node/{file}"), stdin=content)


def known(cluster: HostCluster, users: list[str]) -> bool:
    """Whether every node knows these users and what they may do."""
    for user in users:
        client = LabClient(replace(cluster.orchestrator, user=user))
        try:
            for endpoint in cluster.endpoints:
                answer = client.send(endpoint, "GET", "/_security/user/_privileges")
                if not answer.ok or not answer.body["cluster"]:
                    return False
        finally:
            client.close()
    return True


@pytest.mark.parametrize("flavour", SECURED)
def test_the_shipped_role_allows_every_call_and_no_harm(
    host_cluster: HostClusterFactory, flavour: str
) -> None:
    cluster = host_cluster(flavour)
    make_index(cluster)
    allowed = answers(cluster, ORCHESTRATOR, every_call())
    absent = {call for call, statuses in allowed.items() if statuses & NO_HANDLER}
    assert absent == NOT_IN_THESE_ARCHIVES
    others = {call: statuses for call, statuses in allowed.items() if call not in absent}
    assert {call: statuses for call, statuses in others.items() if not statuses <= {200, 404}} == {}
    none_stands_yet = {LEASES, NO_TASK, SNAPSHOTS}
    assert {call for call, statuses in others.items() if 404 in statuses} <= none_stands_yet
    harm = answers(cluster, ORCHESTRATOR, REFUSED)
    assert {call: statuses for call, statuses in harm.items() if statuses != {FORBIDDEN}} == {}


@pytest.mark.exhaustive  # that it is enough and no harm is for every change; that it is least, for a release
def test_every_line_of_the_shipped_role_is_needed(host_cluster: HostClusterFactory) -> None:
    cluster = host_cluster("9.1.0")
    make_index(cluster)
    role = shipped_role()
    variants = {f"without-{number}": without(role, line) for number, line in enumerate(lines(role))}
    denied = {}
    with further_users(cluster, variants):
        for user, line in zip(variants, lines(role), strict=True):
            found = answers(cluster, user, every_call())
            denied[line] = {call for call, statuses in found.items() if FORBIDDEN in statuses}
            clear_lease(cluster)
    assert denied.keys() == NEEDED_FOR.keys()
    wrong = {line: found ^ NEEDED_FOR[line] for line, found in denied.items() if found != NEEDED_FOR[line]}
    assert wrong == {}


def clear_lease(cluster: HostCluster) -> None:
    """Remove the template that a user without the right to do so left."""
    client = LabClient(cluster.admin)
    client.ask("DELETE", "/_template/orchestrate-lease-*", accept=(404,))
    client.ask("DELETE", "/_cluster/voting_config_exclusions?wait_for_removal=false")
    client.close()


def test_both_forms_of_the_role_say_the_same() -> None:
    text = (REFERENCE / "elasticsearch-role.json").read_text(encoding="utf-8")
    assert json.loads(text) == shipped_role()
