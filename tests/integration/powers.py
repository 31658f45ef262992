"""What an account could do to a cluster besides what the program does: requests to try under a role.

The page least-rights.md names those that are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Ask = Callable[[str, str, str, Any], int]
"""User, method, path and body; the status of the answer."""
DONE, FORBIDDEN = 200, 403
TEMPLATES = "/_component_template/theirs"
THEIRS = {"template": {"settings": {"number_of_replicas": 0}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """One request, and what it would do.

    Attributes:
        allowed: whether the shipped role allows it; the page says each of these.
    """

    does: str
    method: str
    path: str
    body: Any = None
    allowed: bool = False


def setting(key: str, value: Any, does: str) -> Power:
    """A cluster-wide setting."""
    return Power(
        does=does, method="PUT", path="/_cluster/settings", body={"persistent": {key: value}}, allowed=True
    )


def index_setting(index: str, key: str, value: Any, does: str) -> Power:
    """A setting of one index."""
    return Power(
        does=does, method="PUT", path=f"/{index}/_settings", body={key: value}, allowed=index == "posts"
    )


COMMON = (
    Power(does="read a document", method="GET", path="/secret/_search"),
    Power(does="write a document", method="PUT", path="/secret/_doc/2", body={"a": 1}),
    Power(does="read a document of a named index", method="GET", path="/posts/_search"),
    Power(does="write a document of a named index", method="PUT", path="/posts/_doc/2", body={"a": 1}),
    Power(does="delete an index", method="DELETE", path="/secret"),
    Power(does="create an index", method="PUT", path="/created"),
    Power(does="close an index", method="POST", path="/secret/_close"),
    Power(does="close a named index", method="POST", path="/posts/_close"),
    Power(
        does="change a mapping",
        method="PUT",
        path="/secret/_mapping",
        body={"properties": {"x": {"type": "keyword"}}},
    ),
    Power(
        does="add an alias",
        method="POST",
        path="/_aliases",
        body={"actions": [{"add": {"index": "secret", "alias": "posts-x"}}]},
    ),
    Power(
        does="write a legacy template",
        method="PUT",
        path="/_template/zz",
        body={"index_patterns": ["old*"], "order": 9, "settings": {"index.blocks.write": True}},
    ),
    Power(does="delete a legacy template", method="DELETE", path="/_template/theirs"),
    Power(
        does="write an index template",
        method="PUT",
        path="/_index_template/zz",
        body={"index_patterns": ["new*"], "template": {}},
    ),
    Power(does="delete an index template", method="DELETE", path="/_index_template/theirs"),
    index_setting("secret", "index.blocks.write", True, "set a write block on an index"),
    index_setting("secret", "index.default_pipeline", "p", "set the default pipeline of an index"),
    index_setting("posts", "index.default_pipeline", "_none", "set the default pipeline of a named index"),
    index_setting("posts", "index.blocks.write", False, "set a write block on a named index"),
    Power(does="merge an index", method="POST", path="/secret/_forcemerge"),
    Power(does="write an ingest pipeline", method="PUT", path="/_ingest/pipeline/p", body={"processors": []}),
    Power(
        does="write a stored script",
        method="PUT",
        path="/_scripts/s",
        body={"script": {"lang": "mustache", "source": "x"}},
    ),
    Power(
        does="register a repository",
        method="PUT",
        path="/_snapshot/yours",
        body={"type": "fs", "settings": {"location": "yours"}},
    ),
    Power(does="make a snapshot", method="PUT", path="/_snapshot/mine/s2"),
    Power(does="delete a snapshot", method="DELETE", path="/_snapshot/mine/s1"),
    Power(does="restore a snapshot", method="POST", path="/_snapshot/mine/s1/_restore"),
    Power(does="cancel a task", method="POST", path="/_tasks/none:1/_cancel"),
    # From here on the right is one that the program needs.
    setting("cluster.blocks.read_only", True, "block all writes of the cluster"),
    setting("cluster.max_shards_per_node", 1, "forbid new shards"),
    setting("cluster.routing.allocation.exclude._name", "none", "drain a node"),
    setting("cluster.remote.evil.seeds", ["127.0.0.1:9999"], "connect the cluster to another one"),
    setting("logger.org.none", "TRACE", "log more, request bodies with documents too"),
    setting("action.destructive_requires_name", False, "allow others to delete indices by pattern"),
    setting("indices.breaker.total.limit", "50%", "have requests of others refused for memory"),
    setting("search.default_search_timeout", "1ms", "cut off searches of others"),
    Power(
        allowed=True,
        does="write a component template of others, with settings, mappings and aliases of new indices",
        method="PUT",
        path=TEMPLATES,
        body={"template": {"settings": {"index.blocks.write": True}, "aliases": {"posts-by-template": {}}}},
    ),
    Power(
        allowed=True,
        does="delete a component template that no template names",
        method="DELETE",
        path="/_component_template/unused",
    ),
    Power(
        allowed=True,
        does="cancel or move a shard copy, or allocate an empty one in place of a lost one",
        method="POST",
        path="/_cluster/reroute?dry_run=true",
        body={
            "commands": [{"cancel": {"index": "posts", "shard": 0, "node": "{node}", "allow_primary": True}}]
        },
    ),
    Power(
        allowed=True,
        does="take the vote of a master-eligible node",
        method="POST",
        path="/_cluster/voting_config_exclusions?node_names=none",
    ),
    Power(allowed=True, does="flush an index", method="POST", path="/secret/_flush"),
    Power(
        allowed=True,
        does="read names, settings, mappings and aliases of every index",
        method="GET",
        path="/_cluster/state/metadata",
    ),
    Power(
        allowed=True,
        does="read the searches that run",
        method="GET",
        path="/_tasks?detailed=true&actions=*search*",
    ),
)
ELASTICSEARCH = (
    *COMMON,
    Power(does="read users", method="GET", path="/_security/user"),
    Power(does="make an API key", method="POST", path="/_security/api_key", body={"name": "k"}),
    index_setting("secret", "index.lifecycle.name", "7-days-default", "give an index a lifecycle policy"),
    index_setting("posts", "index.lifecycle.name", "7-days-default", "give a named index a lifecycle policy"),
    setting("xpack.security.transport.filter.enabled", False, "switch the IP filter of nodes off"),
    setting("xpack.security.http.filter.enabled", False, "switch the IP filter of clients off"),
    setting(
        "xpack.security.audit.logfile.events.exclude",
        ["authentication_success"],
        "keep events out of the audit log",
    ),
)
OPENSEARCH = (
    *COMMON,
    Power(does="read users", method="GET", path="/_plugins/_security/api/internalusers"),
    Power(
        does="write a role",
        method="PUT",
        path="/_plugins/_security/api/roles/r",
        body={"cluster_permissions": ["*"]},
    ),
)


def prepare(ask: Ask, admin: str) -> None:
    """What others have in the cluster: two indices, templates of each kind, a snapshot."""
    for method, path, body in (
        ("PUT", "/_template/theirs", {"index_patterns": ["theirs*"]}),
        ("PUT", TEMPLATES, THEIRS),
        ("PUT", "/_component_template/unused", THEIRS),
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
    ):
        status = ask(admin, method, path, body)
        assert status in (200, 201), (method, path, status)


def outcomes(ask: Ask, user: str, admin: str, powers: tuple[Power, ...], node: str) -> Mapping[str, int]:
    """The status of each power, tried as the user; cluster settings are removed again."""
    found = {}
    for each in powers:
        body = each.body
        if isinstance(body, dict) and "commands" in body:
            command = {**body["commands"][0]["cancel"], "node": node}
            body = {"commands": [{"cancel": command}]}
        found[each.does] = ask(user, each.method, each.path, body)
        if each.path == "/_cluster/settings" and found[each.does] == DONE:
            undone = {"persistent": dict.fromkeys(each.body["persistent"])}
            assert ask(admin, "PUT", each.path, undone) == DONE, each
    return found
