"""`init` against a secured cluster of real nodes, and what `validate` and `plan` make of its file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from orchestrator.config.cluster import load_cluster
from orchestrator.config.elasticsearch import ClusterSpec
from orchestrator.model.host import Manager
from tests.cli.console import Console
from tests.integration.fixtures_processes import ProcessCluster
from tests.integration.secured import OPS, SECURED
from tests.integration.sshd import Sshd, make_key
from tests.lab.nodes import LabCluster

pytestmark = pytest.mark.real

CLUSTER = "9.1.0"
AWARENESS = "cluster.routing.allocation.awareness.attributes"


@pytest.fixture
def lab(process_cluster: ProcessCluster) -> LabCluster:
    return process_cluster(CLUSTER, security=SECURED)


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """An operator with the folders of the lookup and a password in a variable."""
    home, folder = tmp_path / "home", tmp_path / "folder"
    (folder / "configs" / "clusters").mkdir(parents=True)
    home.mkdir()
    return Console(home=home, folder=folder, environment={"ES_PASSWORD": OPS.password})


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """The nodes' one host: they publish the loopback address."""
    server = Sshd(folder=tmp_path / "sshd", client_key=make_key(tmp_path / "id")).start()
    yield server
    server.stop()


def test_a_file_from_one_endpoint_suffices_to_plan(
    lab: LabCluster, console: Console, sshd: Sshd, tmp_path: Path
) -> None:
    lab.client.ask("PUT", "/_cluster/settings", {"persistent": {AWARENESS: "zone"}})
    (known := tmp_path / "known_hosts").write_text(sshd.known())
    endpoint = ("init", "--endpoint", lab.endpoints[1], "--cluster", "prod")
    login = ("--username", OPS.name, "--password", "env:ES_PASSWORD")
    hosts = ("--ssh-port", str(sshd.port), "--identity", str(sshd.client_key), "--known-hosts", str(known))
    ca = ("--ca", str(lab.access.ca))
    path = console.folder / "configs" / "clusters" / "prod.yml"

    for command, says in (
        ((*endpoint, *login, *hosts), "Give the authority with --ca FILE, or compare the fingerprint"),
        ((*endpoint, *ca, *hosts), "missing authentication credentials"),
        ((*endpoint, *ca, "--username", "ops", "--password", "env:NONE"), "NONE is not set"),
    ):
        said = console.run(*command)
        assert (said.code, said.out, path.exists()) == (2, "", False), said
        assert says in said.message

    said = console.run(*endpoint, *ca, *login, *hosts)
    assert said.code == 0, said
    text, file = path.read_text(), load_cluster(path, home=console.home)
    assert isinstance(spec := file.spec, ClusterSpec)
    assert (spec.name, spec.expect.nodes) == (lab.name, 3)
    assert spec.endpoints[0] == lab.endpoints[1]
    assert set(spec.endpoints) == set(lab.endpoints)
    assert OPS.password not in text + said.out + said.err
    zones = ", ".join(sorted(f"{node.zone} (1 node)" for node in lab.nodes))
    assert f"# Zones: the cluster's awareness attribute is zone: {zones}." in text
    # The hosts were reached; a lab node runs under no service manager, so the usual one is written.
    assert "host key" not in said.err
    assert "refuses" not in said.err
    assert spec.hosts.service.manager is Manager.SYSTEMD

    again = console.run(*endpoint, *ca, *login, *hosts)
    assert (again.code, path.read_text()) == (2, text)
    assert "exists; nothing is overwritten" in again.message

    checks = [
        line
        for line in console.run("validate", "--cluster", "prod", "--output", "json").lines
        if "good" in line
    ]
    good = {(line["subject"], line["point"]): line["good"] for line in checks}
    assert {good["cluster", point] for point in ("identity", "endpoint", "settings", "disks", "lease")} == {
        True
    }
    assert {good[node.name, "log_in"] for node in lab.nodes} == {True}

    correct_service(path, lab)
    validated = console.run("validate", "--cluster", "prod")
    assert validated.code == 0, validated
    planned = console.run("plan", "--cluster", "prod", "--output", "json")
    assert planned.code == 0, planned
    waves = planned.lines[0]["waves"]
    assert sorted(node for wave in waves for node in wave["nodes"]) == sorted(node.name for node in lab.nodes)


def correct_service(path: Path, lab: LabCluster) -> None:
    """What an operator does where the service is another than the usual one."""
    yaml = YAML()
    content = yaml.load(path)
    written = lab.cluster_document()["hosts"]
    assert isinstance(written, dict)
    content["hosts"]["service"] = json.loads(json.dumps(written["service"]))
    content["hosts"]["sudo"] = False
    yaml.dump(content, path)


def test_an_unknown_host_key_stays_unknown(
    lab: LabCluster, console: Console, sshd: Sshd, tmp_path: Path
) -> None:
    """The file is written; the key is neither taken nor asked for."""
    (known := tmp_path / "known_hosts").write_text("")
    said = replace(console).run(
        *("init", "--endpoint", lab.endpoints[0], "--out", "new.yml", "--ca", str(lab.access.ca)),
        *("--username", OPS.name, "--password", "env:ES_PASSWORD", "--ssh-port", str(sshd.port)),
        *("--identity", str(sshd.client_key), "--known-hosts", str(known)),
    )
    assert said.code == 0, said
    assert "no connection to" in said.err
    assert "host key" in said.err
    assert known.read_text() == ""
    assert "host key" in " ".join((console.folder / "new.yml").read_text().replace("#", " ").split())
