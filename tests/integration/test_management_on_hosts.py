"""`configuration_management: disable` on a real host with an agent that starts the service every 5 s."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.faults import QUICK, changed, first, prepared
from tests.integration.hostlab.hosts import HostCluster, wait_until
from tests.integration.operating import lives, settings

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

pytestmark = [pytest.mark.docker, pytest.mark.part(name="hosts")]

AGENT, OTHER = "agent.timer", "other.timer"
FILES = """
cd /etc/systemd/system
printf '[Service]\\nType=oneshot\\nExecStart=/usr/bin/systemctl start {unit}\\n' >agent.service
printf '[Timer]\\nOnActiveSec=1\\nOnUnitActiveSec=5\\nAccuracySec=1s\\n' >agent.timer
printf '[Timer]\\nOnActiveSec=1d\\nUnit=agent.service\\n' >other.timer
for verb in stop start; do for unit in agent other; do
  echo "{user} ALL=(root) NOPASSWD: /usr/bin/systemctl $verb $unit.timer"
done; done >/etc/sudoers.d/agent
systemctl daemon-reload
systemctl start agent.timer
"""
TAKEN_AWAY = """
systemctl stop agent.timer
rm -f /etc/systemd/system/agent.* /etc/systemd/system/other.timer /etc/sudoers.d/agent
systemctl daemon-reload
"""
HOOK = "rm -f /tmp/stopped; echo now >/tmp/stopping; sleep 20; systemctl is-active {unit} >/tmp/stopped; true"


def _is_active(cluster: HostCluster, name: str, unit: str) -> bool:
    return cluster.exec(name, "systemctl", "is-active", unit, check=False).returncode == 0


def _said(cluster: HostCluster, name: str, file: str) -> bool:
    return cluster.exec(name, "test", "-s", file, check=False).returncode == 0


def test_an_agent_is_off_for_the_turn_and_on_after_restore(
    host_cluster: HostClusterFactory, tmp_path: Path
) -> None:
    cluster, operator = prepared(host_cluster, tmp_path)
    was, victim = settings(cluster), first(cluster)
    cluster.exec(victim, FILES.format(unit=cluster.unit, user=cluster.ssh_user))
    playbook = {
        "deadlines": QUICK,
        "configuration_management": "disable",
        "management_units": [AGENT, OTHER],
        "hooks": {"while_stopped": [{"run": HOOK.format(unit=cluster.unit)}]},
    }
    file = operator.write(playbook=playbook)
    born = lives(cluster)
    run = operator.begin("restart", "--cluster", str(file), "--yes", "--only", victim)
    assert wait_until(lambda: _said(cluster, victim, "/tmp/stopping"), seconds=120)
    assert not _is_active(cluster, victim, AGENT)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    assert wait_until(lambda: _said(cluster, victim, "/tmp/stopped"), seconds=60)
    assert "inactive" in cluster.exec(victim, "cat", "/tmp/stopped").stdout, "nothing started it for 20 s"
    assert not _is_active(cluster, victim, AGENT), "a killed run leaves it disabled"
    put_back = operator.orchestrate("restore", "--cluster", str(file), "--yes")
    assert put_back.returncode == 0, put_back.stdout + put_back.stderr
    assert (_is_active(cluster, victim, AGENT), _is_active(cluster, victim, OTHER)) == (True, False)
    cluster.wait_ready()
    assert (settings(cluster), changed(born, lives(cluster))) == (was, {victim})
    resumed = operator.orchestrate("resume", "--yes")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert (settings(cluster), changed(born, lives(cluster))) == (was, {victim})
    assert (_is_active(cluster, victim, AGENT), _is_active(cluster, victim, OTHER)) == (True, False)
    cluster.exec(victim, TAKEN_AWAY)
