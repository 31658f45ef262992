"""What the command line makes of the `hosts` of a cluster file."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.cluster import load_cluster
from orchestrator.config.secrets import SecretResolver
from orchestrator.errors import ConfigError
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


COMMANDS = "{manager: command, stop: s, start: s, status: s}"


@pytest.mark.parametrize(
    ("hosts", "es2", "wrong"),
    [
        ("{overrides: {es2: {address: 10.0.0.3}}}", "10.0.0.2", "es2"),
        ("{overrides: {es3: {address: 10.0.0.2}}}", "10.0.0.2", "es3"),
        ("{overrides: {'es[12]': {address: db.example}}}", "10.0.0.2", "es2"),
        ("{service: {unit: 'es-{node}'}, overrides: {es2: {address: 10.0.0.3}}}", "10.0.0.2", None),
        ("{overrides: {es2: {address: 10.0.0.3, port: 2222}}}", "10.0.0.2", None),
        ("{overrides: {es2: {address: 10.0.0.3}}}", "10.0.0.3", None),
        (f"{{service: {COMMANDS}, overrides: {{es2: {{address: 10.0.0.3}}}}}}", "10.0.0.2", None),
    ],
)
def test_an_address_of_another_node_is_refused(
    tmp_path: Path, hosts: str, es2: str, wrong: str | None
) -> None:
    """A stop of the one would stop the other, which was checked for none."""
    path = tmp_path / "prod.yml"
    path.write_text(f"kind: elasticsearch\nname: prod\nendpoints: [http://127.0.0.1:9200]\nhosts: {hosts}\n")
    file = load_cluster(path, home=Path("/home"))
    resolver = SecretResolver(environment={}, folder=tmp_path, home=Path("/home"))
    published = {"es1": "10.0.0.1", "es2": es2, "es3": "10.0.0.3"}
    addresses = {NodeName(name): at for name, at in published.items()}
    if wrong is None:
        assert len(host_settings(file, addresses, resolver)) == 3
        return
    with pytest.raises(ConfigError, match=f"a stop of {wrong} would stop es") as refused:
        host_settings(file, addresses, resolver)
    assert f"{wrong} publishes {published[wrong]}, so correct its address" in str(refused.value)


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
