"""What the command line makes of the `hosts` of a cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.config.cluster import load_cluster
from orchestrator.config.secrets import SecretResolver
from orchestrator.errors import ConfigError
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.cluster import NodeName
from orchestrator.runs.file_hosts import host_settings

ADDRESSES = {"es1": "10.0.0.1", "es2": "10.0.0.2", "es3": "10.0.0.3"}
OWN, HOME = ("/etc/es/known_hosts",), ("/home/.ssh/known_hosts",)


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
    for hosts, es1, es2 in [
        ("{}", (), ()),
        ("{user: ops}", (), ()),
        ("{known_hosts: /etc/es/known_hosts}", OWN, OWN),
        ("{known_hosts: ~/.ssh/known_hosts}", HOME, HOME),
        ("{overrides: {es2: {known_hosts: /etc/es/known_hosts}}}", (), OWN),
    ]:
        with subtests.test(hosts):
            found = settings(tmp_path, hosts)
            assert [found[NodeName(name)].known_hosts for name in ("es1", "es2")] == [es1, es2]


def test_an_address_of_another_node_is_refused(subtests: pytest.Subtests, tmp_path: Path) -> None:
    """A stop of the one would stop the other, which was checked for none."""
    commands = "{manager: command, stop: s, start: s, status: s}"
    for hosts, wrong in {
        "{overrides: {es2: {address: 10.0.0.3}}}": "es2",
        "{overrides: {es3: {address: 10.0.0.2}}}": "es3",
        "{overrides: {'es[12]': {address: db.example}}}": "es2",
        "{service: {unit: 'es-{node}'}, overrides: {es2: {address: 10.0.0.3}}}": None,
        "{overrides: {es2: {address: 10.0.0.3, port: 2222}}}": None,
        f"{{service: {commands}, overrides: {{es2: {{address: 10.0.0.3}}}}}}": None,
    }.items():
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
