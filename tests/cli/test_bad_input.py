"""Bad input: one clear message, the right exit code, and nothing changed.

The small cluster notes every request.
"""

from __future__ import annotations

import getpass
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator.errors import ExitCode
from orchestrator.runtime.database import Access
from orchestrator.runtime.store import open_store
from tests.cli.console import Console, Said
from tests.cli.small_cluster import SmallCluster
from tests.fakes.scripted_http import ELASTIC, reply
from tests.integration.sshd import Sshd, make_key
from tests.tools import own_mounts

DISRUPTIVE = {"setting_changed", "wave_started", "replicas_added", "voting_excluded"}
"""Events that stand for a change of the cluster."""
NOWHERE = "no-such-host.invalid"
RIAK = "kind: riak\nname: ring\nendpoints: ['http://127.0.0.1:1']\n"
NO_DATABASE = b"once upon a time there was a journal\n" * 100
OLD_NODE = {"cluster_name": "lab", "nodes": {"n1": {"name": "es1", "version": "1.0.3", "build_type": "zip"}}}


@dataclass(slots=True, kw_only=True)
class Stage:
    """What a case may use.

    Attributes:
        cleanup: closed when the case is over.
        cluster: must come out as it went in.
        before: a command that is to start the program (`unshare …`).
    """

    console: Console
    cleanup: ExitStack
    cluster: SmallCluster
    before: tuple[str, ...] = ()

    def file(self, **changes: Any) -> str:
        """Write a cluster file that is right but for these keys; its path."""
        document = self.cluster.document() | changes
        return self.text("prod.yml", json.dumps(document, indent=1) + "\n")

    def text(self, name: str, text: str) -> str:
        path = self.console.folder / name
        path.write_text(text)
        return str(path)

    def picture(self, code: int) -> tuple[str, list[str]]:
        """What a run could have changed; and the requests for changes, where none begins."""
        kept = (self.cluster.settings, self.cluster.templates, self.cluster.legacy)
        asked = [one.target for one in self.cluster.asked if one.method != "GET"]
        return json.dumps(kept), [] if code == ExitCode.HELD else asked

    def state(self) -> bytes | None:
        return self.console.state.read_bytes() if self.console.state.exists() else None

    def changes(self) -> list[str]:
        """Events of the state file that stand for a change of the cluster."""
        with sqlite3.connect(f"file:{self.console.state}?mode=ro", uri=True) as state:
            rows = state.execute("select event from events").fetchall()
        return [kind for (text,) in rows if (kind := json.loads(text)["event"]) in DISRUPTIVE]


Words = tuple[str, ...]
Act = Callable[[Stage], Words]


def restart(at: Stage, *more: str, **keys: Any) -> Words:
    """With these keys of the cluster file."""
    return restart_of(at.file(**keys), *more)


def restart_of(file: str, *more: str) -> Words:
    return ("restart", "--cluster", file, "--yes", *more)


def with_hosts(at: Stage, **keys: Any) -> Words:
    return restart(at, hosts={**at.cluster.document()["hosts"], **keys})


def with_playbook(at: Stage, text: str, file: str | None = None) -> Words:
    return restart_of(file or at.file(), "--playbook", at.text("book.yml", text))


def ring(at: Stage, more: str = "") -> str:
    return at.text("ring.yml", RIAK + more)


def from_folder(at: Stage) -> Words:
    folder = at.console.folder / "prod.yml"
    folder.mkdir()
    return restart_of(str(folder))


def answered(at: Stage, body: bytes, headers: dict[str, str], kind: str = "application/json") -> Words:
    """By a server of another kind, or of another version."""
    for path in at.cluster.answers:
        at.cluster.on(path, reply(body, headers=headers, kind=kind))
    return restart(at)


