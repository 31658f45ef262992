"""Host tuning on a sysv host: init scripts. The kernel is the machine's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.mistuned import (
    SCHEDULER,
    WRONG,
    assert_same,
    mistune,
    reboot,
    scheduler,
    standing,
    values,
)
from tests.integration.operating import Operator
from tests.integration.tuning import check, revert, verdicts

if TYPE_CHECKING:
    from tests.integration.fixtures_hosts import HostClusterFactory

FLAVOUR = "sysv-tuning"
HOST = "es1"
pytestmark = [pytest.mark.docker, pytest.mark.part(name="tuning")]


def test_a_sysv_host_is_tuned_lastingly_and_reverted(
    fresh_host_cluster: HostClusterFactory, tmp_path: Path
) -> None:
    cluster = fresh_host_cluster(FLAVOUR, nodes=1)
    mistune(cluster, HOST)
    before = standing(cluster, HOST)
    wrong = {**WRONG, scheduler(cluster, HOST): SCHEDULER}
    assert {path: before.values[path] for path in wrong} == wrong
    operator = Operator(folder=tmp_path, cluster=cluster)
    file = operator.write(playbook={"tune": "elasticsearch"})
    first = check(operator)
    drift = verdicts(first, "drift")[HOST]
    assert first.returncode == 3, first.stdout + first.stderr
    assert drift >= {"numad", "io_scheduler", "transparent_hugepage.enabled", "vm.swappiness"}, drift

    applied = operator.orchestrate("tune", "apply", "--cluster", str(file), "--yes")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    right = {path: value for path, value in values(cluster, HOST).items() if path in wrong}
    written = set(standing(cluster, HOST).files) - set(before.files)
    touched = {word for line in written for word in line.split() if word.startswith("/etc/")}
    assert touched >= {"/etc/orchestrate-tuning/boot.sh", "/etc/init.d/orchestrate-tuning"}, touched
    assert not touched & {"/etc/rc.local", "/etc/sysctl.conf"}, touched
    reboot(cluster, HOST)
    assert check(operator).returncode == 0
    assert {path: value for path, value in values(cluster, HOST).items() if path in wrong} == right
    assert not set(right.items()) & set(wrong.items())

    undone = revert(operator)
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert_same(standing(cluster, HOST), before)
