"""The ports of a cluster file: hosts of nodes that a run learns of later, and certificates."""

from __future__ import annotations

import hashlib
import json
import ssl

import pytest

from orchestrator.cli.context import context_of
from orchestrator.cli.options import Output
from orchestrator.model.action import Done, StartNode
from orchestrator.model.cluster import NodeName
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster
from tests.fakes.certificates import Certificates
from tests.fakes.scripted_http import ScriptedServer, reply
from tests.riak_transcripts import STATS

MEMBER, AWAY = NodeName("es1"), NodeName("es7")


@pytest.mark.parametrize("first", [{MEMBER: "127.0.0.1"}, {}])
def test_a_plan_without_a_node_left_down_starts_that_node(
    console: Console, first: dict[NodeName, str]
) -> None:
    """A plan knows of members alone; who is away is in the record of the run that has it in hand."""
    started = console.folder / "started"
    service = {
        "manager": "command",
        "stop": "true",
        "start": f"touch {started}",
        "status": f"test -e {started}",
    }
    with SmallCluster() as server:
        context = context_of(Output.TEXT)
        file = context.cluster(server.write_file(console.folder, hosts={"service": service}))
        ports = context.ports(file)
        try:
            planned = ports.hosts(first)
            hosts = ports.hosts({MEMBER: "127.0.0.1", AWAY: "127.0.0.1"})
            assert isinstance(hosts.perform(StartNode(node=AWAY)), Done)
            assert hosts is planned, "its connections are kept"
        finally:
            ports.close()
    assert started.exists()


def test_the_certificate_of_a_riak_node_must_be_trusted(console: Console) -> None:
    """Or its authority is named, and may break rules of form."""
    certificates = Certificates(console.folder, key_usage=False)
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificates.node.read_text())).hexdigest()
    pinned, other, signed = {"fingerprint": digest}, {"fingerprint": "ab" * 32}, {"ca": "ca.pem"}
    path, wrong = console.folder / "ring.yml", []
    with ScriptedServer(tls=certificates.context()) as server:
        server.on("/stats", reply(STATS.read_bytes()))
        for tls in (pinned, other, {}, signed, signed | {"strict": False}):
            file = {"kind": "riak", "name": "ring", "endpoints": [server.url], "tls": tls}
            path.write_text(json.dumps(file))
            command = context_of(Output.TEXT)
            ports = command.ports(command.cluster(str(path)))
            try:
                wrong.append(ports.cluster.endpoints()[server.url])
            finally:
                ports.close()
    assert (wrong[0], wrong[4]) == (None, None)
    words = (
        "ingerprint",
        "certificate verify failed",
        "does not include key usage extension): issue a new one",
    )
    assert [word for word, said in zip(words, wrong[1:4], strict=True) if word not in (said or "")] == []
