"""Cluster files of kind riak: members, machines, and the commands that each node is reached by."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.cluster import ClusterFile, RiakClusterSpec, check_cluster
from orchestrator.config.riak import RiakWords
from orchestrator.config.services import ServiceSettings
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError
from orchestrator.model.hosts import Manager
from orchestrator.model.policy import Kind

HEAD = "kind: riak\nname: ring\nendpoints: ['http://riak1:8098']\n"


def _cluster(text: str = "") -> ClusterFile:
    document = parse(HEAD + text, "ring.yml")
    return check_cluster(document, path=Path("/etc/o/ring.yml"), home=Path("/home/op"))


def _commands(program: str = "/usr/sbin/riak") -> ServiceSettings:
    return ServiceSettings(
        manager=Manager.COMMAND,
        stop=f"{program} stop",
        start=f"{program} start",
        status=f"{program} ping",
        status_as_root=True,
    )


def test_a_file_may_say_next_to_nothing() -> None:
    cluster = _cluster()
    spec = cluster.spec
    assert isinstance(spec, RiakClusterSpec)
    assert (spec.playbook, spec.kind, spec.name) == ("riak-rolling-restart", Kind.RIAK, "ring")
    host = cluster.host("riak@riak1")
    assert (host.address, host.sudo, host.service) == ("riak1", "auto", _commands())
    assert cluster.secret_references() == ()


def test_overrides_match_host_or_full_name_and_the_latter_wins() -> None:
    cluster = _cluster(
        """hosts:
  nodes: {riak1: 10.0.0.1, riak2: 10.0.0.2}
  overrides:
    riak@riak1: {user: full, address: 10.9.9.9}
    riak1: {user: host, port: 1}
    "riak*": {user: glob, port: 2, sudo: false}
    "10.0.0.*": {port: 4}
    riak2: {port: 5}
"""
    )
    one = cluster.host("riak@riak1")
    assert (one.user, one.port, one.address, one.sudo) == ("full", 1, "10.9.9.9", False)
    assert one.service == _commands()
    two = cluster.host("riak@10.0.0.2")
    assert (two.user, two.port, two.address) == ("glob", 5, "10.0.0.2")
    three = cluster.host("other@riak3")
    assert (three.user, three.port, three.address) == ("glob", 2, "riak3")
    assert cluster.host("other@elsewhere").user is None


def test_entries_of_hosts_that_fit_no_member_are_warned_of() -> None:
    cluster = _cluster(
        """hosts:
  nodes:
    riak1: 10.0.0.1
    riak2: 10.0.0.2
    riak@riak3: 10.0.0.3
    riak4: 10.0.0.4
  overrides:
    riak1: {port: 1}
    riak9: {port: 1}
"""
    )
    assert cluster.overrides_without_node(["riak@riak1", "riak@10.0.0.2", "riak@riak3"]) == (
        "ring.yml:12: hosts.overrides.riak9: no node of the cluster is called so",
        "ring.yml:9: hosts.nodes.riak4: no node of the cluster is called so",
    )


def test_riak_words_of_each_node(subtests: pytest.Subtests) -> None:
    placeholders = "riak: {command: '/opt/{name}/bin/riak', admin: 'in-{host} {node} admin'}\n"
    overrides = """riak: {command: /usr/sbin/riak, admin: riak admin}
hosts:
  overrides:
    dev2@127.0.0.1: {riak: {command: "/opt/two/{name}"}}
    "dev*": {riak: {command: /opt/glob/riak, admin: /opt/glob/riak admin}}
"""
    glob = ("/opt/glob/riak", "admin")
    for text, node, command, admin in [
        ("", "riak@riak1", "/usr/sbin/riak", ()),
        ("riak: {command: /opt/riak, admin: riak admin}\n", "riak@riak1", "/opt/riak", ("riak", "admin")),
        (placeholders, "dev1@127.0.0.1", "/opt/dev1/bin/riak", ("in-127.0.0.1", "dev1@127.0.0.1", "admin")),
        (placeholders, "dev3", "/opt/dev3/bin/riak", ("in-dev3", "dev3", "admin")),
        # Key by key, and the full name wins.
        (overrides, "dev2@127.0.0.1", "/opt/two/dev2", glob),
        (overrides, "dev3@127.0.0.1", "/opt/glob/riak", glob),
        (overrides, "riak@a", "/usr/sbin/riak", ("riak", "admin")),
    ]:  # fmt: skip
        with subtests.test(text=text, node=node):
            cluster = _cluster(text)
            words = RiakWords(command=(command,), admin=admin) if admin else RiakWords(command=(command,))
            assert cluster.riak_words(node) == words
            assert cluster.host(node).service == _commands(command)


def test_a_name_with_shell_characters_goes_into_no_command() -> None:
    cluster = _cluster("riak: {command: '/opt/{name}/riak'}\n")
    for ask in (cluster.riak_words, cluster.host):
        with pytest.raises(ConfigError) as caught:
            ask("a;reboot@riak1")
        assert str(caught.value) == (
            "ring.yml:4: riak: riak.command: the name of node a;reboot@riak1 means something to a shell"
        )


def test_the_service_is_riak_itself_unless_the_file_says() -> None:
    usual = _cluster("riak: {command: docker exec riak riak}\nhosts: {sudo: false, service: {start: mine}}\n")
    assert usual.host("riak@a").service == ServiceSettings(
        manager=Manager.COMMAND,
        stop="docker exec riak riak stop",
        start="mine",
        status="docker exec riak riak ping",
        status_as_root=True,
    )
    for manager in (Manager.SYSTEMD, Manager.SYSV, Manager.DOCKER):
        chosen = _cluster(f"hosts: {{service: {{manager: {manager.value}}}}}\n")
        assert chosen.host("riak@a").service == ServiceSettings(manager=manager, unit="riak")
    mixed = _cluster(
        "hosts:\n  service: {manager: systemd, unit: riak-kv}\n"
        "  overrides:\n    b: {service: {manager: command}}\n"
    )
    assert mixed.host("riak@a").service == ServiceSettings(manager=Manager.SYSTEMD, unit="riak-kv")
    assert mixed.host("riak@b").service == _commands()


def test_a_status_of_the_operator_s_own_is_run_as_it_is() -> None:
    """Only `riak ping` is known to need root; a line of the file has its own `sudo` where it needs one."""
    own = _cluster("hosts: {service: {status: pgrep beam.smp}}\n").host("riak@a").service
    assert (own.status, own.status_as_root) == ("pgrep beam.smp", False)


@pytest.mark.parametrize("path", ["var/tmp", "''", '"/var/\\ntmp"'])
def test_the_folder_of_the_lease_is_absolute(path: str) -> None:
    with pytest.raises(ConfigError, match=r"riak\.lease_directory"):
        _cluster(f"riak: {{lease_directory: {path}}}\n")


def test_named_nodes_have_the_files_address_or_their_own() -> None:
    text = """hosts:
  nodes: {riak1: 10.0.0.1, riak3: 10.0.0.3}
  overrides:
    riak@riak1: {}
    riak@10.0.0.2: {}
    riak@riak4: {address: 10.1.0.4}
    "riak@10.*": {}
"""
    assert _cluster(text).named_nodes() == {
        "riak@riak1": "10.0.0.1",
        "riak@10.0.0.2": "10.0.0.2",
        "riak@riak4": "10.1.0.4",
        "riak3": "10.0.0.3",
    }
    assert _cluster(text).host("riak@riak1").address == "10.0.0.1"
