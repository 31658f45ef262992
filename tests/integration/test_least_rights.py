"""The shipped roles: each allows every call of the program, needs each line, and allows nothing unsaid."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from ruamel.yaml import YAML

from orchestrator.model.action import IndexAction
from orchestrator.stores.elasticsearch import calls
from orchestrator.stores.elasticsearch.dialect import Dialect, dialect_for
from orchestrator.stores.elasticsearch.request import Request
from tests.integration import secured_opensearch
from tests.integration.every_call import VERBS, every_call, reads
from tests.integration.fixtures_processes import ProcessCluster
from tests.integration.powers import DONE, ELASTICSEARCH, FORBIDDEN, OPENSEARCH, Power, outcomes, prepare
from tests.lab.client import LabClient
from tests.lab.layout import THREE_ZONES
from tests.lab.security import LabUser, Security

pytestmark = [pytest.mark.timeout(900), pytest.mark.part(name="nodes")]

REFERENCE = Path(__file__).parents[2] / "docs/reference"
PAGE = Path(__file__).parents[2] / "docs/how-to/least-rights.md"
ADMIN = secured_opensearch.ADMIN
PASSWORD = secured_opensearch.PASSWORD
NO_HANDLER = {400, 405}
"""What a server says to a path that it does not know."""
NO_TASK = "GET /_tasks/none%3A1"
LEASES = "GET /_component_template/orchestrate-lease-*"
LEGACY_LEASES = "GET /_template/orchestrate-lease-*"
LEASE = "/_component_template/orchestrate-lease-1"
SNAPSHOTS = "GET /_snapshot/none/_all"
NOT_IN_THESE_ARCHIVES = {"GET /_migration/deprecations", "GET /_ml/info", "POST /_ml/set_upgrade_mode"}
"""Parts of X-Pack that the servers of these tests lack, so nothing shows that their lines are needed."""
READ = {
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
}
BOTH: Mapping[str, set[str]] = {
    "cluster:admin/repository/get": {"GET /_snapshot"},
    "cluster:admin/snapshot/get": {SNAPSHOTS},
    "cluster:admin/settings/update": {"PUT /_cluster/settings"},
    "cluster:admin/reroute": {"POST /_cluster/reroute"},
    "cluster:admin/voting_config/add_exclusions": {"POST /_cluster/voting_config_exclusions"},
    "cluster:admin/voting_config/clear_exclusions": {"DELETE /_cluster/voting_config_exclusions"},
    "cluster:admin/component_template/put": {f"PUT {LEASE}"},
    "cluster:admin/component_template/delete": {f"DELETE {LEASE}"},
    "indices:monitor/recovery": {"GET /_recovery"},
    "indices:monitor/segments": {"GET /posts/_segments"},
    "indices:monitor/stats": {"GET /posts/_stats/indexing,merge"},
    "indices:admin/forcemerge": {"POST /posts/_forcemerge"},
    "indices:admin/settings/update": {"PUT /posts/_settings"},
}
NEEDED_ON_ELASTICSEARCH = {
    **BOTH,
    "monitor": READ | {LEASES, LEGACY_LEASES},
    "cluster:admin/xpack/deprecation/info": set(),
    "cluster:admin/xpack/ml/upgrade_mode": set(),
    "indices:admin/flush": {"POST /_flush"},
    "indices:admin/refresh": {"POST /posts/_refresh"},
}
"""What is refused when a line of the role is taken away."""
NEEDED_ON_OPENSEARCH = {
    **BOTH,
    "cluster:monitor/*": READ,
    "cluster:admin/component_template/get": {LEASES},
    "indices:admin/template/get": {LEGACY_LEASES},
    "indices:admin/flush*": {"POST /_flush"},
    "indices:admin/refresh*": {"POST /posts/_refresh"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A secured node that runs, with a user for each role.

    Attributes:
        send: user, method, path and body; the status of the answer.
    """

    send: Callable[[str, str, str, Any], int]

    def statuses(self, user: str, requests: Sequence[Request]) -> dict[str, set[int]]:
        """The statuses of each call as a user."""
        found: dict[str, set[int]] = {}
        for each in requests:
            status = self.send(user, each.method, each.target, each.body)
            found.setdefault(f"{each.method} {each.path}", set()).add(status)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A product, with its shipped role.

    Attributes:
        powers: what is tried with it; `node` is the name of its node.
        absent: calls of the program that the archive has no part for.
    """

    dialect: Dialect
    file: str
    entries: tuple[str, str, str]
    needed: Mapping[str, set[str]]
    powers: tuple[Power, ...]
    node: str
    absent: frozenset[str]

    def role(self) -> dict[str, Any]:
        """The role as `roles.yml` has it."""
        role: dict[str, Any] = YAML(typ="safe").load(REFERENCE / self.file)["orchestrator"]
        return role

    def lines(self) -> list[str]:
        """Every privilege in the role."""
        cluster, indices, privileges = self.entries
        role = self.role()
        return [*role[cluster], *(line for entry in role[indices] for line in entry[privileges])]

    def without(self, taken: str) -> dict[str, Any]:
        """The role without one line."""
        cluster, indices, privileges = self.entries
        role = self.role()
        left = [
            {**entry, privileges: [line for line in entry[privileges] if line != taken]}
            for entry in role[indices]
        ]
        return {cluster: [line for line in role[cluster] if line != taken], indices: left}


def _elasticsearch(version: str) -> Kind:
    return Kind(
        dialect=dialect_for("elasticsearch", version),
        file="elasticsearch-role.yml",
        entries=("cluster", "indices", "privileges"),
        needed=NEEDED_ON_ELASTICSEARCH,
        powers=ELASTICSEARCH,
        node=THREE_ZONES[0].name,
        absent=frozenset(NOT_IN_THESE_ARCHIVES),
    )


KINDS = {
    "9.1.0": _elasticsearch("9.1.0"),
    "8.19.0": _elasticsearch("8.19.0"),
    "opensearch": Kind(
        dialect=dialect_for("opensearch", secured_opensearch.DISTRIBUTION.version),
        file="opensearch-role.yml",
        entries=("cluster_permissions", "index_permissions", "allowed_actions"),
        needed=NEEDED_ON_OPENSEARCH,
        powers=OPENSEARCH,
        node=secured_opensearch.NODE,
        absent=frozenset(),
    ),
}
EVERY_KIND = (
    pytest.param("9.1.0", marks=pytest.mark.real),
    pytest.param("8.19.0", marks=pytest.mark.real),
    pytest.param("opensearch", marks=pytest.mark.real),
)
Start = Callable[[str, Mapping[str, Any]], Server]


@pytest.fixture
def start(process_cluster: ProcessCluster) -> Iterator[Start]:
    """Starts a secured node with roles, each with a user of its name."""
    opened = ExitStack()

    def begin(kind: str, roles: Mapping[str, Any]) -> Server:
        if kind == "opensearch":
            access = opened.enter_context(secured_opensearch.secured_opensearch(roles))
        else:
            text = io.StringIO()
            YAML().dump(
                json.loads(json.dumps(roles)), text
            )  # through JSON: shared lists would become aliases
            users = (
                LabUser(name=ADMIN, password=PASSWORD),
                *(LabUser(name=name, password=PASSWORD, roles=(name,)) for name in roles),
            )
            security = Security(users=users, roles_yml=text.getvalue())
            access = process_cluster(kind, nodes=THREE_ZONES[:1], security=security, anew=True).access

        def send(user: str, method: str, path: str, body: Any) -> int:
            client = LabClient(replace(access, user=user))
            try:
                return client.send(access.endpoints[0], method, path, body).status
            finally:
                client.close()

        return Server(send=send)

    with opened:
        yield begin


def test_every_read_and_every_verb_is_tried() -> None:
    made = {
        name
        for name, function in inspect.getmembers(calls, inspect.isfunction)
        if function.__module__ == calls.__name__
        and not name.startswith("_")
        and inspect.signature(function).return_annotation == "Request"
    }
    assert made == set(reads(KINDS["9.1.0"].dialect))
    assert {type(verb) for verb in VERBS} == set(get_args(IndexAction))


@pytest.mark.parametrize("name", EVERY_KIND)
def test_the_shipped_role_allows_every_call(start: Start, name: str) -> None:
    kind = KINDS[name]
    server = start(name, {"orchestrator": kind.role()})
    server.send(ADMIN, "PUT", "/posts", {"settings": {"number_of_shards": 2, "number_of_replicas": 0}})
    allowed = server.statuses("orchestrator", every_call(kind.dialect))
    absent = {call for call, statuses in allowed.items() if statuses & NO_HANDLER}
    assert absent == kind.absent
    others = {call: statuses for call, statuses in allowed.items() if call not in absent}
    assert {call: statuses for call, statuses in others.items() if not statuses <= {200, 404}} == {}
    none_yet = {LEASES, LEGACY_LEASES, NO_TASK, SNAPSHOTS}
    assert {call for call, statuses in others.items() if 404 in statuses} <= none_yet


@pytest.mark.parametrize("name", EVERY_KIND)
def test_every_line_of_the_shipped_role_is_needed(start: Start, name: str) -> None:
    kind = KINDS[name]
    variants = {f"without-{number}": kind.without(line) for number, line in enumerate(kind.lines())}
    server = start(name, variants)
    server.send(ADMIN, "PUT", "/posts", {"settings": {"number_of_replicas": 0}})
    denied = {}
    for user, line in zip(variants, kind.lines(), strict=True):
        found = server.statuses(user, every_call(kind.dialect))
        denied[line] = {call for call, statuses in found.items() if FORBIDDEN in statuses}
        server.send(ADMIN, "DELETE", LEASE, None)
        server.send(ADMIN, "DELETE", "/_cluster/voting_config_exclusions?wait_for_removal=false", None)
    assert denied.keys() == kind.needed.keys()
    wrong = {line: found ^ kind.needed[line] for line, found in denied.items() if found != kind.needed[line]}
    assert wrong == {}


@pytest.mark.parametrize("name", EVERY_KIND)
def test_what_else_the_shipped_role_allows_is_on_the_page(start: Start, name: str) -> None:
    kind = KINDS[name]
    server = start(name, {"orchestrator": kind.role()})
    prepare(server.send, ADMIN)
    found = outcomes(server.send, "orchestrator", ADMIN, kind.powers, kind.node)
    allowed = {does for does, status in found.items() if status != FORBIDDEN}
    assert allowed == {each.does for each in kind.powers if each.allowed}
    assert server.send(ADMIN, "PUT", "/new-1", None) == DONE, "by others: it gets a block and an alias"
    blocked = server.send(ADMIN, "PUT", "/new-1/_doc/1", {"a": 1})
    through = server.send("orchestrator", "PUT", "/posts-by-template/_settings", {"index.priority": 1})
    assert (blocked, through) == (FORBIDDEN, DONE)
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert [does for does in allowed if does not in page] == []


def test_both_forms_of_a_role_say_the_same() -> None:
    for name in ("elasticsearch-role", "elasticsearch-role-add-replica"):
        text = (REFERENCE / f"{name}.json").read_text(encoding="utf-8")
        (role,) = YAML(typ="safe").load(REFERENCE / f"{name}.yml").values()
        assert json.loads(text) == role
