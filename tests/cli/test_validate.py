"""`validate` reads every file that a restart would read, and asks hosts and cluster what a run would ask."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.cli.work.validate import (
    copies_checks,
    expected_checks,
    health_checks,
    lease_checks,
    pace_checks,
    ring_checks,
)
from orchestrator.config.cluster import load_cluster
from orchestrator.elasticsearch.calls import HttpRequest
from orchestrator.elasticsearch.dialect import dialect_for
from orchestrator.elasticsearch.faults import Answer, Fault
from orchestrator.elasticsearch.lease import ElasticsearchLease
from orchestrator.errors import ExitCode
from orchestrator.model.action import Done
from orchestrator.model.cluster import CopyState, Incarnation, NodeName
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.observation import Disk, Look, SettingsView
from orchestrator.model.policy import LeasePlace
from orchestrator.model.reading import Unknown
from orchestrator.ports import ClusterReadings
from orchestrator.riak.output import CommandOutput
from orchestrator.runs.from_file import FilePorts, Files
from orchestrator.runtime.waiting import SystemClock
from orchestrator.simulation import views
from orchestrator.simulation.world import World
from orchestrator.view.checks import Check
from tests.cli.console import Console, Said
from tests.cli.small_cluster import SmallCluster
from tests.fakes.lease import FakeLeasePort
from tests.fakes.scripted_http import ScriptedServer, cut, reply
from tests.fakes.template_cluster import TemplateClient, TemplateCluster
from tests.ports import free_port
from tests.riak_nodes import RIAK_COMMANDS, RiakCommand, name_of, riak_nodes
from tests.unit.clusters.riak_cluster import DEV2, NAMES, Staged, staged

HEAD = "applies_to: elasticsearch\nsettings: {vm.swappiness: 1}\n"


@pytest.fixture
def book(console: Console) -> Path:
    return console.folder / "book.yml"


def validate(console: Console, cluster: SmallCluster, *words: str, **keys: Any) -> Said:
    """Every check, with these keys in the cluster file."""
    file = cluster.write_file(console.folder, **keys)
    said = console.run("validate", "--cluster", file, "--verbose", *words)
    assert "Traceback" not in said.err
    return said


def marks(out: str) -> list[tuple[str, ...]]:
    """Mark, subject and point of each check."""
    return [tuple(line.split()[:3]) for line in out.splitlines()[:-1]]


def test_it_reads_the_tuning_profile_of_the_playbook(
    console: Console, cluster: SmallCluster, book: Path, subtests: pytest.Subtests
) -> None:
    path = console.folder / "profile.yml"
    assert "and its playbook are sound" in validate(console, cluster).out, "without one"
    book.write_text(f"kind: elasticsearch\ntune: {path}\n")
    for profile, code, says in [
        (None, ExitCode.USAGE, "profile.yml: there is no such tuning profile file"),
        (HEAD, ExitCode.DONE, "its playbook and tuning profile are sound"),
        (HEAD + "persits: false\n", ExitCode.USAGE, "profile.yml:3: unknown key"),
        (HEAD.replace("elasticsearch", "riak"), ExitCode.USAGE, "is for riak (`applies_to`), and"),
    ]:
        with subtests.test(says=says):
            if profile is not None:
                path.write_text(profile)
            said = validate(console, cluster, "--playbook", str(book))
            assert (said.code, says in said.out + said.err) == (code, True)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lab", "cluster lab ({file}) cannot be read: http://127.0.0.1:1 takes no connections"),
        ("prod", "{file}: the cluster at these endpoints calls itself 'lab', the file names 'prod'"),
    ],
    ids=["a cluster that does not answer", "another cluster"],
)
def test_what_does_not_need_the_cluster_is_checked_without_it(
    console: Console, cluster: SmallCluster, book: Path, name: str, says: str
) -> None:
    """It ended with code 2 at the first reading, and neither hosts nor gates were looked at."""
    book.write_text("kind: elasticsearch\ngates: [{command: {run: exit 1}}]\n")
    overrides = {"es1": {"address": "127.0.0.1"}, "es2": {"connect": "ssh"}, "es*": {"user": "ops"}}
    urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"] if name == "lab" else [cluster.url]
    keys = {"name": name, "endpoints": urls, "hosts": {"overrides": overrides}}
    said = validate(console, cluster, "--playbook", str(book), **keys)
    assert (said.code, said.err) == (ExitCode.HELD, "")
    found = marks(said.out)
    ends = [("BAD", "cluster", "endpoint")] * 2 if name == "lab" else [("ok", "cluster", "endpoint")]
    assert found[: 2 + len(ends)] == [("ok", "config", "files"), ("BAD", "cluster", "identity"), *ends]
    assert ("ok", "es1", "service") in found
    assert found[-2:] == [("-", "es2", "address"), ("ok", "gate", "command")]
    assert says.format(file=console.folder / "lab.yml") in said.out
    assert said.out.splitlines()[-1].startswith(f"NOT READY: {3 if name == 'lab' else 1} of ")


def test_without_cluster_and_addresses_the_hosts_are_not_checked(console: Console) -> None:
    (console.folder / "ring.yml").write_text("kind: riak\nname: ring\nendpoints: ['http://127.0.0.1:1']\n")
    said = console.run("validate", "--cluster", "ring.yml", "--verbose")
    assert (said.code, marks(said.out)[-1]) == (ExitCode.HELD, ("-", "hosts", "address"))
    assert "`hosts.nodes`" in said.out


@pytest.mark.parametrize("command", RIAK_COMMANDS, ids=name_of)
def test_ring_checks_read_the_ring_and_each_node_s_stats(command: RiakCommand) -> None:
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
def test_pace_checks_ask_for_the_rights_to_hasten_handoff(command: RiakCommand) -> None:
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


def lease_in(
    cluster: TemplateCluster, refused: str = "", version: str = "9.1.0", *, lost: bool = False
) -> ElasticsearchLease:
    """A lease in a cluster that refuses requests with this method; or the answers to them are `lost`."""

    def send(request: HttpRequest) -> Answer | Fault:
        if request.method == refused:
            return Fault(reason=f"403 to {refused}", nothing_done=not lost)
        return cluster.serve(request)

    client: Any = TemplateClient(send, dialect_for("elasticsearch", version))
    return ElasticsearchLease(client)


def reached(lease: Any) -> Any:
    """The ports of a cluster with this lease."""
    return SimpleNamespace(lease=lease)


def test_lease_checks_write_a_record_that_is_no_lease(subtests: pytest.Subtests) -> None:
    """A role without a right, or a block of all writes, was found by the first run."""
    wrote = "no run holds it; a test record was written and removed"
    for refused, version, good, says in [
        ("", "9.1.0", True, wrote),
        ("", "7.5.2", True, wrote),
        ("PUT", "9.1.0", False, "no run can take it: 403 to PUT"),
        ("PUT", "7.5.2", False, "no run can take it: 403 to PUT"),
        ("DELETE", "9.1.0", False, "no run can take it: 403 to DELETE"),
    ]:
        with subtests.test(refused=refused, version=version):
            kept = TemplateCluster()
            (check,) = lease_checks(reached(lease_in(kept, refused, version)), LeasePlace.CLUSTER)
            assert (check.good, check.message) == (good, says)
            written = [name for names in kept.kept.values() for name in names]
            assert len(written) == (refused == "DELETE")
            assert lease_in(kept, version=version).create(RECORD) == Done(), "what is left is no lease"
            assert lease_in(kept, version=version).remove(1) == Done()
            (check,) = lease_checks(reached(lease_in(kept, version=version)), LeasePlace.CLUSTER)
            assert (check.good, kept.kept) == (True, TemplateCluster().kept), "the next call removes it"


def test_lease_checks_take_no_lost_answer_for_a_refusal() -> None:
    (check,) = lease_checks(reached(lease_in(TemplateCluster(), "PUT", lost=True)), LeasePlace.CLUSTER)
    assert check.good is False
    assert check.message == "whether a run can take it is not known: 403 to PUT"


def test_lease_checks_write_nothing_beside_a_lease() -> None:
    kept = TemplateCluster()
    assert lease_in(kept).create(RECORD) == Done()
    kept.sent.clear()
    (check,) = lease_checks(reached(lease_in(kept)), LeasePlace.CLUSTER)
    assert (check.good, {request.method for request in kept.sent}) == (True, {"GET"})


def test_lease_checks_need_a_lease_that_can_be_read() -> None:
    held = "readable, held by run 20261101-0300-abcd of ann@bastion"
    for lease, good, says in [
        (FakeLeasePort(), True, "readable, no run holds it"),
        (FakeLeasePort(records={1: RECORD}), True, held),
        (FakeLeasePort(offline="two of five machines answer"), False, "two of five machines answer"),
    ]:
        (check,) = lease_checks(reached(lease), LeasePlace.CLUSTER)
        assert (check.subject, check.point, check.good, check.message) == ("cluster", "lease", good, says)
    assert list(lease_checks(reached(FakeLeasePort(offline="not asked")), LeasePlace.STATE)) == []


@pytest.mark.parametrize(("lease", "code"), [("cluster", ExitCode.HELD), ("state", ExitCode.DONE)])
def test_the_lease_directory_is_tried_on_each_host(
    console: Console, book: Path, lease: str, code: ExitCode
) -> None:
    """The first run failed where it was missing on one of the hosts."""
    (folder := console.folder / "riak").mkdir()
    book.write_text(f"kind: riak\nlease: {lease}\n")
    with riak_nodes(folder, 2, pace=0.02) as nodes:
        for node in nodes:
            assert node.riak("daemon").returncode == 0
        urls = ", ".join(f'"http://127.0.0.1:{node.http}"' for node in nodes)
        (console.folder / "ring.yml").write_text(
            f"kind: riak\nname: ring\nendpoints: [{urls}]\n"
            "hosts: {connect: local, sudo: false}\n"
            f'riak: {{command: "{folder}/{{name}}/bin/riak", lease_directory: {folder}/leases}}\n'
        )
        line = ("validate", "--cluster", "ring.yml", "--playbook", str(book))
        said = console.run(*line)
        assert said.code == code, said
        missing = said.out.count(f"no file can be created in {folder}/leases")
        assert missing == (lease == "cluster"), "one line"
        (folder / "leases").mkdir()
        assert console.run(*line).code == ExitCode.DONE
    assert list((folder / "leases").iterdir()) == []


def test_what_the_file_expects_is_compared_with_the_cluster(
    console: Console, cluster: SmallCluster, subtests: pytest.Subtests
) -> None:
    """A run waited an hour for nodes that are not there; one node behind no endpoint was not looked at."""
    cluster.upgrade("es3", "8.18.0")
    of_elastic = {"product": "elasticsearch"}
    for keys, bad, says in [
        ({"expect": {"nodes": 3}}, [], "3 nodes, at least 3 expected"),
        ({"expect": {"nodes": 2}}, [], "3 nodes, at least 2 expected"),
        (
            {"expect": {"nodes": 5}},
            ["expect"],
            "3 nodes, at least 5 expected: a run would wait and then be held",
        ),
        ({**of_elastic, "version": "8.19.0"}, ["version"], "es3 below `version: 8.19.0`"),
        ({**of_elastic, "version": "8.18.0"}, [], "no node is below 8.18.0"),
    ]:
        with subtests.test(keys=keys):
            said = validate(console, cluster, **keys)
            assert [point for mark, _, point in marks(said.out) if mark == "BAD"] == bad, said
            assert (said.code, says in said.out) == (ExitCode.HELD if bad else ExitCode.DONE, True)


def test_a_ring_is_compared_with_its_file_too(console: Console) -> None:
    path = console.folder / "ring.yml"
    with staged(RIAK_COMMANDS[0]) as stage:
        view = stage.cluster.observe({Look.CLUSTER}).cluster
    assert not isinstance(view, Unknown), view
    for nodes, good in ((len(NAMES), True), (len(NAMES) + 1, False)):
        path.write_text(f"kind: riak\nname: ring\nendpoints: ['http://r:1']\nexpect: {{nodes: {nodes}}}\n")
        (check,) = expected_checks(load_cluster(path, home=console.home).spec, view)
        assert (check.point, check.good) == ("expect", good)


def test_a_node_that_a_run_has_in_hand_is_as_good_as_there(console: Console, cluster: SmallCluster) -> None:
    """It advised to start it, and called the cluster not ready, in the middle of a healthy run."""
    spec = load_cluster(Path(cluster.write_file(console.folder, expect={"nodes": 3})), home=console.home).spec
    world = World()
    for name in ("es1", "es3"):
        world.add_node(name)
    held = NodeInHand(node=NodeName("es2"), incarnation=Incarnation())
    record = LeaseRecord(epoch=1, run="run-1", owner="a@b", process="p", started="", in_hand=(held,))
    for found, dead, good, says in (
        (None, False, False, "2 nodes, at least 3 expected: a run would wait"),
        (record, False, True, "3 nodes, at least 3 expected; run run-1 is at work on es2"),
        (record, True, True, "3 nodes, at least 3 expected; a restart first starts es2"),
    ):
        (check,) = expected_checks(spec, views.cluster(world), found, dead=dead)
        assert (check.good, check.message.startswith(says)) == (good, True), check.message


def test_a_red_index_is_bad_and_missing_copies_are_noted() -> None:
    """It called a red cluster ready, of which `plan` says at the same minute that it is held."""
    world = World()
    for name in ("es1", "es2"):
        world.add_node(name)
    world.add_index("logs", replicas=1, places=["es1", "es2"])
    assert [*health_checks(views.cluster(world), ())] == []
    view = views.cluster(world)
    lost = tuple(copy._replace(state=CopyState.UNASSIGNED, node=None) for copy in view.copies)
    red = replace(view, copies=lost)
    found = [(one.subject, one.point, one.good) for one in health_checks(red, ())]
    assert found == [("index logs", "primaries", False), ("cluster", "copies", None)]
    (noted,) = health_checks(red, {"logs"})
    assert noted.message == "2 copies are not started: a restart does not wait for what is missing before it"


def test_copies_checks_say_what_a_run_would_do(subtests: pytest.Subtests) -> None:
    """A doubt is told as one, and what passes with time is no fault."""
    load = {"cluster.routing.allocation.load_awareness.provisioned_capacity": "6"}
    kept = {"require._name": "es1"}
    never = (
        "[pair][0] would not come back to es2 after its restart: index.routing.allocation.require._name is"
    )
    doubt = "whether [pair][0] would come back to es1 after its restart is not known: "
    for rules, shrinks, settings, accepted, good, says in (
        ({}, False, {}, (), True, ("each would come back to a node",)),
        (kept, False, {}, (), False, (never, "; correct that, or accept it")),
        (kept, False, {}, ("pa*",), True, ("each would come back to a node",)),
        (kept, True, {}, (), None, (never, "; a run waits until ILM has shrunk the index")),
        ({}, False, load, (), False, (doubt, "the load of nodes is not read; correct that")),
    ):
        with subtests.test(rules=rules, shrinks=shrinks, settings=settings, accepted=accepted):
            world = World()
            for name in ("es1", "es2"):
                world.add_node(name)
            index = world.add_index("pair", replicas=1, places=["es1", "es2"])
            index.rules, index.shrinks = rules, shrinks
            view = views.cluster(world)
            disks = {name: Disk(used_share=0.5, over_low=False, over_high=False) for name in view.members}
            read = ClusterReadings(cluster=view, settings=SettingsView(persistent=settings), disks=disks)
            (check,) = copies_checks(read, view, accepted)
            assert check.good is good
            assert all(part in check.message for part in says)


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


def test_a_secret_that_others_can_read_is_named_with_its_repair(
    console: Console, cluster: SmallCluster, subtests: pytest.Subtests
) -> None:
    for mode in (0o600, 0o400, 0o644, 0o604):
        with subtests.test(mode=oct(mode)):
            reference = secret(console, f"pw{mode}", mode)
            path = reference.removeprefix("file:")
            os.chown(path, os.geteuid(), os.getegid())
            said = validate(console, cluster, auth={"basic": {"username": "ann", "password": reference}})
            if mode & 0o077:
                assert said.code == ExitCode.HELD
                repair = f"every account can read {path}: `chmod o-rwx {path}`"
                assert repair in said.out.replace("go-rwx", "o-rwx")
            else:
                assert (said.code, f"no other account can read {path}" in said.out) == (ExitCode.DONE, True)


def test_every_kind_of_secret_file_is_looked_at(console: Console, cluster: SmallCluster, book: Path) -> None:
    """API key, sudo password and the secret of a gate, of a path relative to the file that names it."""
    for name in ("sudo", "gate"):
        secret(console, name, 0o644)
    gate = {"http_json": {"url": "http://127.0.0.1:1/x", "bearer": "file:gate", "path": "a", "equals": 1}}
    book.write_text(json.dumps({"kind": "elasticsearch", "gates": [gate]}))
    keys = {"hosts": {"sudo": {"password": "file:sudo"}}, "auth": {"api_key": "env:ES_KEY"}}
    there = replace(console, environment={"ES_KEY": "aWQ6a2V5"})
    said = validate(there, cluster, "--playbook", str(book), **keys)
    found = [line.split()[-1].strip("`") for line in said.out.splitlines() if " secret " in line]
    assert [Path(one).name for one in found] == ["sudo", "gate"], said


def test_alerts_that_fire_already_leave_a_gate_open(
    console: Console, cluster: SmallCluster, book: Path, subtests: pytest.Subtests
) -> None:
    """A run that begins now is not held by them, unless its playbook wants that."""
    status = {"state": "active", "silencedBy": [], "inhibitedBy": []}
    alert = {"fingerprint": "d66c", "labels": {"alertname": "A"}, "startsAt": "2026-11-30T10:38:36Z"}
    for since, says in [("start", "open: no alert fires (1 exempt)"), ("always", "closed: 1 alert fires: A")]:
        with subtests.test(since=since), ScriptedServer() as alerts:
            alerts.on("/api/v2/alerts", reply([{**alert, "status": status}]))
            gate = {"url": alerts.url, "matchers": {"cluster": "lab"}, "since": since}
            book.write_text(json.dumps({"kind": "elasticsearch", "gates": [{"alertmanager": gate}]}))
            said = validate(console, cluster, "--playbook", str(book))
            assert ("ok", "gate", "alertmanager") in marks(said.out)
            assert says in said.out


def test_servers_around_a_run_are_asked(console: Console, cluster: SmallCluster) -> None:
    there = replace(console, environment={"TOKEN": "glsa_hunter2hunter2"})
    with ScriptedServer() as server:
        server.on("/api/v2/silences", reply([]), reply([], status=401))
        server.on("/api/annotations", reply([]), reply({}, status=401))
        keys = {
            "silence": {"alertmanager": {"url": server.url, "matchers": [{"a": "b"}]}},
            "annotations": {"grafana": {"url": server.url, "token": "env:TOKEN"}},
        }
        good, bad = validate(there, cluster, **keys), validate(there, cluster, **keys)
    assert {("ok", "silence", "alertmanager"), ("ok", "annotations", "grafana")} <= set(marks(good.out))
    assert ("BAD", "silence", "alertmanager") in marks(bad.out)
    assert (good.code, bad.code) == (ExitCode.DONE, ExitCode.HELD)
    assert f"{server.url}: 401 So; a run would not make annotations" in bad.out
    assert "hunter2" not in good.out + good.err + bad.out + bad.err


def test_a_dead_endpoint_among_several_is_warned_of(console: Console, cluster: SmallCluster) -> None:
    """While nodes are down, a run has only the others."""
    for words in (("plan",), ("restart", "--dry-run")):
        file = cluster.write_file(console.folder, endpoints=["http://127.0.0.1:1", cluster.url])
        said = console.run(*words, "--cluster", file)
        assert "warning: http://127.0.0.1:1 takes no connections: " in said.err
        assert said.err.count("the other endpoints are used") == 1
        said = console.run(*words, "--cluster", cluster.write_file(console.folder))
        assert "endpoints" not in said.err


def test_waves_in_which_nothing_can_be_read_are_named(console: Console, cluster: SmallCluster) -> None:
    """The only endpoint is a node's own address, and the addresses of the others are private."""
    cluster.addresses = dict.fromkeys(("es2", "es3"), f"127.0.0.1:{free_port()}")
    why = f"nothing of the cluster can be read while es1 is down: {cluster.url} led to no other node"
    said = validate(console, cluster)
    assert (said.code, f"warning: blind in every wave with es1: {why}" in said.err) == (ExitCode.DONE, True)
    said = console.run("plan", "--cluster", cluster.write_file(console.folder))
    assert said.err.count(why) == 1
    assert f"warning: blind in wave 3: {why}" in said.err
    cluster.addresses = {}
    assert "blind" not in validate(console, cluster).err


def test_a_transport_port_among_the_endpoints_is_named(console: Console, cluster: SmallCluster) -> None:
    with ScriptedServer() as transport:
        transport.on("/_nodes/_local/http", cut(b"This is not an HTTP port"))
        file = cluster.write_file(console.folder, endpoints=[cluster.url, transport.url])
        named = f"{transport.url} is a node's transport port: name its HTTP port, usually 9200"
        assert named in console.run("validate", "--cluster", file).out
        assert named in console.run("plan", "--cluster", file).err
