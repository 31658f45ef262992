"""The same tunables on hosts that are made of files, read by the script that reads real ones."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.facts import read_facts
from orchestrator.hosts.facts_script import ANSWER_BYTES, facts_script
from orchestrator.hosts.tunables import registry
from orchestrator.hosts.tuning import boot, boot_files
from orchestrator.hosts.tuning.boot import Place
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.tuning import BOOT, FileChange, HostTuning, ServiceChange, TuningProfile, Verdict
from tests.fakes.host_kinds import KINDS
from tests.fakes.host_tree import THP, HostTree
from tests.fakes.tuned_hosts import profile, setting

WANTED = profile(
    setting("numad", "off"),
    setting("transparent_hugepage.enabled", "never"),
    setting("transparent_hugepage.defrag", "never"),
    setting("transparent_hugepage.khugepaged_defrag", "0"),
    setting("io_scheduler", {"ssd": "none", "rotational": "mq-deadline"}),
    setting("vm.swappiness", "1"),
    setting("limits.nofile", "100000"),
)


def _read(tree: HostTree, wanted: TuningProfile) -> HostTuning:
    settings, reads = tree.settings(), registry.reads(wanted)
    told = tree.connection().run(facts_script(settings, reads), timeout=30, keep=ANSWER_BYTES)
    assert isinstance(told, CommandResult)
    facts = read_facts(told.stdout, settings, reads)
    assert isinstance(facts, HostFacts)
    return registry.compare(facts, wanted, Place(part="es1", root=settings.root))


@pytest.mark.parametrize("kind", KINDS)
def test_every_tunable_is_told_and_none_is_unknown(kind: str, tmp_path: Path) -> None:
    found = _read(KINDS[kind](tmp_path / "host"), WANTED)
    assert [state.tunable for state in found.states] == [BOOT, *(one.tunable for one in WANTED.settings)]
    assert found.unread == (), [state.detail for state in found.unread]
    by_name = {state.tunable: state for state in found.states}
    assert by_name["transparent_hugepage.enabled"].verdict is Verdict.DRIFT
    assert by_name["transparent_hugepage.enabled"].running == "always"
    assert by_name["vm.swappiness"].verdict is Verdict.DRIFT


TUNED = Path(__file__).parents[3] / "data" / "tuned"
PAGES = profile(setting("transparent_hugepage.enabled", "never"))


@pytest.mark.parametrize("name", ["throughput-performance", "virtual-guest"])
def test_the_next_boot_is_ours_whatever_tuned_ships(name: str, tmp_path: Path) -> None:
    """The shipped profiles switch huge pages off on one kind of ARM machine; elsewhere nothing sets them."""
    tree = KINDS["rhel7"](tmp_path / "host")
    for file in TUNED.glob("*/tuned.conf"):
        tree.write(f"/usr/lib/tuned/{file.parent.name}/tuned.conf", file.read_text())
    tree.write("/etc/tuned/active_profile", f"{name}\n")
    assert "transparent_hugepages=never" in (TUNED / "throughput-performance" / "tuned.conf").read_text()
    of_boot, pages = _read(tree, PAGES).states
    assert (pages.running, pages.at_boot) == ("always", boot.NOT_SET)
    for change in of_boot.changes:
        match change:
            case FileChange(path=path, wanted=str(text)):
                tree.write(path, text)
            case ServiceChange(service=service):
                tree.service(service)
    assert [state.at_boot for state in _read(tree, PAGES).states] == [boot.SET_BY_US, boot.SET_BY_US]
    subprocess.run(  # noqa: S603  (our own script on a tree)
        ["/bin/sh", str(tree.at(boot_files.SCRIPT))],
        env={"PATH": f"{tree.path}/toolbox"},
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert "never" in (tree.read(f"{THP}/enabled") or "")
    assert _read(tree, PAGES).states[1].verdict is Verdict.OK


@pytest.mark.parametrize(("limit", "verdict"), [("1048576", Verdict.OK), ("65535", Verdict.DRIFT)])
def test_limits_of_a_templated_unit_are_systemds_answer(limit: str, verdict: Verdict, tmp_path: Path) -> None:
    """The template's value, or that of a drop-in which lowers it: systemd has read both."""
    tree = KINDS["debian"](tmp_path / "host")
    tree.unit = "elasticsearch@a"
    shown = f"echo LoadState=loaded; echo LimitNOFILE={limit}; echo LimitNOFILESoft={limit}"
    tree.program("systemctl", f'case "$*" in *" -- elasticsearch@a.service") {shown} ;; esac\n')
    wanted = replace(profile(setting("limits.nofile", "100000")), persist=False)
    (state,) = _read(tree, wanted).states
    assert (state.verdict, state.at_boot) == (verdict, limit)


LIMITS_OF_PROCESS = """\
Limit                     Soft Limit           Hard Limit           Units
Max locked memory         unlimited            unlimited            bytes
Max open files            4096                 524288               files
Max realtime timeout      unlimited            unlimited            us
"""


@pytest.mark.parametrize("pid", ["17", "18", "0"])
def test_limits_of_the_running_process_are_read(pid: str, tmp_path: Path) -> None:
    """Process 18 has ended since systemd named it; 0 is a unit that does not run."""
    tree = KINDS["debian"](tmp_path / "host")
    tree.write("/proc/17/limits", LIMITS_OF_PROCESS)
    shown = "echo LoadState=loaded; echo LimitNOFILE=100000"
    tree.program(
        "systemctl", f'case "$*" in *MainPID*) echo MainPID={pid} ;; *LimitNOFILE*) {shown} ;; esac\n'
    )
    (state,) = _read(tree, replace(profile(setting("limits.nofile", "100000")), persist=False)).states
    wanted = "4096, from the next start on 100000" if pid == "17" else "100000, from the next start on"
    assert (state.running, state.at_boot) == (wanted, "100000")


def test_an_init_script_names_the_process(tmp_path: Path) -> None:
    tree = KINDS["rhel6"](tmp_path / "host")
    tree.write("/proc/2310/limits", LIMITS_OF_PROCESS)
    tree.program("service", '[ "$1" = elasticsearch ] && echo "elasticsearch (pid  2310) is running..."\n')
    (state,) = _read(tree, replace(profile(setting("limits.nofile", "100000")), persist=False)).states
    assert state.running == "4096, from the next start on not set"
    assert state.verdict is Verdict.DRIFT
