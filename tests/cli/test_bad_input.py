"""Bad input that needs a server, a host, a plan or a state of its own: one clear message, nothing changed.

What is refused by the command line and its files alone is in `tests/data/cli/`.
"""

from __future__ import annotations

import getpass
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator.errors import ExitCode
from orchestrator.runtime.database import DatabaseUse
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
Words = tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Stage:
    """What a case may use."""

    console: Console
    cleanup: ExitStack  # closed when the case is over
    cluster: SmallCluster  # must come out as it went in
    before: tuple[str, ...] = ()  # a command that is to start the program (`unshare …`)

    def file(self, **keys: Any) -> str:
        return self.cluster.write_file(self.console.folder, **keys)

    def restart(self, *more: str, **hosts: object) -> Words:
        return ("restart", "--cluster", self.file(hosts=hosts), "--yes", *more)

    def sshd(self, *, known: bool = False, **environment: str) -> tuple[Sshd, dict[str, object]]:
        """A real one, and the hosts of a cluster file that are reached by it."""
        folder = self.console.folder
        server = Sshd(folder=folder / "sshd", client_key=make_key(folder / "id"), environment=environment)
        self.cleanup.callback(server.start().stop)
        keys = folder / "known_hosts"
        keys.write_text(server.known() if known else "")
        place = {"user": getpass.getuser(), "port": server.port, "identity": str(server.client_key)}
        return server, {"connect": "ssh", "known_hosts": str(keys), **place}


def answered(at: Stage, body: bytes, headers: dict[str, str], kind: str = "application/json") -> Words:
    """By a server of another kind, or of another version."""
    for path in at.cluster.answers:
        at.cluster.on(path, reply(body, headers=headers, kind=kind))
    return at.restart()


def apply_edited(at: Stage, old: str = "", new: str = "") -> Words:
    """A plan of this cluster with another fingerprint, and with one text in place of another."""
    saved = at.console.folder / "plan.json"
    at.console.run("plan", "--cluster", at.file(), "--out", str(saved))
    plan = json.loads(saved.read_text().replace(old, new))
    saved.write_text(json.dumps({**plan, "fingerprint": "sha256:" + 64 * "0"}))
    return ("apply", str(saved), "--yes")


def with_state(at: Stage, data: bytes) -> Words:
    at.console.state.write_bytes(data)
    return at.restart()


def with_schema(at: Stage, schema: str) -> Words:
    open_store(at.console.url, {}, access=DatabaseUse.WRITE).close()
    with closing(sqlite3.connect(at.console.state)) as state, state:
        state.execute("update meta set schema = ?", (schema,))
    return at.restart()


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
    return at.restart("--state", f"sqlite:///{folder}/state.db")


def with_a_changed_key(at: Stage) -> Words:
    server, hosts = at.sshd()
    kind, key = make_key(at.console.folder / "other").with_suffix(".pub").read_text().split()[:2]
    (at.console.folder / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
    return at.restart(**hosts)


def with_a_refusing_sudo(at: Stage) -> Words:
    refusing = at.console.folder / "bin" / "sudo"
    refusing.parent.mkdir()
    refusing.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    refusing.chmod(0o755)
    _, hosts = at.sshd(known=True, PATH=f"{refusing.parent}:/usr/local/bin:/usr/bin:/bin")
    return at.restart(**hosts, sudo=True)


def validate(at: Stage, **hosts: object) -> Words:
    """A restart waits a minute for its hosts."""
    return ("validate", "--cluster", at.file(hosts=hosts))


HELD = "selected_hosts_ready (host of es"
NO_FIT = "the saved plan does not fit lab"
NO_HOST_KEY = "the host key of … is in none of … ssh-keyscan"
NEITHER = "http://127.0.0.1: … neither Elasticsearch nor OpenSearch"
CASES: list[tuple[Callable[[Stage], Words], str, int]] = [
    (lambda at: answered(at, b"<html>It works!</html>", {}, "text/html"), NEITHER, 2),
    (lambda at: answered(at, b'{"couchdb": "Welcome"}', {}), NEITHER, 2),
    (lambda at: answered(at, json.dumps(OLD_NODE).encode(), ELASTIC), "Elasticsearch 1.0.3 … not in this", 2),
    (lambda at: validate(at, connect="ssh", overrides={"es*": {"address": NOWHERE}}), NOWHERE, 3),
    (lambda at: validate(at, **at.sshd()[1]), NO_HOST_KEY, 3),
    (lambda at: at.restart(**at.sshd()[1]), f"{HELD} … {NO_HOST_KEY}", 3),
    (with_a_changed_key, f"{HELD} … known_hosts:1", 3),
    (with_a_refusing_sudo, f"{HELD} … sudo does not let … a password is required … explain least-rights", 3),
    (lambda at: apply_edited(at, '"es3"', '"es7"'), f"{NO_FIT} … es7 … make a new plan", 7),
    (apply_edited, f"{NO_FIT} … or the file was edited", 7),
    (lambda at: with_state(at, b"SQLite format 3\0" + bytes(range(256)) * 40), "state.db … move it away", 2),
    (lambda at: with_state(at, NO_DATABASE), "state.db … not an SQLite database … --state", 2),
    (lambda at: with_schema(at, "three"), "state.db has no schema version", 2),
    (lambda at: with_schema(at, "999"), "state.db … version", 2),
    (on_a_full_disk, "state.db … no space is left on its disk", 2),
]


@pytest.fixture
def at(console: Console, cluster: SmallCluster) -> Iterator[Stage]:
    with ExitStack() as cleanup:
        yield Stage(console=console, cleanup=cleanup, cluster=cluster)


@pytest.mark.parametrize(("act", "says", "code"), CASES, ids=[says for _, says, _ in CASES])
def test_bad_input_is_refused_once_and_changes_nothing(
    at: Stage, act: Callable[[Stage], Words], says: str, code: int
) -> None:
    command, kept = act(at), (at.cluster.settings, at.cluster.templates, at.cluster.legacy)
    state, before = at.console.state.exists() and at.console.state.read_bytes(), json.dumps(kept)
    said = at.console.run(*command, "--output", "json", before=at.before)
    message = _message(said)
    assert said.code == code, said
    place = 0
    for part in says.split(" … "):
        found = message.find(part, place)
        assert found >= 0, f"{part!r} is not in {message!r}"
        place = found + len(part)
    assert "Traceback" not in said.err
    assert json.dumps(kept) == before
    if code != ExitCode.HELD:
        assert said.err == f"orchestrate: {message}\n"
        assert (at.console.state.exists() and at.console.state.read_bytes()) == state
        assert [asked.target for asked in at.cluster.asked if asked.method != "GET"] == []
    elif command[0] == "restart":  # the run is in the journal, and did nothing
        with closing(sqlite3.connect(at.console.state)) as journal:
            rows = journal.execute("select event from events").fetchall()
        assert DISRUPTIVE.isdisjoint(json.loads(text)["event"] for (text,) in rows)


def _message(said: Said) -> str:
    """What the summary says; of `validate`, what its bad points say."""
    bad = [line["message"] for line in said.lines if line["event"] == "check" and line["good"] is False]
    return bad[0] if bad else str(said.lines[-1]["message"])
