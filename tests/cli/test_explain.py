"""`orchestrate explain`: every public name has a page, and the page says what the reference says."""

from __future__ import annotations

import inspect

from orchestrator.cli.work.explain import EXIT_MEANINGS, all_entries, paragraph
from orchestrator.engine.kinds.elasticsearch.catalogue import PREDICATES
from orchestrator.engine.kinds.riak.catalogue import PREDICATES as RIAK_PREDICATES
from orchestrator.errors import ExitCode
from orchestrator.hosts.check import Point
from orchestrator.merging.rules import OWN_RULES
from orchestrator.model.action import ACTION_NAMES, Purpose
from orchestrator.model.phase import NodePhase, Outcome, Phase
from orchestrator.view.phrases import NODE_PHASES, PHASES, TERMS
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
    assert "exit code, FAILED" in _said(Outcome.FAILED.value, console)
    assert "phase of a node" in _said(Outcome.FAILED.value, console)


def test_a_name_of_two_words_needs_no_quotes(console: Console) -> None:
    said = console.run("explain", "stand", "down")
    assert " ".join(said.out.split()) == _said("stand down", console)


def test_every_phase_is_explained(console: Console) -> None:
    for phase in Phase:
        said = _said(phase.value, console)
        assert f"{phase.value} (phase of a run) {PHASES[phase]} waits for" in said
    for node in NodePhase:
        assert f"{node.value} (phase of a node) {NODE_PHASES[node]} " in f"{_said(node.value, console)} "


def test_a_failed_node_is_explained_with_the_next_command(
    console: Console,
) -> None:
    following = "stopped (`resume --retry-failed`), starting (`restore`), rejoined, skipped (`resume --skip`)"
    assert f"next {following}" in _said("failed", console)


def test_what_to_do_is_said_for_commands_that_drive_no_run(console: Console) -> None:
    """`resume RUN` was all there was to do, after a plan too."""
    for code, commands in ((3, ("plan", "validate", "diagnose", "tune")), (4, ("diagnose", "tune"))):
        what_to_do = _said(str(code), console).partition("what to do")[2]
        for command in commands:
            assert f"`{command}`" in what_to_do
        assert "run the command again" in what_to_do


def test_settings_and_keys_are_explained(console: Console) -> None:
    for name, says in [
        ("cluster.routing.allocation.enable", "primaries (persistent), while a node is down"),
        ("indices.recovery.max_bytes_per_sec", "for the whole run"),
        ("deadlines.hold", "default `1h`"),
        ("zone_attribute", "key of cluster file)"),
    ]:
        assert says in _said(name, console)


def test_a_key_that_several_files_have_is_told_once(console: Console) -> None:
    assert _said("hold", console).count("deadlines.hold (key of") == 1


def test_no_page_is_empty() -> None:
    entries = all_entries()
    assert entries
    assert [entry.names[0] for entry in entries if not any(entry.text) and not entry.facts] == []


def test_without_a_name_every_kind_is_listed(console: Console) -> None:
    said = console.run("explain")
    assert said.code == ExitCode.DONE
    assert all(name in said.out for name in (*RULES, *(phase.value for phase in Phase)))


def test_an_unknown_name_is_refused_with_the_nearest(console: Console) -> None:
    for name, tail in [
        ("gate_open", "did you mean `gates_open`? `orch"),
        ("xyzzy", "`orchestrate explain`"),
        ("stand up", "did you mean"),
    ]:
        said = console.run("explain", *name.split())
        assert said.code == ExitCode.USAGE
        assert said.err.startswith(f"orchestrate: explain {name}: unknown name; {tail}")


def test_terms_of_messages_are_explained(console: Console) -> None:
    for term in ("wave", "run", "predicate", "hold", "stand down", "candidate"):
        assert f"{term} (term) {TERMS[term]}" in _said(term, console)
        assert f"{term} (term)" in _said(f"{term.replace(' ', '-').upper()}", console)


def test_words_on_the_screen_of_a_run_are_explained(console: Console) -> None:
    assert "cluster.routing.allocation.enable" in _said("set_allocation", console)
    assert "for the whole run" in _said("raise_limits", console)
    assert "for the whole run" not in _said("set_allocation", console)
    for written in ("exit code 3", "exit-code 3", "exit_code=3", "Exit Code 3"):
        assert _said(written, console) == _said("3", console)
    for words in ("To undo", "Disabled", "zones", "primaries", "copies", "Phase", "good readings", "holder"):
        assert " (term) " in _said(words, console), words


def test_steps_of_a_plan_and_checks_of_a_host_are_explained(console: Console) -> None:
    for name in (*ACTION_NAMES.values(), *(purpose.value for purpose in Purpose)):
        assert f"{name} (step of a run) " in _said(name, console)
    for point in Point:
        assert f"{point.value} (check of a host) " in _said(point.value, console)
