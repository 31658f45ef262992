# ruff: noqa: E501  (messages stand in one piece, as they are shown)
"""Cluster files of kind elasticsearch: what they mean, what is warned of, and the files that they name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from orchestrator.config.cluster import ClusterFile, ClusterSpec, check_cluster, load_cluster
from orchestrator.config.hosts import HostSettings
from orchestrator.config.services import ServiceSettings
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError
from orchestrator.model.hosts import Connect, Manager
from orchestrator.model.policy import Together
from tests.lab.security import Security, write_security

HOME = Path("/home/op")
HEAD = "kind: elasticsearch\nname: prod\n"
ENDPOINTS = "endpoints: ['http://localhost:9200']\n"
USUAL = HostSettings(
    connect=Connect.SSH,
    address=None,
    user=None,
    port=None,
    identity=None,
    known_hosts=HOME / ".ssh" / "known_hosts",
    sudo="auto",
    sudo_password=None,
    service=ServiceSettings(manager=Manager.SYSTEMD, unit="elasticsearch"),
)


def _cluster(text: str, *, endpoints: str = ENDPOINTS, folder: Path = Path("/etc/es")) -> ClusterFile:
    return check_cluster(parse(HEAD + endpoints + text, "prod.yml"), path=folder / "prod.yml", home=HOME)


def _spec(text: str, *, endpoints: str = ENDPOINTS) -> ClusterSpec:
    spec = _cluster(text, endpoints=endpoints).spec
    assert isinstance(spec, ClusterSpec)
    return spec


def test_the_example_of_the_contract_is_read_to_the_letter() -> None:
    cluster = _cluster(
        """auth: {api_key: env:ES_API_KEY}
tls: {ca: ca.pem, verify: true}
zone_attribute: zone
playbook: elasticsearch-rolling-restart
expect: {nodes: 30}
hosts:
  connect: ssh
  user: deploy
  port: 22
  identity: ~/.ssh/id_ed25519
  known_hosts: ~/.ssh/known_hosts
  sudo: true
  service:
    manager: systemd
    unit: elasticsearch
  together: reboot
  overrides:
    es7: {address: 10.1.0.7, port: 2222}
""",
        endpoints='endpoints: ["https://es1:9200", "https://es2:9200"]\n',
    )
    spec = cluster.spec
    assert isinstance(spec, ClusterSpec)
    assert spec.endpoints == ("https://es1:9200", "https://es2:9200")
    assert spec.auth is not None
    assert str(spec.auth.api_key) == "env:ES_API_KEY"
    assert (spec.zone_attribute, spec.expect.nodes) == ("zone", 30)
    assert spec.playbook == "elasticsearch-rolling-restart"
    assert cluster.local_path("ca.pem") == Path("/etc/es/ca.pem")
    assert cluster.warnings == ()
    host = replace(USUAL, user="deploy", port=22, identity=HOME / ".ssh" / "id_ed25519", sudo=True)
    assert cluster.host("es1") == host
    assert cluster.host("es7") == replace(host, address="10.1.0.7", port=2222)


def test_a_file_may_say_next_to_nothing() -> None:
    cluster = _cluster("")
    assert cluster.spec.hosts.together is Together.REBOOT
    assert _spec("").auth is None
    assert cluster.host("es1") == USUAL


def test_overrides_apply_globs_first_then_the_exact_name() -> None:
    cluster = _cluster(
        """hosts:
  sudo: false
  service: {unit: "es-{node}"}
  overrides:
    cold-1: {port: 1, address: "10.0.0.1"}
    cold-*: {port: 2, user: cold, known_hosts: hosts}
    "*-1": {user: first, sudo: {password: "file:sudo.txt"}, identity: /keys/first}
    "7": {connect: local}
    "8": {connect: openssh}
"""
    )
    one = cluster.host("cold-1")
    assert (one.port, one.address, one.user, one.sudo) == (1, "10.0.0.1", "first", True)
    assert str(one.sudo_password) == "file:sudo.txt"
    assert (one.known_hosts, one.identity) == (Path("/etc/es/hosts"), Path("/keys/first"))
    assert one.service == ServiceSettings(manager=Manager.SYSTEMD, unit="es-{node}")
    two = cluster.host("cold-2")
    assert (two.port, two.address, two.user, two.sudo, two.sudo_password) == (2, None, "cold", False, None)
    assert cluster.host("7").connect is Connect.LOCAL
    assert cluster.host("8").connect is Connect.OPENSSH


def test_a_service_is_overridden_by_key_or_with_its_manager() -> None:
    cluster = _cluster(
        """hosts:
  service: {manager: command, stop: s, start: t, status: u}
  overrides:
    es2: {service: {stop: halt}}
    es3: {service: {manager: docker, unit: "es-{node}"}}
    es4: {service: {manager: sysv}}
"""
    )
    command = ServiceSettings(manager=Manager.COMMAND, stop="s", start="t", status="u")
    assert {node: cluster.host(node).service for node in ("es1", "es2", "es3", "es4")} == {
        "es1": command,
        "es2": replace(command, stop="halt"),
        "es3": ServiceSettings(manager=Manager.DOCKER, unit="es-{node}"),
        "es4": ServiceSettings(manager=Manager.SYSV, unit="elasticsearch"),
    }


def test_overrides_that_contradict_each_other_are_refused() -> None:
    cluster = _cluster(
        """hosts:
  overrides:
    es*: {service: {manager: command, stop: s, start: t, status: u}}
    es7: {service: {unit: other}}
