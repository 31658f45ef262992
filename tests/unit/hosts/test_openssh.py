"""The operator's own `ssh`: what its messages mean, and how it is sent over a jump host."""

from __future__ import annotations

import pytest

from orchestrator.hosts.check import check_host
from orchestrator.hosts.connection import Trouble, Unreachable
from orchestrator.hosts.connections.openssh import diagnosed, jump_words, was_not_sent, was_refused
from orchestrator.hosts.connections.pool import Connections
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings
from orchestrator.redact import Redactor
from orchestrator.untrusted import one_line
from tests.fakes.cases import cases


def test_what_ssh_says_has_a_cause(subtests: pytest.Subtests) -> None:
    for text, (trouble, *words) in cases("hosts/ssh_messages.txt"):
        with subtests.test(text=text):
            found, reason = diagnosed("es1", text.replace("\n", "\r\n"))
            assert found is Trouble[trouble]
            assert reason.startswith("ssh cannot connect to es1 (")
            assert [word for word in words if word not in one_line(f"host of es1: {reason}")] == []


def test_why_the_other_way_fails_is_said_too() -> None:
    """Also where it is a fault of the same kind: `ssh` refuses a line that this program does not follow."""

    class Refusing(Connections):
        def to(self, settings: HostSettings) -> Unreachable:
            return Unreachable(trouble=Trouble.SETTINGS, reason=f"refused by {settings.connect.value}")

    for connect, other in ((Connect.SSH, Connect.OPENSSH), (Connect.OPENSSH, Connect.SSH)):
        settings = HostSettings(node="es1", address="es1", connect=connect)
        first, *_ = check_host(settings, Refusing(), reboot=False, redact=Redactor())
        way = f"`connect: {other.value}` does not reach it either"
        assert first.message == f"refused by {connect.value}. {way}: refused by {other.value}"


def test_only_a_session_that_sent_nothing_is_tried_again() -> None:
    gone = "orchestrate: the shared connection is gone\nConnection closed by UNKNOWN port 65535"
    half = "mux_client_request_session: read from master failed: Broken pipe"
    refused = "mux_client_request_session: session request failed: Session open refused by peer"
    assert was_not_sent(gone)
    assert was_not_sent("mux_client_request_alive: write packet: Broken pipe"), "the master was dying"
    assert not was_not_sent(f"{half}\n{gone}"), "it may have been sent"
    assert not was_not_sent("")
    assert not was_not_sent("Connection to es1 closed by remote host.")
    assert was_refused(f"{refused}\n{gone}")
    assert not was_refused(half)


def test_a_jump_host_as_arguments() -> None:
    for spec, words in {
        "gate": "gate",
        "ops@gate:2222": "-l ops -p 2222 gate",
        "[::1]:2200": "-p 2200 ::1",
        "ssh://ops@gate": "-l ops gate",
        "fe80::1": "fe80::1",
    }.items():
        assert jump_words(spec) == tuple(words.split()), spec