def apply_edited(at: Stage, keys: dict[str, Any], old: str = "", new: str = "") -> Words:
    """A plan of this cluster, with these keys, and with one text in place of another."""
    saved = at.console.folder / "plan.json"
    at.console.run("plan", "--cluster", at.file(), "--out", str(saved))
    saved.write_text(json.dumps(json.loads(saved.read_text().replace(old, new)) | keys))
    return ("apply", str(saved), "--yes")


def apply_text(at: Stage, text: str) -> Words:
    return ("apply", at.text("plan.json", text), "--yes")


def with_state(at: Stage, data: bytes) -> Words:
    at.console.state.write_bytes(data)
    return restart(at)


def with_schema(at: Stage, schema: str) -> Words:
    open_store(f"sqlite:///{at.console.state}", {}, access=Access.WRITE).close()
    with sqlite3.connect(at.console.state) as state:
        state.execute("update meta set schema = ?", (schema,))
    return restart(at)


def restored_from_nothing(at: Stage) -> Words:
    at.console.state.write_bytes(NO_DATABASE)
    return ("restore",)


def on_a_full_disk(at: Stage) -> Words:
    """A file system of its own, of 16 KiB, that nobody but the program sees."""
    folder = at.console.folder / "small"
    folder.mkdir()
    script = (
        f"mount -t tmpfs -o size=16k,mode=700 none {folder} && "
        f"head -c 100000 /dev/zero > {folder}/fill 2> /dev/null; "
        f'[ -s {folder}/fill ] && exec "$@"'
    )
    at.before = (*own_mounts(), "sh", "-c", script, "sh")
    return restart(at, "--state", f"sqlite:///{folder}/state.db")


def sshd(at: Stage, **environment: str) -> Sshd:
    """A real one; its own key is in no known hosts file yet."""
    folder = at.console.folder
    server = Sshd(folder=folder / "sshd", client_key=make_key(folder / "id"), environment=environment).start()
    at.cleanup.callback(server.stop)
    return server


def over_ssh(at: Stage, server: Sshd, *, known: str = "", sudo: bool = False) -> str:
    """A cluster file whose nodes are reached by this sshd."""
    hosts = {
        **at.cluster.document()["hosts"],
        "connect": "ssh",
        "user": getpass.getuser(),
        "port": server.port,
        "identity": str(server.client_key),
        "known_hosts": at.text("known_hosts", known),
        "sudo": sudo,
    }
    return at.file(hosts=hosts)


def with_a_changed_key(at: Stage) -> Words:
    server = sshd(at)
    kind, key = make_key(at.console.folder / "other").with_suffix(".pub").read_text().split()[:2]
    return restart_of(over_ssh(at, server, known=f"[127.0.0.1]:{server.port} {kind} {key}\n"))


def with_a_refusing_sudo(at: Stage) -> Words:
    folder = at.console.folder / "bin"
    folder.mkdir()
    refusing = folder / "sudo"
    refusing.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    refusing.chmod(0o755)
    server = sshd(at, PATH=f"{folder}:/usr/local/bin:/usr/bin:/bin")
    return restart_of(over_ssh(at, server, known=server.known(), sudo=True))


def without_host_name(at: Stage) -> Words:
    """Validated: a restart waits a minute for it."""
    hosts = {**at.cluster.document()["hosts"], "connect": "ssh", "overrides": {"es*": {"address": NOWHERE}}}
    return ("validate", "--cluster", at.file(hosts=hosts))


