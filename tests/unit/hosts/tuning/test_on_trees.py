"""The same tunables on hosts that are made of files, read by the script that reads real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.facts import read_facts
from orchestrator.hosts.facts_script import ANSWER_BYTES, facts_script
from orchestrator.hosts.tunables import registry
from orchestrator.hosts.tuning.boot import Place
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.tuning import BOOT, HostTuning, TuningProfile, Verdict
from tests.fakes.host_kinds import KINDS
from tests.fakes.host_tree import HostTree
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
