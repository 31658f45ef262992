"""`validate` reads every file that a restart by the same playbook would read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.program import run
from orchestrator.cli.work.validate import Check, expected_checks, lease_checks, pace_checks, ring_checks
from orchestrator.config.cluster import load_cluster
from orchestrator.errors import ExitCode
from orchestrator.model.lease import LeaseRecord
from orchestrator.model.observation import Look
from orchestrator.model.policy import LeasePlace
from orchestrator.model.reading import Unknown
from orchestrator.runs.from_file import FilePorts, Files
from orchestrator.runtime.clock import SystemClock
from orchestrator.stores.riak.output import CommandOutput
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster
from tests.fakes.lease import FakeLeasePort
from tests.fakes.scripted_http import ScriptedServer, cut, reply
from tests.riak_nodes import RIAK_COMMANDS, RiakCommand, name_of, riak_nodes
from tests.unit.stores.riak_cluster import DEV2, NAMES, Staged, staged

HEAD = "applies_to: elasticsearch\nsettings: {vm.swappiness: 1}\n"


@pytest.mark.parametrize(
    ("profile", "code", "says"),
    [
        (HEAD, ExitCode.DONE, "its playbook and tuning profile are sound"),
        (HEAD + "persits: false\n", ExitCode.USAGE, "profile.yml:3: unknown key"),
        (HEAD.replace("elasticsearch", "riak"), ExitCode.USAGE, "is for riak (`applies_to`), and"),
        (None, ExitCode.USAGE, "profile.yml: there is no such tuning profile file"),
    ],
)
def test_it_reads_the_tuning_profile_of_the_playbook(
    console: Console, capsys: pytest.CaptureFixture[str], profile: str | None, code: ExitCode, says: str
) -> None:
    path = console.folder / "profile.yml"
    if profile is not None:
        path.write_text(profile)
    book = console.folder / "book.yml"
    book.write_text(f"kind: elasticsearch\ntune: {path}\n")
    with SmallCluster() as server:
        file = server.write_file(console.folder)
        assert run(["validate", "--cluster", file, "--playbook", str(book)]) == code
    assert says in "".join(capsys.readouterr())


def test_without_one_it_speaks_of_none(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    with SmallCluster() as server:
        assert run(["validate", "--cluster", server.write_file(console.folder)]) == ExitCode.DONE
    assert "and its playbook are sound" in capsys.readouterr().out


def marks(out: str) -> list[tuple[str, ...]]:
    """Mark, subject and point of each check."""
    return [tuple(line.split()[:3]) for line in out.splitlines()[:-1]]


GATED = "kind: elasticsearch\ngates: [{command: {run: exit 1}}]\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lab", "cluster lab ({file}) cannot be read: http://127.0.0.1:1 takes no connections"),
        ("prod", "{file}: the cluster at these endpoints calls itself 'lab', the file names 'prod'"),
    ],
    ids=["a cluster that does not answer", "another cluster"],
)
def test_what_does_not_need_the_cluster_is_checked_without_it(
    console: Console, capsys: pytest.CaptureFixture[str], name: str, says: str
) -> None:
    """It ended with code 2 at the first reading, and neither hosts nor gates were looked at."""
    (book := console.folder / "book.yml").write_text(GATED)
    overrides = {"es1": {"address": "127.0.0.1"}, "es2": {"connect": "ssh"}, "es*": {"user": "ops"}}
    with SmallCluster() as server:
        urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"] if name == "lab" else [server.url]
        hosts = {"overrides": overrides}
        file = server.write_file(console.folder, name=name, endpoints=urls, hosts=hosts)
        assert run(["validate", "--cluster", file, "--playbook", str(book)]) == ExitCode.HELD
    said = capsys.readouterr()
    assert said.err == ""
    found = marks(said.out)
    ends = [("BAD", "cluster", "endpoint")] * 2 if name == "lab" else [("ok", "cluster", "endpoint")]
    assert found[: 2 + len(ends)] == [("ok", "config", "files"), ("BAD", "cluster", "identity"), *ends]
    assert ("ok", "es1", "service") in found
    assert found[-2:] == [("-", "es2", "address"), ("ok", "gate", "command")]
    assert says.format(file=file) in said.out
    assert said.out.splitlines()[-1].startswith(f"{'3 checks' if name == 'lab' else '1 check'} failed: ")


def test_without_cluster_and_addresses_the_hosts_are_not_checked(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    file = console.folder / "ring.yml"
    file.write_text("kind: riak\nname: ring\nendpoints: ['http://127.0.0.1:1']\n")
    assert run(["validate", "--cluster", str(file)]) == ExitCode.HELD
    said = capsys.readouterr().out
    assert marks(said)[-1] == ("-", "hosts", "address")
    assert "`hosts.nodes`" in said


@pytest.mark.parametrize("command", RIAK_COMMANDS, ids=name_of)
def test_riak_s_own_readings_and_each_node_s_stats_are_checked(command: RiakCommand) -> None:
    """A member whose `/stats` no endpoint leads to would hold the run before its first stop."""
    with staged(command) as stage:
        assert {check.good for check in checks_of(stage)} == {True}
        stage.ports[DEV2].on("/stats", reply(b"<html>"))
        for node in NAMES:
            stage.runner.instead[node, "admin ringready"] = CommandOutput(exit=None, stdout="")
        bad = [check for check in checks_of(stage) if not check.good]
    assert [(check.subject, check.point) for check in bad] == [("ring", "ringready"), (DEV2, "/stats")]


def checks_of(stage: Staged) -> list[Check]:
    view = stage.cluster.observe(set(Look)).cluster
    assert not isinstance(view, Unknown), view
    assert view.riak is not None
    return list(ring_checks(view.riak))


@pytest.mark.parametrize("command", RIAK_COMMANDS, ids=name_of)
def test_where_handoff_is_to_be_hastened_its_rights_are_checked(command: RiakCommand) -> None:
    """Without them a run takes four minutes a node where its plan says one."""
    with staged(command) as stage:
        assert {(check.subject, check.good) for check in pace_checks(stage.cluster)} == {
            (node, True) for node in NAMES
        }
    with staged(command) as stage:
        stage.runner.refused = ("rpc",)
        refused = list(pace_checks(stage.cluster))
    assert {(check.subject, check.good) for check in refused} == {(node, False) for node in NAMES}
    assert all("ORCHESTRATE_RIAK_HASTEN" in check.message for check in refused)


RECORD = LeaseRecord(
    epoch=1, run="20261101-0300-abcd", owner="ann@bastion", process="p", started="2026-11-01T03:00:00Z"
)


@pytest.mark.parametrize(
    ("lease", "good", "says"),
    [
        (FakeLeasePort(), True, "readable, no run holds it"),
        (FakeLeasePort(records={1: RECORD}), True, "readable, held by run 20261101-0300-abcd of ann@bastion"),
        (FakeLeasePort(offline="two of five machines answer"), False, "two of five machines answer"),
    ],
    ids=["free", "held", "unread"],
)
def test_the_lease_must_be_readable(lease: FakeLeasePort, *, good: bool, says: str) -> None:
    (check,) = lease_checks(lease, LeasePlace.CLUSTER)
    assert (check.subject, check.point, check.good, check.message) == ("cluster", "lease", good, says)


def test_a_lease_in_the_state_alone_is_not_read_in_the_cluster() -> None:
    assert list(lease_checks(FakeLeasePort(offline="nobody asks"), LeasePlace.STATE)) == []


@pytest.mark.parametrize(("lease", "code"), [("cluster", ExitCode.HELD), ("state", ExitCode.DONE)])
def test_the_folder_of_the_lease_is_tried_on_each_host(
    console: Console, capsys: pytest.CaptureFixture[str], lease: str, code: ExitCode
) -> None:
    """The first run failed where it was missing on one of the hosts."""
    (folder := console.folder / "riak").mkdir()
    book = console.folder / "book.yml"
    book.write_text(f"kind: riak\nlease: {lease}\n")
    with riak_nodes(folder, 2, pace=0.02) as nodes:
        for node in nodes:
            assert node.riak("daemon").returncode == 0
        file = console.folder / "ring.yml"
        urls = ", ".join(f'"http://127.0.0.1:{node.http}"' for node in nodes)
        file.write_text(
            f"kind: riak\nname: ring\nendpoints: [{urls}]\n"
            "hosts: {connect: local, sudo: false}\n"
            f'riak: {{command: "{folder}/{{name}}/bin/riak", lease_directory: {folder}/leases}}\n'
        )
        found = run(["validate", "--cluster", str(file), "--playbook", str(book)])
        said = capsys.readouterr().out
        assert found == code, said
        assert said.count(f"no file can be created in {folder}/leases") == (lease == "cluster"), "one line"
        (folder / "leases").mkdir()
        assert run(["validate", "--cluster", str(file), "--playbook", str(book)]) == ExitCode.DONE
    assert list((folder / "leases").iterdir()) == []


@pytest.mark.parametrize(
    ("keys", "bad", "says"),
    [
        ({"expect": {"nodes": 3}}, [], "3 nodes, at least 3 expected"),
        ({"expect": {"nodes": 2}}, [], "3 nodes, at least 2 expected"),
        (
            {"expect": {"nodes": 5}},
            ["expect"],
            "3 nodes, at least 5 expected: a run would wait and then be held",
        ),
        ({"product": "elasticsearch", "version": "8.19.0"}, ["version"], "es3 below `version: 8.19.0`"),
        ({"product": "elasticsearch", "version": "8.18.0"}, [], "no node is below 8.18.0"),
    ],
)
def test_what_the_file_expects_is_compared_with_the_cluster(
    console: Console, capsys: pytest.CaptureFixture[str], keys: dict[str, Any], bad: list[str], says: str
) -> None:
    """A run waited an hour for nodes that are not there; one node behind no endpoint was not looked at."""
    with SmallCluster() as server:
        server.upgrade("es3", "8.18.0")
        file = server.write_file(console.folder, **keys)
        code = run(["validate", "--cluster", file])
    said = capsys.readouterr().out
    assert [point for mark, _, point in marks(said) if mark == "BAD"] == bad, said
    assert code == (ExitCode.HELD if bad else ExitCode.DONE)
    assert says in said


def test_a_ring_is_compared_with_its_file_too(console: Console) -> None:
    path = console.folder / "ring.yml"
    with staged(RIAK_COMMANDS[0]) as stage:
        view = stage.cluster.observe({Look.CLUSTER}).cluster
    assert not isinstance(view, Unknown), view
    for nodes, good in ((len(NAMES), True), (len(NAMES) + 1, False)):
        path.write_text(f"kind: riak\nname: ring\nendpoints: ['http://r:1']\nexpect: {{nodes: {nodes}}}\n")
        (check,) = expected_checks(load_cluster(path, home=console.home).spec, view)
        assert (check.point, check.good) == ("expect", good)


def test_the_private_key_of_our_certificate_is_a_secret(console: Console) -> None:
    """In a file of its own, or with the certificate."""
    for tls, name in (({"client_cert": "c", "client_key": "k"}, "k"), ({"client_cert": "c"}, "c")):
        text = {"kind": "elasticsearch", "name": "lab", "endpoints": ["https://es1:9200"], "tls": tls}
        (path := console.folder / "lab.yml").write_text(json.dumps(text))
        files = Files(environment={}, home=console.home, warn=lambda _said: None)
        ports = FilePorts(load_cluster(path, home=console.home), files, SystemClock())
        assert ports.secret_files(()) == (console.folder / name,)


def secret(console: Console, name: str, mode: int) -> str:
    """A reference to a secret in a file with this mode."""
    path = console.folder / name
    path.write_text("secret\n")
    path.chmod(mode)
    return f"file:{path}"


@pytest.mark.parametrize(
    ("mode", "change"), [(0o600, None), (0o400, None), (0o644, "chmod o-rwx"), (0o604, "chmod o-rwx")]
)
def test_a_secret_that_others_can_read_is_named_with_its_repair(
    console: Console, capsys: pytest.CaptureFixture[str], mode: int, change: str | None
) -> None:
    reference = secret(console, "pw", mode)
    path = reference.removeprefix("file:")
    os.chown(path, os.geteuid(), os.getegid())
    with SmallCluster() as server:
        file = server.write_file(console.folder, auth={"basic": {"username": "ann", "password": reference}})
        code = run(["validate", "--cluster", file])
    said = capsys.readouterr().out
    if change is None:
        assert (code, f"no other account can read {path}" in said) == (ExitCode.DONE, True), said
    else:
        assert code == ExitCode.HELD
        assert f"every account can read {path}: `{change} {path}`" in said.replace("go-rwx", "o-rwx")


def test_every_kind_of_secret_file_is_looked_at(
    console: Console, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """API key, sudo password and the secret of a gate, of a path relative to the file that names it."""
    monkeypatch.setenv("ES_KEY", "aWQ6a2V5")
    for name in ("sudo", "gate"):
        secret(console, name, 0o644)
    book = console.folder / "book.yml"
    gate = {"http_json": {"url": "http://127.0.0.1:1/x", "bearer": "file:gate", "path": "a", "equals": 1}}
    book.write_text(json.dumps({"kind": "elasticsearch", "gates": [gate]}))
    with SmallCluster() as server:
        hosts = {"sudo": {"password": "file:sudo"}}
        auth = {"api_key": "env:ES_KEY"}
        file = server.write_file(console.folder, auth=auth, hosts=hosts)
        run(["validate", "--cluster", file, "--playbook", str(book)])
    said = capsys.readouterr().out
    found = [line.split()[-1].strip("`") for line in said.splitlines() if " secret " in line]
    assert [Path(one).name for one in found] == ["sudo", "gate"], said


@pytest.mark.parametrize("words", [["plan"], ["restart", "--dry-run"]])
def test_a_dead_endpoint_among_several_is_warned_of(
    console: Console, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """While nodes are down, a run has only the others."""
    with SmallCluster() as server:
        urls = ["http://127.0.0.1:1", server.url]
        file = server.write_file(console.folder, endpoints=urls)
        run([*words, "--cluster", file])
        said = capsys.readouterr()
        assert "warning: http://127.0.0.1:1 takes no connections: " in said.err
        assert said.err.count("the other endpoints are used") == 1
        run([*words, "--cluster", server.write_file(console.folder)])
    assert "endpoints" not in capsys.readouterr().err


def test_a_transport_port_among_the_endpoints_is_named(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    with SmallCluster() as server, ScriptedServer() as transport:
        transport.on("/_nodes/_local/http", cut(b"This is not an HTTP port"))
        file = server.write_file(console.folder, endpoints=[server.url, transport.url])
        run(["validate", "--cluster", file])
        named = f"{transport.url} is a node's transport port: name its HTTP port, usually 9200"
        assert named in capsys.readouterr().out
        run(["plan", "--cluster", file])
        assert named in capsys.readouterr().err
