"""Refusals of sudo-rs 0.2.5, as recorded: no status behind it reads as stopped, and no verb as in doubt."""

from __future__ import annotations

import pytest

from orchestrator.hosts import outcomes, services, sudo
from orchestrator.hosts.managers.manager import Verb
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings, ServiceSettings, Sudo
from orchestrator.model.action import Refused
from orchestrator.model.cluster import NodeName
from orchestrator.model.hosts import Manager
from orchestrator.model.reading import Unknown

BEHIND_SUDO = HostSettings(
    node=NodeName("es1"),
    address="es1",
    sudo=Sudo.OFF,
    service=ServiceSettings(
        manager=Manager.COMMAND, stop="sudo -n a stop", start="sudo -n a start", status="sudo -n a top"
    ),
)


@pytest.mark.parametrize(
    "said",
    [
        "sudo-rs: interactive authentication is required",
        "sudo-rs: I'm sorry deploy. I'm afraid I can't do that",
        "\nsudo: Authentication failed, try again.\n\nsudo-rs: Maximum 3 incorrect authentication attempts",
        "sudo: maximum 3 incorrect authentication attempts",
    ],
)
def test_sudo_rs_refusal_is_refused_and_unknown(said: str) -> None:
    assert sudo.refusal(said) is not None
    status = services.read_state(BEHIND_SUDO, Section(exit=1, text=said))
    assert isinstance(status, Unknown)
    assert "refused by sudo" in status.reason
    line = services.command(BEHIND_SUDO, Verb.STOP)
    assert isinstance(outcomes.result_of(BEHIND_SUDO, Verb.STOP, line, 1, said), Refused)
