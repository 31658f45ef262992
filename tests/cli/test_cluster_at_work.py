"""Commands that would ask or show a plan while another run has the cluster."""

from __future__ import annotations

import pytest

from orchestrator.errors import ExitCode
from orchestrator.runtime.identity import current_process
from orchestrator.runtime.store import StateStore
from tests.cli.console import Console
from tests.cli.runs import DEAD_PROCESS, RUN, entry, leave, record_of, started
from tests.cli.small_cluster import SmallCluster

HERE = str(current_process())
ELSEWHERE = "another-boot/1/2/3"
OTHER = "another run holds the lease on lab: run run-0 of ben@here, since 2026-11-02"


@pytest.fixture(params=["restart", "apply"])
def asking(request: pytest.FixtureRequest, console: Console, file: str) -> list[str]:
    """A command that shows a plan and asks."""
    if request.param == "restart":
        return ["restart", "--cluster", file]
    assert console.run("plan", "--cluster", file, "--out", "plan.json").code in (0, ExitCode.HELD)
    return ["apply", "plan.json"]


def test_no_question_while_another_run_is_at_work(
    console: Console, cluster: SmallCluster, asking: list[str]
) -> None:
    """The checks would hold because of that run alone: a yes could begin nothing."""
    leave(cluster, record_of("run-0", HERE))
    cluster.upgrade("es2", "8.19.1")  # a saved plan does not fit meanwhile
    said = console.run(*asking, typed="y\n")
    assert (said.code, said.out) == (ExitCode.LEASED, "")
    assert f"orchestrate: {OTHER} (its process {HERE.split('/')[2]} runs on this machine)" in said.err
    assert "`orchestrate status run-0 --watch` shows it" in said.err
    assert "`orchestrate stop run-0`" in said.err
    assert {asked.method for asked in cluster.asked} == {"GET"}


def test_a_holder_out_of_sight_is_in_the_question(
    console: Console, cluster: SmallCluster, asking: list[str]
) -> None:
    """Its process may be gone: a run takes over once the heartbeat has stopped long enough."""
    leave(cluster, record_of("run-0", ELSEWHERE))
    said = console.run(*asking, typed="n\n")
    assert said.code == ExitCode.INTERRUPTED
    assert "Restart 3 nodes of lab if run run-0 of ben@here no longer runs? [y/N]" in said.out
    assert {asked.method for asked in cluster.asked} == {"GET"}


@pytest.mark.parametrize("process", [HERE, ELSEWHERE], ids=["here", "elsewhere"])
def test_resume_asks_only_where_it_could_begin(
    console: Console, store: StateStore, file: str, process: str
) -> None:
    """The lease in the state is that of the run itself, or of another one."""
    begun = started(cluster_file=file)
    store.create_run(entry(RUN, "boot/1/2/3")).append([begun], 1.0)
    store.lease(begun.cluster_uuid).create(record_of(RUN, process))
    said = console.run("resume", typed="n\n")
    alive = process == HERE
    assert said.code == (ExitCode.LEASED if alive else ExitCode.INTERRUPTED)
    assert (f"run {RUN} of ben@here, since 2026-11-02 (its process " in said.err) is alive
    assert (f"Resume run {RUN} on lab, to do: 3 nodes?" in said.out) is not alive


@pytest.mark.parametrize("process", [HERE, ELSEWHERE], ids=["here", "elsewhere"])
def test_a_plan_names_the_other_run_first(
    console: Console, cluster: SmallCluster, file: str, process: str
) -> None:
    leave(cluster, record_of("run-0", process))
    for words in ("plan", "restart --dry-run"):
        said = console.run(*words.split(), "--cluster", file)
        first, *_ = said.err.splitlines()
        assert first.startswith(OTHER)
        assert ("its heartbeat stops" in first) == (process == ELSEWHERE)
        assert "WAVE" in said.out
    leave(cluster, record_of("run-0", DEAD_PROCESS))
    assert OTHER not in console.run("plan", "--cluster", file).err
