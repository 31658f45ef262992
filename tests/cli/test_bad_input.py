"""Bad input: one clear message, the right exit code, and nothing changed. With `-v` the table is printed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from orchestrator.lab.nodes import LabCluster
from tests.cli.bad_inputs import CASES
from tests.cli.console import Console, Said
from tests.cli.stage import Case, Stage
from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.real

VERSION = "opensearch-2.19.0"
CONTRACT = (
    "a YAML error",
    "an unknown key",
    "a wrong type",
    "a missing secret",
    "a literal secret",
    "a node's host that does not resolve",
    "an unknown host key",
    "a changed host key",
    "sudo refused",
    "a wrong cluster name",
    "an endpoint that is not the product",
    "a version not supported",
    "an empty selection",
    "a node name that matches nothing",
    "a plan for another cluster",
    "a corrupt state file",
    "a state file of a later version",
    "a full disk under the state file",
)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Rows for the table; printed at the end with `-v`."""
    rows: list[str] = []
    yield rows
    plugins = request.config.pluginmanager
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    if reporter is None or capture is None or request.config.get_verbosity() <= 0:
        return
    with capture.global_and_fixture_disabled():
        for row in ("", "| bad input | command | exit | message |", "|---|---|---|---|", *rows):
            reporter.write_line(row)


@pytest.fixture(scope="module")
def kept() -> dict[str, LabCluster]:
    return {}


@pytest.fixture
def lab(process_cluster: ProcessCluster, kept: dict[str, LabCluster]) -> LabCluster:
    """One cluster for all cases: whatever one of them changed would fail it, so none resets it."""
    if VERSION not in kept:
        kept[VERSION] = process_cluster(VERSION)
    return kept[VERSION]


def test_every_case_of_the_contract_is_here() -> None:
    assert set(CONTRACT) <= {each.what for each in CASES}


@pytest.mark.parametrize("bad", CASES, ids=[each.what for each in CASES])
def test_bad_input_is_told_once_and_changes_nothing(
    bad: Case, console: Console, lab: LabCluster, table: list[str]
) -> None:
    with ExitStack() as cleanup:
        stage = Stage(console=console, lab=lab, cleanup=cleanup)
        command = bad.act(stage)
        state = console.state.read_bytes() if console.state.exists() else None
        before = stage.picture()
        said = console.run(*command, "--output", "json", before=stage.before)
        message = _message(said)
        shown = shlex.join(("orchestrate", *command)).replace(f"{console.folder}/", "")
        clean = (
            message.replace(f"{console.folder}/", "").replace(f"{console.home}/", "").replace("\n", "<br>")
        )
        table.append(f"| {bad.what} | `{shown}` | {said.code} | {clean} |")
        assert said.code == bad.code, said
        place = 0
        for part in bad.says:
            found = message.find(part.format(folder=console.folder), place)
            assert found >= 0, f"{part!r} is not in {message!r}"
            place = found + len(part)
        assert "Traceback" not in said.err
        if bad.code == 3:
            assert stage.changes() == []  # the run is in the journal, and did nothing
        else:
            assert said.err == f"orchestrate: {message}\n"
            assert (console.state.read_bytes() if console.state.exists() else None) == state
        assert stage.picture() == before
        assert "hunter" not in said.out + said.err


def _message(said: Said) -> str:
    """What the summary says; of `validate`, what its bad points say."""
    bad = [line["message"] for line in said.lines if line["event"] == "check" and line["good"] is False]
    return bad[0] if bad else str(said.lines[-1]["message"])