HELD = "selected_hosts_ready: host of es"
NO_FIT = "the saved plan does not fit lab"
OPS = {"username": "ops", "password": "file:/nowhere/secret"}
CASES: list[Any] = [
    # cluster files and playbooks
    (
        lambda at: restart_of(at.text("prod.yml", "kind: elasticsearch\nname: 'lab\n")),
        "FOLDER/prod.yml:2: is not valid YAML",
    ),
    (
        lambda at: with_hosts(at, conect="ssh"),
        "prod.yml: … hosts: unknown key `conect`; did you mean `connect`?",
    ),
    (lambda at: restart(at, expect={"nodes": "three"}), "prod.yml: … expect.nodes: must be a whole number"),
    (
        lambda at: with_playbook(at, "kind: elasticsearch\nflush: sometimes\n"),
        "book.yml:2: flush: must be true or false",
    ),
    (from_folder, "prod.yml: is a directory"),
    (
        lambda at: restart(at, endpoints=["https://127.0.0.1:1"], tls={"ca": at.text("ca.pem", "kind: x\n")}),
        "prod.yml: … tls.ca: … ca.pem holds no certificate",
    ),
    (
        lambda at: restart_of(ring(at, "auth: {api_key: env:KEY}\n")),
        "ring.yml:4: auth: not for `kind: riak`: ",
    ),
    (lambda at: restart(at, riak={"command": "/usr/sbin/riak"}), "prod.yml: … riak: only for `kind: riak`"),
    (
        lambda at: with_playbook(at, "kind: riak\nflush: true\n", ring(at)),
        "book.yml:2: flush: not for `kind: ri",
    ),
    (
        lambda at: restart(at, "--playbook", "riak-rolling-restart"),
        "the playbook riak-rolling-restart is for riak (`kind`), and lab",
    ),
    (
        lambda at: restart_of(ring(at, "riak: {command: /usr/sbin/riak; reboot}\n")),
        "ring.yml:4: riak.command: must be a program and",
    ),
    (
        lambda at: ("post-bulk-index", "--cluster", ring(at), "--index", "posts-*", "--yes"),
        "ring is riak, which has no segments to merge",
    ),
    # secrets
    (
        lambda at: restart(at, auth={"api_key": "env:NOT_SET_ANYWHERE"}),
        "prod.yml: … auth.api_key: … NOT_SET_ANYWHERE … is not set",
    ),
    (lambda at: restart(at, auth={"basic": OPS}), "auth.basic.password: … /nowhere/secret"),
    (
        lambda at: restart(at, auth={"api_key": "aHVudGVyMjpodW50ZXIy"}),
        "prod.yml: … auth.api_key: a secret is never written here",
    ),
    (
        lambda at: restart(at, "--state", "postgresql//ops:hunter2@db/state"),
        "--state: this is no SQLAlchemy URL",
    ),
    (
        lambda at: restart(at, "--state", "postgresql://ops:p@ss:hunter2@db/state"),
        "--state: this is no SQLAlchemy",
    ),
    # endpoints
    (lambda at: restart(at, endpoints=[f"http://{NOWHERE}:9200"]), f"prod.yml … {NOWHERE}:9200 … resolve"),
    (
        lambda at: answered(at, b"<html>It works!</html>", {}, "text/html"),
        "http://127.0.0.1: … neither Elasticsearch nor OpenSearch",
    ),
    (
        lambda at: answered(at, b'{"couchdb": "Welcome"}', {}),
        "http://127.0.0.1: … neither Elasticsearch nor OpenSearch",
    ),
    (
        lambda at: answered(at, json.dumps(OLD_NODE).encode(), ELASTIC),
        "Elasticsearch 1.0.3 … not in this version",
    ),
    (
        lambda at: restart(at, name="prod"),
        "prod.yml: the cluster at these endpoints calls itself 'lab' … 'prod' … correct `name`",
    ),
    # hosts
    (without_host_name, NOWHERE, 3),
    (
        lambda at: restart_of(over_ssh(at, sshd(at))),
        f"{HELD} … the host key of … is in none of … ssh-keyscan",
        3,
    ),
    (
        lambda at: ("validate", "--cluster", over_ssh(at, sshd(at))),
        "the host key of … is in none of … ssh-keyscan",
        3,
    ),
    (with_a_changed_key, f"{HELD} … known_hosts:1", 3),
    (with_a_refusing_sudo, f"{HELD} … sudo does not let … a password is required … least-rights.md", 3),
    # selections
    (lambda at: restart(at, "--exclude", "es*"), "the selection leaves no node … es1, es2, es3"),
    (lambda at: restart(at, "--zone", "z"), "no node … zone … a, b, c"),
    (
        lambda at: restart(at, "--strategy", "zone", zone_attribute="rack"),
        "strategy zone: no node has the attribute 'rack' … zone … set `zone_attribute` in … prod.yml",
    ),
    (lambda at: restart(at, "--only", "es1", "--only", "es9"), "no node is called es9 … es1, es2, es3"),
    # saved plans
    (
        lambda at: apply_edited(at, {"fingerprint": "sha256:" + 64 * "0"}, '"es3"', '"es7"'),
        f"{NO_FIT} … es7 … make a new plan",
        7,
    ),
    (
        lambda at: apply_edited(at, {"fingerprint": "sha256:" + 64 * "0"}),
        f"{NO_FIT} … or the file was edited",
        7,
    ),
    (
        lambda at: apply_edited(at, {"policy": {}}),
        "plan.json: the saved plan is damaged: policy, kind: is missing",
    ),
    (lambda at: apply_edited(at, {"waves": [{"nodes": "es1"}]}), "plan.json: waves[0].nodes: must be a list"),
    (lambda at: apply_text(at, "[" * 100_000), "plan.json: is no saved plan: it is nested too deeply"),
    (lambda _: ("apply", "/dev/zero", "--yes"), "/dev/zero: is no regular file"),
    (lambda at: apply_text(at, "{}"), "plan.json: is no saved plan"),
    # the state
    (lambda at: with_state(at, b"SQLite format 3\0" + bytes(range(256)) * 40), "state.db … move it away"),
    (restored_from_nothing, "state.db … not an SQLite database"),
    (lambda at: with_schema(at, "three"), "state.db has no schema version"),
    (lambda _: ("resume", "--yes"), "state.db: there is no such file"),
    (
        lambda at: restart(at, "--state", "sqlite://"),
        "--state: a database in memory is gone when the command ends",
    ),
    (
        lambda at: restart(at, "--state", f"sqlite:///{at.console.state}?mode=ro"),
        "--state: a state file takes no options",
    ),
    (lambda at: with_state(at, NO_DATABASE), "state.db … not an SQLite database … --state"),
    (lambda at: with_schema(at, "999"), "state.db … version"),
    (on_a_full_disk, "state.db … no space is left on its disk"),
]


