# ruff: noqa: E501  (messages stand in one piece, as they are shown)
"""Cluster files: what they mean, what is warned of, and the files that they name.

Files and what is read of them are in `tests/data/config/read`.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from orchestrator.config.cluster import ClusterFile, HostsFile, check_cluster, check_hosts, load_cluster
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError
from tests.fakes.cases import cases
from tests.fakes.plain import plain
from tests.lab.security import Security, write_security

HOME = Path("/home/op")
HEADS = {
    "elasticsearch": "kind: elasticsearch\nname: prod\nendpoints: ['http://localhost:9200']\n",
    "riak": "kind: riak\nname: ring\nendpoints: ['http://riak1:8098']\n",
    "hosts": "kind: hosts\nname: cass\nhosts:\n  names: {cass1: {}, cass2: {address: 10.1.0.2}}\n",
}
"""What `HEAD` stands for in the cases."""


def _cluster(text: str, *, folder: Path = Path("/etc/o"), kind: str = "elasticsearch") -> ClusterFile:
    document = parse(text.replace("HEAD\n", HEADS[kind], 1), "prod.yml")
    return check_cluster(document, path=folder / "prod.yml", home=HOME)


def _said(file: HostsFile, line: str) -> str:
    """The line of a case as the file has it: what it says of a node, of itself or of names of nodes."""
    head, _, expected = line.partition(": ")
    what, _, name = head.partition(" ")
    match what:
        case "named":
            return f"{head}: {plain(file.named_nodes())}"
        case "unmatched":
            return f"{head}: {plain(file.overrides_without_node(name.split()))}"
        case "refused":
            with pytest.raises(ConfigError) as caught:
                file.host(name)
            return f"{head}: {caught.value}"
    of = {"host": file.host, "words": file.riak_words, "spec": lambda _: file.spec}[what](name)
    keys = [fact.partition("=")[0] for fact in expected.split("; ")]
    return f"{head}: " + "; ".join(f"{key}={plain(attrgetter(key)(of))}" for key in keys)


@pytest.mark.parametrize("kind", HEADS)
def test_what_a_cluster_file_means(subtests: pytest.Subtests, kind: str) -> None:
    """All of its warnings and secrets too."""
    for text, expected in cases(f"config/read/{kind}.txt"):
        with subtests.test(text):
            document = parse(text.replace("HEAD\n", HEADS[kind], 1), "prod.yml")
            file = check_hosts(document, path=Path("/etc/o/prod.yml"), home=HOME)
            listed = [f"warning: {each}" for each in file.warnings]
            listed += [f"secret: {each.place}: {each}" for each in file.secret_references()]
            facts = [line for line in expected if not line.startswith(("warning: ", "secret: "))]
            assert [line for line in expected if line not in facts] == listed
            assert [_said(file, line) for line in facts] == facts


def test_files_that_are_not_there_are_named_by_line_and_key(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    text = "tls:\n  ca: ca.pem\n  client_cert: c.pem\nhosts:\n  identity: id\n  overrides:\n    es7: {identity: id7}\n"
    with pytest.raises(ConfigError) as caught:
        _cluster(f"HEAD\n{text}", folder=tmp_path).check_files()
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
    good = "HEAD\ntls: {ca: ca.pem, client_cert: node.crt, client_key: node.key}\n"
    _cluster(good, folder=tmp_path).check_files()
    with pytest.raises(ConfigError) as caught:
        _cluster("HEAD\ntls:\n  ca: text.pem\n  client_cert: text.pem\n", folder=tmp_path).check_files()
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"prod.yml:5: tls.ca: {tmp_path}/text.pem holds no certificate in PEM")
    assert second.startswith(f"prod.yml:6: tls.client_cert: {tmp_path}/text.pem cannot be used; ")
    for key in ("locked.key", "text.pem"):
        with pytest.raises(ConfigError, match=r"^prod\.yml:4: tls\.client_cert: .*without a passphrase"):
            _cluster(good.replace("node.key", key), folder=tmp_path).check_files()


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "prod.yml"
    path.write_text(f"{HEADS['elasticsearch']}expect: {{nodes: -1}}\n")
    with pytest.raises(ConfigError) as caught:
        load_cluster(path, home=HOME)
    assert str(caught.value) == f"{path}:4: expect.nodes: must be at least 1"
