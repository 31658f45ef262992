"""`orchestrate explain`: every public name has a page, and the page says what the reference says."""

from __future__ import annotations

import inspect

import pytest

from docs.explained import EXIT_MEANINGS, NODE_PHASES, TERMS, all_entries, paragraph
from orchestrator.elasticsearch.rules.merge import OWN_RULES
from orchestrator.elasticsearch.rules.predicates import PREDICATES
from orchestrator.errors import ExitCode
from orchestrator.hosts.check import Point
from orchestrator.model.action import ACTION_NAMES, Purpose
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.riak.rules.predicates import PREDICATES as RIAK_PREDICATES
from orchestrator.view.phrases import PHASES
from tests.cli.console import Console

RULES = {rule.name: rule for rule in (*RIAK_PREDICATES, *OWN_RULES, *PREDICATES)}


def _said(name: str, console: Console) -> str:
    said = console.run("explain", name)
    assert (said.code, said.err) == (ExitCode.DONE, "")
    return " ".join(said.out.split())


def test_every_predicate_is_explained_with_its_reason(console: Console) -> None:
    for name, rule in RULES.items():
        said = _said(name, console)
        assert " ".join(paragraph(inspect.getdoc(rule.check)).split()) in said, name
        assert f"Why: {' '.join(rule.why.split())}" in said, name
        assert (f"--disable-predicate {name}" in said) is rule.may_be_disabled, name


def test_an_exit_code_is_found_by_number_name_and_outcome(console: Console) -> None:
    for code in ExitCode:
        pages = {_said(name, console) for name in (str(int(code)), code.name, code.name.lower())}
        if not any(phase.value == code.name.lower() for phase in NodePhase):
            assert len(pages) == 1, code
        meaning = " ".join(EXIT_MEANINGS[code][0].replace("**", "").split())
        assert all(meaning in page for page in pages), code


def test_every_phase_step_check_and_term_is_explained(console: Console) -> None:
    for phase in Phase:
        said = _said(phase.value, console)
        assert f"{phase.value} (phase of a run) {PHASES[phase].what} waits for" in said
    for node in NodePhase:
        assert f"{node.value} (phase of a node) {NODE_PHASES[node]} " in f"{_said(node.value, console)} "
    for name in (*ACTION_NAMES.values(), *(purpose.value for purpose in Purpose)):
        assert f"{name} (step of a run) " in _said(name, console)
    for point in Point:
        assert f"{point.value} (check of a host) " in _said(point.value, console)
    for term in ("wave", "run", "predicate", "hold", "stand down", "candidate"):
        assert f"{term} (term) {TERMS[term]}" in _said(term, console)
        assert f"{term} (term)" in _said(f"{term.replace(' ', '-').upper()}", console)
    entries = all_entries()
    assert entries
    assert [entry.names[0] for entry in entries if not any(entry.text) and not entry.facts] == []


def test_what_is_explained_of_a_name(console: Console, subtests: pytest.Subtests) -> None:
    following = "stopped (`resume --retry-failed`), starting (`restore`), rejoined, skipped (`resume --skip`)"
    again = "run the command again"
    on_the_screen = (
        "To undo",
        "Disabled",
        "zones",
        "primaries",
        "copies",
        "Phase",
        "good readings",
        "holder",
    )
    for name, *says in [
        ("failed", f"next {following}", "exit code, FAILED", "phase of a node"),
        # What to do after a command that drives no run, too.
        ("3", "`plan`", "`validate`", "`diagnose`", "`tune`", again),
        ("4", "`diagnose`", "`tune`", again),
        ("cluster.routing.allocation.enable", "primaries (persistent), while a node is down"),
        ("indices.recovery.max_bytes_per_sec", "for the whole run"),
        ("deadlines.hold", "default `1h`"),
        ("zone_attribute", "key of cluster file)"),
        ("hold", "deadlines.hold (key of"),
        ("set_allocation", "cluster.routing.allocation.enable"),
        ("raise_limits", "for the whole run"),
        *((words, " (term) ") for words in on_the_screen),
    ]:
        with subtests.test(name=name):
            said = _said(name, console)
            what_to_do = said.partition("what to do")[2] if name in {"3", "4"} else said
            assert [part for part in says if part not in what_to_do] == []
    assert _said("hold", console).count("deadlines.hold (key of") == 1, "of several files"
    assert "for the whole run" not in _said("set_allocation", console)
    for written in ("exit code 3", "exit-code 3", "exit_code=3", "Exit Code 3"):
        assert _said(written, console) == _said("3", console)
    two_words = console.run("explain", "stand", "down")
    assert " ".join(two_words.out.split()) == _said("stand down", console)
    every_kind = console.run("explain")
    assert every_kind.code == ExitCode.DONE
    assert all(name in every_kind.out for name in (*RULES, *(phase.value for phase in Phase)))
