"""Every bad input of the contract, as cases: how it comes about, what is said, and the exit code."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final

from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
from tests.cli.stage import Act, Case, Stage
from tests.integration.sshd import make_key

_OLD_NODE: Final = {
    "cluster_name": "lab",
    "nodes": {"n1": {"name": "es1", "version": "1.0.3", "build_type": "zip"}},
}
_NOWHERE: Final = "no-such-host.invalid"
CASES: Final[list[Case]] = []


def case(what: str, *, code: int, says: tuple[str, ...]):  # type: ignore[no-untyped-def]  # noqa: ANN201  (a decorator)
    def add(act: Act) -> Act:
        CASES.append(Case(what=what, act=act, code=code, says=says))
        return act

    return add


def restart(file: str, *more: str) -> tuple[str, ...]:
    return ("restart", "--cluster", file, "--yes", *more)


@case("a YAML error", code=2, says=("{folder}/prod.yml:2: is not valid YAML",))
def _yaml(stage: Stage) -> tuple[str, ...]:
    return restart(stage.text("prod.yml", "kind: elasticsearch\nname: 'lab\n"))


@case("an unknown key", code=2, says=("prod.yml:", "hosts: unknown key `conect`; did you mean `connect`?"))
def _unknown_key(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(hosts={**stage.document["hosts"], "conect": "ssh"}))


@case("a wrong type", code=2, says=("prod.yml:", "expect.nodes: must be a whole number"))
def _wrong_type(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(expect={"nodes": "three"}))


@case("a wrong type, in a playbook", code=2, says=("book.yml:2: flush: must be true or false",))
def _wrong_type_in_playbook(stage: Stage) -> tuple[str, ...]:
    book = stage.text("book.yml", "kind: elasticsearch\nflush: sometimes\n")
    return restart(stage.file(), "--playbook", book)


_RIAK: Final = "kind: riak\nname: ring\nendpoints: ['http://127.0.0.1:1']\n"


@case("a key of another kind of cluster", code=2, says=("ring.yml:4: auth: not for `kind: riak`: ",))
def _key_of_another_kind(stage: Stage) -> tuple[str, ...]:
    return restart(stage.text("ring.yml", _RIAK + "auth: {api_key: env:KEY}\n"))


@case("a key of another kind of cluster, of Riak", code=2, says=("prod.yml:", "riak: only for `kind: riak`"))
def _key_of_riak(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(riak={"command": "/usr/sbin/riak"}))


@case(
    "a key of another kind of cluster, in a playbook", code=2, says=("book.yml:2: flush: not for `kind: ri",)
)
def _key_of_another_kind_in_playbook(stage: Stage) -> tuple[str, ...]:
    book = stage.text("book.yml", "kind: riak\nflush: true\n")
    return restart(stage.text("ring.yml", _RIAK), "--playbook", book)


@case(
    "a playbook of another kind",
    code=2,
    says=("the playbook riak-rolling-restart is for riak (`kind`), and lab",),
)
def _playbook_of_another_kind(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(), "--playbook", "riak-rolling-restart")


@case(
    "a command of Riak that a shell would read",
    code=2,
    says=("ring.yml:4: riak.command: must be a program and",),
)
def _shell_in_a_command(stage: Stage) -> tuple[str, ...]:
    return restart(stage.text("ring.yml", _RIAK + "riak: {command: /usr/sbin/riak; reboot}\n"))


@case("a merge on Riak", code=2, says=("ring is riak, which has no segments to merge",))
def _merge_on_riak(stage: Stage) -> tuple[str, ...]:
    file = stage.text("ring.yml", _RIAK)
    return ("post-bulk-index", "--cluster", file, "--index", "posts-*", "--yes")


@case("a wrong type, of a file", code=2, says=("prod.yml: is a directory",))
def _directory(stage: Stage) -> tuple[str, ...]:
    (stage.folder / "prod.yml").mkdir()
    return restart(str(stage.folder / "prod.yml"))


@case("a wrong type, of a certificate", code=2, says=("prod.yml:", "tls.ca:", "ca.pem holds no certificate"))
def _no_certificate(stage: Stage) -> tuple[str, ...]:
    ca = stage.text("ca.pem", "kind: elasticsearch\n")
    return restart(stage.file(endpoints=["https://127.0.0.1:1"], tls={"ca": ca}))


@case("a missing secret", code=2, says=("prod.yml:", "auth.api_key:", "NOT_SET_ANYWHERE", "is not set"))
def _missing_secret(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(auth={"api_key": "env:NOT_SET_ANYWHERE"}))


@case("a missing secret, in a file", code=2, says=("auth.basic.password:", "/nowhere/secret"))
def _missing_secret_file(stage: Stage) -> tuple[str, ...]:
    basic = {"username": "ops", "password": "file:/nowhere/secret"}
    return restart(stage.file(auth={"basic": basic}))


@case(
    "a literal secret",
    code=2,
    says=(
        "prod.yml:",
        "auth.api_key: a secret is never written here",
    ),
)
def _literal_secret(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(auth={"api_key": "aHVudGVyMjpodW50ZXIy"}))


@case("a literal secret, in a state URL that is none", code=2, says=("--state: this is no SQLAlchemy URL",))
def _secret_in_url(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(), "--state", "postgresql//ops:hunter2@db/state")


@case(
    "a literal secret, in a state URL with a port that is none",
    code=2,
    says=("--state: this is no SQLAlchemy",),
)
def _secret_in_port(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(), "--state", "postgresql://ops:p@ss:hunter2@db/state")


@case("an endpoint's host that does not resolve", code=2, says=("prod.yml", f"{_NOWHERE}:9200", "resolve"))
def _endpoint_without_name(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(endpoints=[f"http://{_NOWHERE}:9200"]))


@case("a node's host that does not resolve", code=3, says=(_NOWHERE,))  # a restart waits a minute for it
def _host_without_name(stage: Stage) -> tuple[str, ...]:
    hosts = {"connect": "ssh", "overrides": {"es*": {"address": _NOWHERE}}}
    return ("validate", "--cluster", stage.file(hosts=stage.document["hosts"] | hosts))


@case(
    "an unknown host key",
    code=3,
    says=("selected_hosts_ready: host of es", "the host key of", "is in none of", "ssh-keyscan"),
)
def _unknown_key_of_host(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(hosts=stage.hosts_over(stage.sshd(), known="")))


@case("an unknown host key, validated", code=3, says=("the host key of", "is in none of", "ssh-keyscan"))
def _unknown_key_validated(stage: Stage) -> tuple[str, ...]:
    return ("validate", "--cluster", stage.file(hosts=stage.hosts_over(stage.sshd(), known="")))


@case("a changed host key", code=3, says=("selected_hosts_ready: host of es", "known_hosts:1"))
def _changed_key_of_host(stage: Stage) -> tuple[str, ...]:
    server = stage.sshd()
    kind, key = make_key(stage.folder / "other").with_suffix(".pub").read_text().split()[:2]
    known = f"[127.0.0.1]:{server.port} {kind} {key}\n"
    return restart(stage.file(hosts=stage.hosts_over(server, known=known)))


@case(
    "sudo refused",
    code=3,
    says=(
        "selected_hosts_ready: host of es",
        "sudo does not let",
        "a password is required",
        "least-rights.md",
    ),
)
def _sudo_refused(stage: Stage) -> tuple[str, ...]:
    folder = stage.folder / "bin"
    folder.mkdir()
    refusing = folder / "sudo"
    refusing.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    refusing.chmod(0o755)
    server = stage.sshd(PATH=f"{folder}:/usr/local/bin:/usr/bin:/bin")
    return restart(stage.file(hosts=stage.hosts_over(server, known=server.known(), sudo=True)))


@case(
    "a wrong cluster name",
    code=2,
    says=("prod.yml: the cluster at these endpoints calls itself 'lab'", "'prod'", "correct `name`"),
)
def _wrong_name(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(name="prod"))


@case(
    "an endpoint that is not the product",
    code=2,
    says=("http://127.0.0.1:", "neither Elasticsearch nor OpenSearch"),
)
def _another_product(stage: Stage) -> tuple[str, ...]:
    url = stage.serve(b"<html>It works!</html>", content_type="text/html")
    return restart(stage.file(endpoints=[url]))


@case(
    "an endpoint that is not the product, in JSON",
    code=2,
    says=("http://127.0.0.1:", "neither Elasticsearch nor OpenSearch"),
)
def _another_product_in_json(stage: Stage) -> tuple[str, ...]:
    url = stage.serve(b'{"couchdb": "Welcome"}', content_type="application/json")
    return restart(stage.file(endpoints=[url]))


@case("a version not supported", code=2, says=("Elasticsearch 1.0.3", "not in this version"))
def _old_version(stage: Stage) -> tuple[str, ...]:
    url = stage.serve(
        json.dumps(_OLD_NODE).encode(), content_type="application/json", x_elastic_product="Elasticsearch"
    )
    return restart(stage.file(endpoints=[url]))


@case("an empty selection", code=2, says=("the selection leaves no node", "es1, es2, es3"))
def _empty_selection(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(), "--exclude", "es*")


@case("an empty selection, by zone", code=2, says=("no node", "zone", "a, b, c"))
def _empty_zone(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(), "--zone", "z")


@case(
    "a zone attribute that no node has",
    code=2,
    says=("strategy zone: no node has the attribute 'rack'", "zone", "set `zone_attribute` in", "prod.yml"),
)
def _no_such_attribute(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(zone_attribute="rack"), "--strategy", "zone")


@case("a node name that matches nothing", code=2, says=("no node is called es9", "es1, es2, es3"))
def _no_such_node(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(), "--only", "es1", "--only", "es9")


@case(
    "a plan for another cluster", code=7, says=("the saved plan does not fit lab", "es7", "make a new plan")
)
def _other_plan(stage: Stage) -> tuple[str, ...]:
    """As made for a cluster that has another member."""
    saved = stage.folder / "plan.json"
    stage.console.run("plan", "--cluster", stage.file(), "--out", str(saved))
    plan = json.loads(saved.read_text().replace('"es3"', '"es7"'))
    plan["fingerprint"] = "sha256:" + 64 * "0"
    saved.write_text(json.dumps(plan))
    return ("apply", str(saved), "--yes")


@case("a plan that was edited", code=7, says=("the saved plan does not fit lab", "or the file was edited"))
def _edited_plan(stage: Stage) -> tuple[str, ...]:
    return _edited(stage, {"fingerprint": "sha256:" + 64 * "0"})


@case(
    "a plan without its policy",
    code=2,
    says=("plan.json: the saved plan is damaged: policy, kind: is missing",),
)
def _plan_without_policy(stage: Stage) -> tuple[str, ...]:
    return _edited(stage, {"policy": {}})


@case("a plan with waves of a wrong type", code=2, says=("plan.json: waves[0].nodes: must be a list",))
def _plan_with_text(stage: Stage) -> tuple[str, ...]:
    return _edited(stage, {"waves": [{"nodes": "es1"}]})


def _edited(stage: Stage, keys: dict[str, Any]) -> tuple[str, ...]:
    saved = stage.folder / "plan.json"
    stage.console.run("plan", "--cluster", stage.file(), "--out", str(saved))
    saved.write_text(json.dumps(json.loads(saved.read_text()) | keys))
    return ("apply", str(saved), "--yes")


@case(
    "a plan that is nested without end",
    code=2,
    says=("plan.json: is no saved plan: it is nested too deeply",),
)
def _deep_plan(stage: Stage) -> tuple[str, ...]:
    return ("apply", stage.text("plan.json", "[" * 100_000), "--yes")


@case("a plan that is a device", code=2, says=("/dev/zero: is no regular file",))
def _endless_plan(stage: Stage) -> tuple[str, ...]:
    del stage
    return ("apply", "/dev/zero", "--yes")


@case("a plan that is none", code=2, says=("plan.json: is no saved plan",))
def _no_plan(stage: Stage) -> tuple[str, ...]:
    return ("apply", stage.text("plan.json", "{}"), "--yes")


@case("a corrupt state file", code=2, says=("state.db", "move it away"))
def _corrupt_state(stage: Stage) -> tuple[str, ...]:
    stage.console.state.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    return restart(stage.file())


@case("a corrupt state file, restored from", code=2, says=("state.db", "not an SQLite database"))
def _corrupt_restored(stage: Stage) -> tuple[str, ...]:
    stage.console.state.write_bytes(b"once upon a time there was a journal\n" * 100)
    return ("restore",)


@case("a corrupt state file, with a version that is none", code=2, says=("state.db has no schema version",))
def _state_without_version(stage: Stage) -> tuple[str, ...]:
    open_store(f"sqlite:///{stage.console.state}", {}, access=Access.WRITE).close()
    with sqlite3.connect(stage.console.state) as state:
        state.execute("update meta set schema = 'three'")
    return restart(stage.file())


@case("a state file that is not there, resumed from", code=2, says=("state.db: there is no such file",))
def _missing_state(stage: Stage) -> tuple[str, ...]:
    del stage
    return ("resume", "--yes")


@case("a state in memory", code=2, says=("--state: a database in memory is gone when the command ends",))
def _state_in_memory(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(), "--state", "sqlite://")


@case("a state file with options", code=2, says=("--state: a state file takes no options",))
def _state_with_options(stage: Stage) -> tuple[str, ...]:
    return restart(stage.file(), "--state", f"sqlite:///{stage.console.state}?mode=ro")


@case("a state file that is none", code=2, says=("state.db", "not an SQLite database", "--state"))
def _no_state(stage: Stage) -> tuple[str, ...]:
    stage.console.state.write_bytes(b"once upon a time there was a journal\n" * 100)
    return restart(stage.file())


@case("a state file of a later version", code=2, says=("state.db", "version"))
def _future_state(stage: Stage) -> tuple[str, ...]:
    open_store(f"sqlite:///{stage.console.state}", {}, access=Access.WRITE).close()
    with sqlite3.connect(stage.console.state) as state:
        state.execute("update meta set schema = 999")
    return restart(stage.file())


@case("a full disk under the state file", code=2, says=("state.db", "no space is left on its disk"))
def _full_disk(stage: Stage) -> tuple[str, ...]:
    """A file system of its own, of 16 KiB, that nobody but the program sees."""
    folder = stage.folder / "small"
    folder.mkdir()
    script = (
        f"mount -t tmpfs -o size=16k,mode=700 none {folder} && "
        f"head -c 100000 /dev/zero > {folder}/fill 2> /dev/null; "
        f'[ -s {folder}/fill ] && exec "$@"'
    )
    stage.before = ("unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    return restart(stage.file(), "--state", f"sqlite:///{folder}/state.db")