"""
    )
    assert cluster.host("es1").service.stop == "s"
    with pytest.raises(ConfigError) as caught:
        cluster.host("es7")
    assert str(caught.value).startswith(
        "prod.yml:5: hosts.overrides: those that match node es7 do not fit together: unit: not for `manager: command`"
    )


def test_what_weakens_the_way_to_the_cluster_is_warned_of(subtests: pytest.Subtests) -> None:
    auth = "auth: {basic: {username: op, password: env:PW}}\n"
    local = "['http://127.0.0.1:9200', 'http://localhost:9200', 'http://[::1]:9200', 'https://es1:9200']"
    for text, endpoints, warnings in [
        (auth, local, ()),
        ("", "['http://es1:9200']", ()),
        (auth, "['https://es1:9200', 'http://es2:9200']", ("prod.yml:3: endpoints[1]: the credentials of `auth` go over plain HTTP, readable on the way; use https://",)),
        ("tls: {verify: false}\n", "['https://es1:9200']", ("prod.yml:4: tls.verify: certificates are not checked, and any server is accepted; use `ca` or `fingerprint`",)),
        ("tls: {ca: ca.pem}\n", "['http://es1:9200']", ("prod.yml:4: tls: has no effect: no endpoint begins with https://",)),
    ]:  # fmt: skip
        with subtests.test(text=text, endpoints=endpoints):
            assert _cluster(text, endpoints=f"endpoints: {endpoints}\n").warnings == warnings


def test_product_and_version_are_named_together(subtests: pytest.Subtests) -> None:
    spec = _spec("product: opensearch\nversion: 2.19.0\n")
    assert (spec.product, spec.version) == ("opensearch", "2.19.0")
    for wrong, reason in [
        ("product: opensearch\n", "`product` and `version` go together"),
        ("version: 2.19.0\n", "`product` and `version` go together"),
        ("product: couchdb\nversion: 2.19.0\n", "product"),
        ("product: opensearch\nversion: latest\n", "must be like"),
    ]:
        with subtests.test(wrong=wrong), pytest.raises(ConfigError, match=reason):
            _cluster(wrong)


def test_an_endpoint_may_have_a_path_and_loses_its_last_slash() -> None:
    spec = _spec("", endpoints="endpoints: ['https://proxy:443/es/']\n")
    assert spec.endpoints == ("https://proxy:443/es",)


def test_every_secret_is_listed_with_its_place() -> None:
    cluster = _cluster(
        """auth:
  basic:
    username: op
    password: env:PW
hosts:
  sudo: {password: command:pass show sudo}
  overrides:
    es7: {sudo: {password: "keyring:sudo/es7"}}
"""
    )
    assert [(str(secret), str(secret.place)) for secret in cluster.secret_references()] == [
        ("env:PW", "prod.yml:7: auth.basic.password"),
        ("command:pass show sudo", "prod.yml:9: hosts.sudo.password"),
        ("keyring:sudo/es7", "prod.yml:11: hosts.overrides.es7.sudo.password"),
    ]
    assert [str(one) for one in _cluster("auth: {api_key: env:K}\n").secret_references()] == ["env:K"]


def test_files_that_are_not_there_are_named_by_line_and_key(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    text = "tls:\n  ca: ca.pem\n  client_cert: c.pem\nhosts:\n  identity: id\n  overrides:\n    es7: {identity: id7}\n"
    with pytest.raises(ConfigError) as caught:
        _cluster(text, folder=tmp_path).check_files()
    assert str(caught.value).splitlines() == [
        f"prod.yml:6: tls.client_cert: {tmp_path}/c.pem cannot be read: No such file or directory",
        f"prod.yml:8: hosts.identity: {tmp_path}/id cannot be read: No such file or directory",
        f"prod.yml:10: hosts.overrides.es7.identity: {tmp_path}/id7 cannot be read: No such file or directory",
    ]


def test_certificates_that_are_none_are_named_by_line_and_key(tmp_path: Path) -> None:
    write_security(Security(users=()), ca=tmp_path / "ca.pem", configs=[tmp_path])
    locked = load_pem_private_key((tmp_path / "node.key").read_bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hunter2")
    )
    (tmp_path / "locked.key").write_bytes(locked)
    (tmp_path / "text.pem").write_text("x")
    good = "tls: {ca: ca.pem, client_cert: node.crt, client_key: node.key}\n"
    _cluster(good, folder=tmp_path).check_files()
    with pytest.raises(ConfigError) as caught:
        _cluster("tls:\n  ca: text.pem\n  client_cert: text.pem\n", folder=tmp_path).check_files()
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"prod.yml:5: tls.ca: {tmp_path}/text.pem holds no certificate in PEM")
    assert second.startswith(f"prod.yml:6: tls.client_cert: {tmp_path}/text.pem cannot be used; ")
    for key in ("locked.key", "text.pem"):
        with pytest.raises(ConfigError, match=r"^prod\.yml:4: tls\.client_cert: .*without a passphrase"):
            _cluster(good.replace("node.key", key), folder=tmp_path).check_files()


def test_overrides_for_nodes_that_are_not_there_are_warned_of() -> None:
    text = "hosts:\n  overrides:\n    es1: {port: 23}\n    'es[2-3]': {port: 24}\n    'es3*': {port: 25}\n    es7: {port: 26}\n"
    file = _cluster(text)
    assert file.overrides_without_node(["es1", "es2"]) == (
        "prod.yml:8: hosts.overrides.es3*: no node of the cluster is called so",
        "prod.yml:9: hosts.overrides.es7: no node of the cluster is called so",
    )
    assert file.overrides_without_node(["es1", "es2", "es33", "es7", "es8"]) == ()


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "prod.yml"
    path.write_text(f"{HEAD}{ENDPOINTS}expect: {{nodes: -1}}\n")
    with pytest.raises(ConfigError) as caught:
        load_cluster(path, home=HOME)
    assert str(caught.value) == f"{path}:4: expect.nodes: must be at least 1"
