"""The shipped roles: each allows every call of the program, needs each line, and allows nothing unsaid."""

from __future__ import annotations

import inspect
import io
import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from ruamel.yaml import YAML

from orchestrator.elasticsearch import calls
from orchestrator.elasticsearch.access import RequestLimits
from orchestrator.elasticsearch.act import request_for
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.dialect import Dialect, dialect_for
from orchestrator.elasticsearch.eras import merge_ends_the_call
from orchestrator.elasticsearch.lease import PREFIX, ElasticsearchLease
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
from tests.fakes.template_cluster import TemplateClient, TemplateCluster
from tests.integration.fixtures_processes import ProcessCluster
from tests.integration.hostlab.hosts import wait_until
from tests.lab.client import Access, LabClient
from tests.lab.distributions import Distribution, Product, cache_folder, install
from tests.lab.java import find_java
from tests.lab.launch import java_command
from tests.lab.layout import LOOPBACK, THREE_ZONES, account, free_ports, give_away, share_home
from tests.lab.security import LabUser, Security, write_security

LIMITS = RequestLimits()


def reads(dialect: Dialect) -> Mapping[str, HttpRequest]:
    """Each read of `calls`, by its name."""
    return {
        "identity": calls.identity(),
        "members": calls.members(),
        "own_names": calls.own_names(),
        "processes": calls.processes(),
        "state": calls.state(LIMITS, with_snapshots=True),
        "state_uuid": calls.state_uuid(LIMITS, with_snapshots=True),
        "snapshots": calls.snapshots(LIMITS),
        "index_uuids": calls.index_uuids(LIMITS, ["posts"]),
        "names": calls.names(LIMITS),
        "bulk_state": calls.bulk_state(LIMITS, ["posts"]),
        "segments": calls.segments(["posts"]),
        "writes": calls.writes(["posts"]),
        "lives": calls.lives(["_all"]),
        "settings": calls.settings(LIMITS),
        "levels": calls.levels(LIMITS),
        "health": calls.health(),
        "recoveries": calls.recoveries(active_only=True),
        "tasks": calls.tasks(),
        "task": calls.task("none:1", patience=1.0),
        "disks": calls.disks(),
        "stored": calls.stored(),
        "data_paths": calls.data_paths(),
        "memory": calls.memory(["_local"]),
        "leases": calls.leases(dialect.lease_forms[0], PREFIX, 10.0, present=True),
        "leases_at_once": calls.leases_at_once(LIMITS, PREFIX),
        "creations": calls.creations(LIMITS),
        "node_settings": calls.node_settings(),
        "repositories": calls.repositories(LIMITS),
        "finished_snapshots": calls.finished_snapshots(LIMITS, "none"),
        "deprecations": calls.deprecations(),
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


def lease_calls(dialect: Dialect) -> tuple[HttpRequest, ...]:
    """What the lease sends from its taking to its release, once each, its reads first."""
    cluster = TemplateCluster()
    client: Any = TemplateClient(cluster.serve, dialect)
    lease = ElasticsearchLease(client)
    assert [lease.create(RECORD), lease.write(RECORD), lease.remove(1)] == [Done(), Done(), Done()]
    once = {str(each): each for each in cluster.sent}
    return tuple(sorted(once.values(), key=lambda each: each.method != "GET"))


def every_call(dialect: Dialect) -> tuple[HttpRequest, ...]:
    """All that the program sends, in an order in which it also works."""
    every = (*reads(dialect).values(), *map(request_for, VERBS))
    sent = [each for each in map(dialect.spelled, every) if each.instead is None]
    # A merge that is begun as a task is refused by the task's result alone; the call for it is the same.
    sent = [merge_ends_the_call(each) if each.path.endswith("/_forcemerge") else each for each in sent]
    if dialect.spelled(calls.ml_info()).instead is not None:
        sent = [each for each in sent if each.path != "/_ml/set_upgrade_mode"]
    return (*sent, *lease_calls(dialect))


DISTRIBUTION = Distribution(product=Product.OPENSEARCH, version="2.19.1", java_minimum=17, java_maximum=23)
PLUGIN = "org.opensearch.plugin:opensearch-security:2.19.1.0:zip"
ADMIN, NODE = "lab", "os1"
PASSWORD = "lab-password"  # noqa: S105  (dies with the node)
_HASH = "$2b$04$abcdefghijklmnopqrstuuRmh8HtELSGLRIbn8Tav9ZLLfCC8wwMW"
"""Of that password, as the plugin keeps it."""
START_SECONDS = 120.0


@contextmanager
def secured_opensearch(roles: Mapping[str, Any]) -> Iterator[Access]:
    """A node with these roles, each with a user of its name.

    Yields:
        The administrator's access; every user has the same password.
    """
    with tempfile.TemporaryDirectory(prefix="orchestrator-lab-") as folder:
        Path(folder).chmod(0o755)  # another user runs the server
        with _running(Path(folder), roles) as access:
            yield access


@contextmanager
def _running(folder: Path, roles: Mapping[str, Any]) -> Iterator[Access]:
    home, node, (ports,) = _unpacked(folder), folder / NODE, free_ports(1)
    for inner in ("data", "logs", "tmp", "snapshots"):
        (node / inner).mkdir(parents=True)
    shutil.copytree(home / "config", node / "config")
    shutil.copytree(
        home / "plugins/opensearch-security/config", node / "config/opensearch-security", dirs_exist_ok=True
    )
    users = Security(users=(LabUser(name=ADMIN, password=PASSWORD),))
    write_security(users, ca=folder / "ca.crt", configs=[node / "config"])
    _write_users(node / "config/opensearch-security", roles)
    _write_settings(node, ports.http, ports.transport)
    give_away(folder, account())
    java = find_java(DISTRIBUTION).path
    access = Access(
        endpoints=(f"https://{LOOPBACK}:{ports.http}",),
        user=ADMIN,
        password=PASSWORD,
        ca=str(folder / "ca.crt"),
    )
    with (node / "logs/output").open("w") as output:
        process = subprocess.Popen(  # noqa: S603  (the server under test)
            java_command(DISTRIBUTION, home=home, java=java, folder=node, heap_mb=512),
            cwd=home,
            user=account().uid,
            group=account().gid,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        started = wait_until(lambda: process.poll() is not None or _answers(access), seconds=START_SECONDS)
        assert started, (node / "logs/output").read_text()[-2000:]
        assert process.poll() is None, (node / "logs/output").read_text()[-2000:]
        yield access
    finally:
        process.terminate()
        process.wait(30)


def _answers(access: Access) -> bool:
    client = LabClient(access)
    try:
        return client.send(access.endpoints[0], "GET", "/_cluster/health").ok
    except OSError:
        return False
    except Exception as error:  # noqa: BLE001  (urllib3 has many)
        return "urllib3" not in type(error).__module__
    finally:
        client.close()


def _unpacked(folder: Path) -> Path:
    """The server with the plugin in it, in this folder."""
    cache = cache_folder()
    home = install(DISTRIBUTION, cache=cache, progress=print)
    archive = cache / "archives/opensearch-security-2.19.1.0.zip"
    if not archive.is_file():
        command = (
            "mvn",
            "-q",
            "-B",
            "dependency:copy",
            f"-Dartifact={PLUGIN}",
            f"-DoutputDirectory={archive.parent}",
        )
        subprocess.run(command, check=True, capture_output=True, timeout=600)  # noqa: S603  (a fixed command)
    shared = share_home(home, folder / DISTRIBUTION.name, account())
    with zipfile.ZipFile(archive) as content:
        content.extractall(shared / "plugins/opensearch-security")
    return shared


def _write_users(folder: Path, roles: Mapping[str, Any]) -> None:
    """The plugin's files, with which it makes its index."""
    for file, kind, content in (
        ("internal_users.yml", "internalusers", {name: {"hash": _HASH} for name in (ADMIN, *roles)}),
        ("roles.yml", "roles", dict(roles)),
        (
            "roles_mapping.yml",
            "rolesmapping",
            {"all_access": {"users": [ADMIN]}, **{name: {"users": [name]} for name in roles}},
        ),
    ):
        meta = {"type": kind, "config_version": 2}
        (folder / file).write_text(json.dumps({"_meta": meta, **content}), encoding="utf-8")


def _write_settings(node: Path, http: int, transport: int) -> None:
    layers = {
        f"plugins.security.ssl.{layer}.{key}": value
        for layer in ("http", "transport")
        for key, value in (
            ("pemcert_filepath", "node.crt"),
            ("pemkey_filepath", "node.key"),
            ("pemtrustedcas_filepath", "ca.crt"),
        )
    }
    settings = {
        "cluster.name": "lab",
        "node.name": NODE,
        "path.data": str(node / "data"),
        "path.logs": str(node / "logs"),
        "path.repo": str(node / "snapshots"),
        "network.host": LOOPBACK,
        "http.port": http,
        "transport.port": transport,
        "discovery.type": "single-node",
        "cluster.routing.allocation.disk.threshold_enabled": False,
        "plugins.security.ssl.http.enabled": True,
        "plugins.security.ssl.transport.enforce_hostname_verification": False,
        "plugins.security.allow_default_init_securityindex": True,
        "plugins.security.nodes_dn": ["CN=orchestrator lab node"],
        **layers,
    }
    lines = (f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
    (node / "config/opensearch.yml").write_text("".join(lines), encoding="utf-8")


pytestmark = [pytest.mark.timeout(900), pytest.mark.part(name="nodes")]

REFERENCE = Path(__file__).parents[2] / "docs/reference"
PAGE = Path(__file__).parents[2] / "docs/how-to/least-rights.md"
POWERS = Path(__file__).parents[1] / "data/roles/powers.yml"
DONE, FORBIDDEN = 200, 403
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
    """A secured node that runs, with a user for each role."""

    send: Callable[[str, str, str, Any], int]  # user, method, path and body; the status of the answer

    def statuses(self, user: str, requests: Sequence[HttpRequest]) -> dict[str, set[int]]:
        """The statuses of each call as a user."""
        found: dict[str, set[int]] = {}
        for each in requests:
            status = self.send(user, each.method, each.target, each.body)
            found.setdefault(f"{each.method} {each.path}", set()).add(status)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A product, with its shipped role."""

    dialect: Dialect
    file: str
    entries: tuple[str, str, str]
    needed: Mapping[str, set[str]]
    node: str  # the name of its node
    absent: frozenset[str]  # calls of the program that the archive has no part for

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
        node=THREE_ZONES[0].name,
        absent=frozenset(NOT_IN_THESE_ARCHIVES),
    )


KINDS = {
    "9.1.0": _elasticsearch("9.1.0"),
    "8.19.0": _elasticsearch("8.19.0"),
    "opensearch": Kind(
        dialect=dialect_for("opensearch", DISTRIBUTION.version),
        file="opensearch-role.yml",
        entries=("cluster_permissions", "index_permissions", "allowed_actions"),
        needed=NEEDED_ON_OPENSEARCH,
        node=NODE,
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
            access = opened.enter_context(secured_opensearch(roles))
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
            with closing(LabClient(replace(access, user=user))) as client:
                return client.send(access.endpoints[0], method, path, body).status

        return Server(send=send)

    with opened:
        yield begin


def test_every_read_and_every_verb_is_tried() -> None:
    """A function that is given its path makes requests for the others."""
    signatures = {
        name: inspect.signature(function)
        for name, function in inspect.getmembers(calls, inspect.isfunction)
        if function.__module__ == calls.__name__ and not name.startswith("_")
    }
    made = {
        name
        for name, signature in signatures.items()
        if signature.return_annotation == "HttpRequest" and "path" not in signature.parameters
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


OTHERS = (
    ("PUT", "/_template/theirs", {"index_patterns": ["theirs*"]}),
    ("PUT", "/_component_template/theirs", {"template": {"settings": {"number_of_replicas": 0}}}),
    ("PUT", "/_component_template/unused", {"template": {"settings": {"number_of_replicas": 0}}}),
    (
        "PUT",
        "/_index_template/theirs",
        {"index_patterns": ["new*"], "composed_of": ["theirs"], "priority": 200, "template": {}},
    ),
    ("PUT", "/posts", {"settings": {"number_of_replicas": 0}}),
    ("PUT", "/secret", {"settings": {"number_of_replicas": 0}}),
    ("PUT", "/secret/_doc/1?refresh=true", {"a": "classified"}),
    ("PUT", "/_snapshot/mine", {"type": "fs", "settings": {"location": "mine"}}),
    ("PUT", "/_snapshot/mine/s1?wait_for_completion=true", {"indices": "secret"}),
)
"""What others have in the cluster."""


@pytest.mark.parametrize("name", EVERY_KIND)
def test_what_else_the_shipped_role_allows_is_on_the_page(start: Start, name: str) -> None:
    kind = KINDS[name]
    server = start(name, {"orchestrator": kind.role()})
    for method, path, body in OTHERS:
        assert server.send(ADMIN, method, path, body) in (200, 201), (method, path)
    product = "OpenSearch" if name == "opensearch" else "Elasticsearch"
    table = YAML(typ="safe").load(POWERS)
    allowed = set()
    mine = [of for of in table if of.partition(" on ")[2] in ("", product)]
    for does, method, path, body in (row for of in mine for row in table[of]):
        if "/_cluster/reroute" in path:
            body["commands"][0]["cancel"]["node"] = kind.node
        status = server.send("orchestrator", method, path, body)
        if status != FORBIDDEN:
            allowed.add(does)
        if path == "/_cluster/settings" and status == DONE:
            undone = {"persistent": dict.fromkeys(body["persistent"])}
            assert server.send(ADMIN, method, path, undone) == DONE, does
    assert allowed == {row[0] for of in ("allowed", f"allowed on {product}") for row in table.get(of, ())}
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
