"""The shipped role: every call that the program makes is allowed by it, and each of its lines is needed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from orchestrator.lab.client import LabClient
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
RELOAD_SECONDS = 60.0
"""Nodes look at their role and user files every 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    method: str
    path: str
    body: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"


LEASE = {"index_patterns": ["orchestrate-lease-none-*"], "_meta": {"run": "r1"}}
CALLS = (
    Call(method="GET", path="/_cluster/state/master_node,nodes,metadata,routing_table,version,customs"),
    Call(method="GET", path="/_cluster/state/metadata/posts"),
    Call(method="GET", path="/_cluster/health?wait_for_events=languid&timeout=1s"),
    Call(method="GET", path="/_cluster/settings?flat_settings=true&include_defaults=true"),
    Call(
        method="PUT",
        path="/_cluster/settings",
        body={"persistent": {"cluster.routing.allocation.enable": None}, "transient": {}},
    ),
    Call(method="GET", path="/_nodes/_all/jvm,http"),
    Call(method="GET", path="/_nodes/stats/fs"),
    Call(method="GET", path="/_tasks?detailed=true&actions=*forcemerge*,*reindex*"),
    Call(method="GET", path="/_recovery?active_only=true"),
    Call(method="POST", path="/_cluster/reroute?retry_failed=true&metric=none"),
    Call(method="POST", path="/_cluster/voting_config_exclusions?node_names=es9"),
    Call(method="DELETE", path="/_cluster/voting_config_exclusions?wait_for_removal=false"),
    Call(method="POST", path="/_flush"),
    Call(method="PUT", path="/_index_template/orchestrate-lease-1?create=true", body=LEASE),
    Call(method="GET", path="/_index_template/orchestrate-lease-*"),
    Call(method="DELETE", path="/_index_template/orchestrate-lease-1"),
    Call(method="PUT", path="/posts/_settings", body={"index": {"number_of_replicas": 1}}),
)
"""What `orchestrator.stores.elasticsearch` sends, in an order in which it also works."""
REFUSED = (
    Call(method="DELETE", path="/posts"),
    Call(method="PUT", path="/other"),
    Call(method="GET", path="/posts/_search"),
    Call(method="PUT", path="/posts/_doc/1", body={"text": "no"}),
    Call(method="PUT", path="/posts/_mapping", body={"properties": {"a": {"type": "keyword"}}}),
    Call(method="POST", path="/posts/_close"),
    Call(
        method="PUT", path="/_snapshot/mine", body={"type": "fs", "settings": {"location": "/srv/snapshots"}}
    ),
    Call(method="GET", path="/_security/user"),
)
NEEDED_FOR = {
    "monitor": {
        "GET /_cluster/state/master_node,nodes,metadata,routing_table,version,customs",
        "GET /_cluster/state/metadata/posts",
        "GET /_cluster/health",
        "GET /_cluster/settings",
        "GET /_nodes/_all/jvm,http",
        "GET /_nodes/stats/fs",
        "GET /_tasks",
        "GET /_index_template/orchestrate-lease-*",
    },
    "cluster:admin/settings/update": {"PUT /_cluster/settings"},
    "cluster:admin/reroute": {"POST /_cluster/reroute"},
    "cluster:admin/voting_config/add_exclusions": {"POST /_cluster/voting_config_exclusions"},
    "cluster:admin/voting_config/clear_exclusions": {"DELETE /_cluster/voting_config_exclusions"},
    "indices:admin/index_template/put": {"PUT /_index_template/orchestrate-lease-1"},
    "indices:admin/index_template/delete": {"DELETE /_index_template/orchestrate-lease-1"},
    "indices:monitor/recovery": {"GET /_recovery"},
    "indices:admin/flush": {"POST /_flush"},
    "indices:admin/settings/update": {"PUT /posts/_settings"},
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


def answers(cluster: HostCluster, user: str, calls: tuple[Call, ...]) -> dict[str, int]:
    """The status of each call as a user; all users of a test share one password."""
    client = LabClient(replace(cluster.orchestrator, user=user))
    try:
        return {
            str(call): client.send(cluster.endpoints[0], call.method, call.path, call.body).status
            for call in calls
        }
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
    allowed = answers(cluster, ORCHESTRATOR, CALLS)
    assert {call: status for call, status in allowed.items() if status != 200} == {}
    refused = answers(cluster, ORCHESTRATOR, REFUSED)
    assert {call: status for call, status in refused.items() if status != FORBIDDEN} == {}


def test_every_line_of_the_shipped_role_is_needed(host_cluster: HostClusterFactory) -> None:
    cluster = host_cluster("9.1.0")
    make_index(cluster)
    role = shipped_role()
    variants = {f"without-{number}": without(role, line) for number, line in enumerate(lines(role))}
    denied = {}
    with further_users(cluster, variants):
        for user, line in zip(variants, lines(role), strict=True):
            found = answers(cluster, user, CALLS)
            denied[line] = {call for call, status in found.items() if status == FORBIDDEN}
            clear_lease(cluster)
    assert denied == NEEDED_FOR


def clear_lease(cluster: HostCluster) -> None:
    """Remove the template that a user without the right to do so left."""
    client = LabClient(cluster.admin)
    client.ask("DELETE", "/_index_template/orchestrate-lease-*", accept=(404,))
    client.ask("DELETE", "/_cluster/voting_config_exclusions?wait_for_removal=false")
    client.close()


def test_both_forms_of_the_role_say_the_same() -> None:
    text = (REFERENCE / "elasticsearch-role.json").read_text(encoding="utf-8")
    assert json.loads(text) == shipped_role()
