"""What the command line makes of the `hosts` of a cluster file."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.cluster import load_cluster
from orchestrator.config.secrets import SecretResolver
from orchestrator.model.cluster import NodeName
from orchestrator.runs.file_hosts import host_settings

OWN = ("/etc/es/known_hosts",)


@pytest.mark.parametrize(
    ("hosts", "es1", "es2"),
    [
        ("{}", (), ()),
        ("{user: ops}", (), ()),
        ("{known_hosts: /etc/es/known_hosts}", OWN, OWN),
        ("{known_hosts: ~/.ssh/known_hosts}", ("/home/.ssh/known_hosts",), ("/home/.ssh/known_hosts",)),
        ("{overrides: {es2: {known_hosts: /etc/es/known_hosts}}}", (), OWN),
    ],
)
def test_host_keys_are_those_of_ssh_unless_the_file_names_them(
    tmp_path: Path, hosts: str, es1: tuple[str, ...], es2: tuple[str, ...]
) -> None:
    path = tmp_path / "prod.yml"
    path.write_text(f"kind: elasticsearch\nname: prod\nendpoints: [http://127.0.0.1:9200]\nhosts: {hosts}\n")
    file = load_cluster(path, home=Path("/home"))
    resolver = SecretResolver(environment={}, folder=tmp_path, home=Path("/home"))
    found = host_settings(file, {NodeName("es1"): "10.0.0.1", NodeName("es2"): "10.0.0.2"}, resolver)
    assert [found[NodeName(name)].known_hosts for name in ("es1", "es2")] == [es1, es2]


def test_data_paths_of_the_file_unless_a_node_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "prod.yml"
    path.write_text(
        "kind: elasticsearch\nname: prod\nendpoints: [http://127.0.0.1:9200]\n"
        "hosts:\n  data: ['/data/{node}', /more]\n"
        "  overrides: {es2: {data: [/fast]}, es3: {data: []}, 'es*': {user: ops}}\n"
    )
    file = load_cluster(path, home=Path("/home"))
    resolver = SecretResolver(environment={}, folder=tmp_path, home=Path("/home"))
    found = host_settings(file, {NodeName(f"es{number}"): "10.0.0.1" for number in (1, 2, 3)}, resolver)
    assert {name: host.data_paths for name, host in found.items()} == {
        "es1": ("/data/es1", "/more"),
        "es2": ("/fast",),
        "es3": (),
    }
    assert all(host.root == "" for host in found.values())
