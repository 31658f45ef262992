"""An override that is for no node of the cluster is said by every command that looks at it first."""

from __future__ import annotations

import pytest

from orchestrator.cli.program import run
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster


@pytest.mark.parametrize("line", ["validate", "plan", "restart --dry-run"])
def test_an_override_for_no_node_is_warned_of(
    console: Console, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    given = () if line == "validate" else ("--state", f"sqlite:///{console.state}")
    with SmallCluster() as server:
        overrides = {"es1": {"port": 23}, "es*": {"port": 22}, "se2": {"port": 24}}
        file = server.write_file(console.folder, hosts={"overrides": overrides})
        assert run([*line.split(), "--cluster", file, *given]) == 0
    warnings = [each for each in capsys.readouterr().err.splitlines() if each.startswith("warning: ")]
    assert warnings == [f"warning: {file}:1: hosts.overrides.se2: no node of the cluster is called so"]
