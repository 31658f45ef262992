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


def with_state(at: Stage, data: bytes) -> Words:
    at.console.state.write_bytes(data)
    return restart(at)


def with_schema(at: Stage, schema: str) -> Words:
    open_store(f"sqlite:///{at.console.state}", {}, access=Access.WRITE).close()
    with sqlite3.connect(at.console.state) as state:
        state.execute("update meta set schema = ?", (schema,))
    return restart(at)


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
NO_HOST_KEY = "the host key of … is in none of … ssh-keyscan"
NEITHER = "http://127.0.0.1: … neither Elasticsearch nor OpenSearch"
OTHER_PRINT = {"fingerprint": "sha256:" + 64 * "0"}
CASES: list[Any] = [
    # endpoints
    (lambda at: answered(at, b"<html>It works!</html>", {}, "text/html"), NEITHER),
    (lambda at: answered(at, b'{"couchdb": "Welcome"}', {}), NEITHER),
    (
        lambda at: answered(at, json.dumps(OLD_NODE).encode(), ELASTIC),
        "Elasticsearch 1.0.3 … not in this version",
    ),
    # hosts
    (without_host_name, NOWHERE, 3),
    (lambda at: restart_of(over_ssh(at, sshd(at))), f"{HELD} … {NO_HOST_KEY}", 3),
    (lambda at: ("validate", "--cluster", over_ssh(at, sshd(at))), NO_HOST_KEY, 3),
    (with_a_changed_key, f"{HELD} … known_hosts:1", 3),
    (with_a_refusing_sudo, f"{HELD} … sudo does not let … a password is required … least-rights.md", 3),
    # saved plans
    (
        lambda at: apply_edited(at, OTHER_PRINT, '"es3"', '"es7"'),
        f"{NO_FIT} … es7 … make a new plan",
        7,
    ),
    (lambda at: apply_edited(at, OTHER_PRINT), f"{NO_FIT} … or the file was edited", 7),
    # the state
    (lambda at: with_state(at, b"SQLite format 3\0" + bytes(range(256)) * 40), "state.db … move it away"),
    (lambda at: with_state(at, NO_DATABASE), "state.db … not an SQLite database … --state"),
    (lambda at: with_schema(at, "three"), "state.db has no schema version"),
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
