"""What the command line makes of the `hosts` of a cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.config.cluster import load_cluster
from orchestrator.config.secrets import SecretResolver
from orchestrator.errors import ConfigError
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings
from orchestrator.riak.contact import Contacts
from orchestrator.runs.from_file import FilePorts, Files
from orchestrator.runs.kinds import PortsOfRiak
from orchestrator.runs.reach import host_settings
from orchestrator.runtime.waiting import SystemClock
from tests.fakes.cases import rows

ADDRESSES = {"es1": "10.0.0.1", "es2": "10.0.0.2", "es3": "10.0.0.3"}
ROWS = rows("hosts/composed.yml")


def settings(folder: Path, hosts: str, **addresses: str) -> Mapping[NodeName, HostSettings]:
    """Of the nodes of a file with these `hosts`, which publish these addresses."""
    path = folder / "prod.yml"
    path.write_text(f"kind: elasticsearch\nname: prod\nendpoints: [http://127.0.0.1:9200]\nhosts: {hosts}\n")
    resolver = SecretResolver(environment={}, folder=folder, home=Path("/home"))
    published = {NodeName(name): at for name, at in {**ADDRESSES, **addresses}.items()}
    return host_settings(load_cluster(path, home=Path("/home")), published, resolver)


def test_host_keys_are_those_of_ssh_unless_the_file_names_them(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for hosts, *expected in ROWS["known_hosts"]:
        with subtests.test(hosts):
            found = settings(tmp_path, hosts)
            assert [list(found[NodeName(name)].known_hosts) for name in ("es1", "es2")] == expected


def test_an_address_of_another_node_is_refused(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """A stop of the one would stop the other, which was checked for none."""
    for hosts, wrong in ROWS["addresses"]:
        with subtests.test(hosts):
            if wrong is None:
                assert len(settings(tmp_path, hosts)) == 3
                continue
            with pytest.raises(ConfigError, match=f"a stop of {wrong} would stop es") as refused:
                settings(tmp_path, hosts)
            said = f"{wrong} publishes {ADDRESSES[wrong]}, so correct its address"
            assert said in str(refused.value)
    same = "{overrides: {es2: {address: 10.0.0.3}}}"
    assert len(settings(tmp_path, same, es2="10.0.0.3")) == 3, "both publish it"


def test_data_paths_of_the_file_unless_a_node_has_its_own(tmp_path: Path) -> None:
    overrides = "{es2: {data: [/fast]}, es3: {data: []}, 'es*': {user: ops}}"
    found = settings(tmp_path, f"{{data: ['/data/{{node}}', /more], overrides: {overrides}}}")
    assert {name: host.data_paths for name, host in found.items()} == {
        "es1": ("/data/es1", "/more"),
        "es2": ("/fast",),
        "es3": (),
    }
    assert all(host.root == "" for host in found.values())


def test_an_override_that_equals_a_default_is_one(subtests: pytest.Subtests, tmp_path: Path) -> None:
    learnt = {NodeName("es1"): ("/data",), NodeName("es2"): ("/data",)}
    files = Files(environment={}, home=Path("/home"), warn=lambda _line: None)
    for general, override, key, value in ROWS["overrides"]:
        with subtests.test(override=override, general=general):
            path = tmp_path / "prod.yml"
            hosts = f"{{{general}, overrides: {{es2: {{{override}}}}}}}"
            path.write_text(
                f"kind: elasticsearch\nname: prod\nendpoints: [http://127.0.0.1:9200]\nhosts: {hosts}\n"
            )
            with closing(FilePorts(load_cluster(path, home=Path("/home")), files, SystemClock())) as ports:
                addresses = {NodeName(name): at for name, at in ADDRESSES.items()}
                settings = ports.hosts(addresses, learnt)._settings
            found = [getattr(settings[NodeName(name)], key) for name in ("es1", "es2")]
            shown = [list(one) if isinstance(one, tuple) else getattr(one, "value", one) for one in found]
            assert (shown[1] == value, shown[0] == value) == (True, False)


def test_riak_is_reached_at_the_address_of_its_machine(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """Over HTTP as over SSH, by the name of the node, its host or a glob."""
    files = Files(environment={}, home=Path("/home"), warn=lambda _line: None)
    for name in ("riak4", "riak@riak4", "'*4'"):
        path = tmp_path / "ring.yml"
        path.write_text(
            "kind: riak\nname: ring\nendpoints: [http://riak1:8098]\nhosts:\n  nodes: {riak1: 10.0.0.1}\n"
            f"  overrides: {{{name}: {{address: 10.1.0.4}}}}\n"
        )
        with subtests.test(name=name):
            with closing(FilePorts(load_cluster(path, home=Path("/home")), files, SystemClock())) as ports:
                assert isinstance(ports._kind, PortsOfRiak)
                contacts = Contacts(ports._kind.reach)
                found = {
                    node: contacts.http(NodeName(f"riak@{node}"))._url for node in ("riak1", "riak2", "riak4")
                }
            assert found == {
                "riak1": "http://10.0.0.1:8098",
                "riak2": "http://riak2:8098",
                "riak4": "http://10.1.0.4:8098",
            }
            assert contacts.address(NodeName("riak@riak4")) == "10.1.0.4"