@pytest.fixture
def at(console: Console, cluster: SmallCluster) -> Iterator[Stage]:
    cluster.zones = {"es1": "a", "es2": "b", "es3": "c"}
    cluster.settings["persistent"]["cluster.routing.allocation.awareness.attributes"] = "zone"
    with ExitStack() as cleanup:
        yield Stage(console=console, cleanup=cleanup, cluster=cluster)


@pytest.mark.parametrize(
    ("act", "says", "code"),
    [(act, says, *(code or [2])) for act, says, *code in CASES],
    ids=[says for _, says, *_ in CASES],
)
def test_bad_input_is_refused_once_and_changes_nothing(at: Stage, act: Act, says: str, code: int) -> None:
    command = act(at)
    state, before = at.state(), at.picture(code)
    said = at.console.run(*command, "--output", "json", before=at.before)
    message = _message(said)
    assert said.code == code, said
    place = 0
    for part in says.split(" … "):
        found = message.find(part.replace("FOLDER", str(at.console.folder)), place)
        assert found >= 0, f"{part!r} is not in {message!r}"
        place = found + len(part)
    assert "Traceback" not in said.err
    if code == ExitCode.HELD:
        assert command[0] == "validate" or at.changes() == []  # the run is in the journal, and did nothing
    else:
        assert said.err == f"orchestrate: {message}\n"
        assert at.state() == state
    assert at.picture(code) == before
    assert "hunter" not in said.out + said.err


def _message(said: Said) -> str:
    """What the summary says; of `validate`, what its bad points say."""
    bad = [line["message"] for line in said.lines if line["event"] == "check" and line["good"] is False]
    return bad[0] if bad else str(said.lines[-1]["message"])
