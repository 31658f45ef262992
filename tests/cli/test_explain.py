"""`orchestrate explain`: every public name has a page, and the page says what the reference says."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from docs import messages
from docs.explained import ALSO, EXIT_MEANINGS, NODE_PHASES, TERMS, all_entries, paragraph
from orchestrator.cli.work.page import page_lines
from orchestrator.elasticsearch.rules.merge import OWN_RULES
from orchestrator.elasticsearch.rules.predicates import PREDICATES
from orchestrator.errors import ExitCode
from orchestrator.hosts.check import Point
from orchestrator.model.action import ACTION_NAMES, Purpose
from orchestrator.model.event import Event
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.riak.rules.predicates import PREDICATES as RIAK_PREDICATES
from orchestrator.steps import STEP_OF_NODE, STEP_OF_RUN
from orchestrator.view.phrases import PHASES
from tests.cli.console import REPOSITORY, Console

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
        assert f"What to do: {' '.join(rule.then.split())}" in said, name
        assert "[…]" not in said, "a placeholder says nothing"
        assert (f"--disable-predicate {name}" in said) is rule.may_be_disabled, name


def test_an_exit_code_is_found_by_number_name_and_outcome(console: Console) -> None:
    for code in ExitCode:
        pages = {_said(name, console) for name in (str(int(code)), code.name, code.name.lower())}
        if code.name.lower() not in {*STEP_OF_NODE, *STEP_OF_NODE.values()}:
            assert len(pages) == 1, code
        meaning = " ".join(EXIT_MEANINGS[code][0].replace("**", "").split())
        assert all(meaning in page for page in pages), code


def test_every_phase_step_check_and_term_is_explained(console: Console) -> None:
    for phase in Phase:
        said = _said(phase.value, console)
        shown = f"shown as {STEP_OF_RUN[phase.value]} waits for"
        assert f"{phase.value} (phase of a run) {PHASES[phase].what} {shown}" in said
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
        "To restore",
        "Allocation",
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


def test_words_find_names_messages_texts_and_pages(console: Console, subtests: pytest.Subtests) -> None:
    for words, *says in [
        ("snapshot", "snapshot (term)", "no_running_snapshot (predicate): ", "snapshot_is_recent (pred"),
        ("backup", "snapshot (term)", "no_running_snapshot (predicate): "),
        ("disabled allocation", "withheld (phase of a run): ", "allocation, ", "set_allocation, "),
        ("second failure", "second failure (term)", "second_failure (event): "),
        ("stood down", "stand down (term): ", "stood_down (event): "),
        ("3", "3 (exit code, HELD)"),
        ("voting exclusions made outside", "no_other_maintenance (predicate)"),
        ("primary is not started", "cluster_not_red (predicate)"),
        ("started at once", 'rescued (event): "rescue: started at once, no started copy is left of …"'),
        ("no_running_snapshot,gates_open", "no_running_snapshot (predicate) ", "gates_open (predicate) "),
        ("held by no_running_snapshot (x: is running)", "no_running_snapshot (predicate) ", "Why: "),
        ("no_other_m", "no_other_maintenance (predicate) No other"),
        ("only zone b", "With `only zone b` on a page: faq (page): How do I restart only zone b"),
        ("taken over by another process", "6 (exit code, LEASED)"),
        ("machine dies", "faq (page): What happens to allocation if the machine that runs it dies?"),
        ("cron", "With `cron` on a page: ", "pipelines (page): Cron"),
        ("es2 left the cluster, a shard turned red", "nearest: ", "second failure (term): "),
        ("hooks", "Keys below `hooks`: hooks.before_stop, hooks.while_stopped"),
        ("restart", "restart (command)", "orchestrate restart --help", "restart-riak (page): "),
    ]:
        with subtests.test(words=words):
            said = _said(words, console)
            assert [each for each in says if each not in said] == [], said
    assert "Also with" not in _said("3", console)
    assert "hooks.run_held[].run (key): Command line" in _said("run", console), "one line for each of many"
    assert _said("hold", console).index("hold (term)") < _said("hold", console).index("Also with `hold`")


def test_a_step_on_a_screen_is_explained_first(console: Console) -> None:
    """`recover` is a step of a run before it is a deadline of a playbook."""
    for words, kind in ((STEP_OF_RUN, "phase of a run"), (STEP_OF_NODE, "phase of a node")):
        for phase, step in words.items():
            assert f"{phase} ({kind}) " in _said(step, console), step
    said = _said("recover", console)
    assert said.startswith("reassigned (phase of a run) ")
    assert -1 < said.index("rejoined (phase of a node)") < said.index("deadlines.recover (key")
    assert "Also with `recover` in the name: " in said
    stop = _said("stop", console)
    assert stop.index("stop (step of a run)") < stop.index("stop (command)")


def test_each_word_of_other_tools_leads_to_its_term(console: Console) -> None:
    for term, words in ALSO.items():
        for word in words:
            assert f"{term} (term)" in _said(word, console), word


def test_what_has_none_of_the_words_is_refused(console: Console) -> None:
    said = console.run("explain", "xyzzy")
    assert (said.code, said.out) == (ExitCode.USAGE, "")
    assert said.message == "explain xyzzy: unknown name; `orchestrate explain` lists all names"
    assert "did you mean `wave`?" in console.run("explain", "wavee").message
    for without in ("((", ".*", "", " ", "日本語"):  # no text lacks a word of these
        said = console.run("explain", without)
        assert (said.code, said.out) == (ExitCode.USAGE, ""), without


def test_an_explanation_fits_a_narrow_terminal(console: Console) -> None:
    narrow = replace(console, environment={"COLUMNS": "60"})
    for words in ("", "snapshot", "stood down", "stop", "least-rights", "cron"):
        said = narrow.run("explain", *words.split()).out
        code = [line for line in said.splitlines() if line.startswith("    ") and words == "least-rights"]
        assert [line for line in said.splitlines() if len(line) > 60 and line not in code] == [], words


def test_messages_are_found_in_the_source() -> None:
    """From the source, so a message is found in the words of now."""
    assert "records for …" in messages.of_check(RULES["no_other_maintenance"].check)
    assert "gate … is closed: …" in messages.of_events()["GateClosed"]
    assert "is running…" in messages.of_check(RULES["no_running_snapshot"].check)
    assert {event.__name__ for event in get_args(Event)} - set(messages.of_events()) == set()


PAGE = """# A page

<!-- not shown -->
A paragraph with a [link](../how-to/gates.md#top), a
**second** line and [another](https://a.example), [a role](../reference/role.yml), [gone](no.md).

| say | not | why |
|---|---|---|
| `a\\|b` | c | d |

| word | meaning |
|---|---|
| x | y |

- an item
  of two lines
- another

```sh
orchestrate   plan
```
"""


def test_a_page_is_shown_without_marks(tmp_path: Path) -> None:
    file = tmp_path / "how-to/page.md"
    file.parent.mkdir()
    file.write_text(PAGE)
    (file.parent / "gates.md").write_text("# Gates\n")
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference/role.yml").write_text("")
    assert list(page_lines(file, 50)) == [
        *("A page", ""),
        "A paragraph with a link (`orchestrate explain",
        "how-to/gates`), a second line and another, a role",
        "(`orchestrate explain reference/role.yml`), gone.",
        *("", "`a|b`", "  not: c", "  why: d", "", "x", "  y", ""),
        *("- an item of two lines", "- another", "", "    orchestrate   plan"),
    ]


def test_a_file_is_shown_as_it_is_to_be_copied(console: Console) -> None:
    for name, file in (
        ("elasticsearch-role.json", "docs/reference/elasticsearch-role.json"),
        ("sudoers-riak", "docs/reference/sudoers-riak"),
        ("riak-example.yml", "configs/clusters/riak-example.yml"),
        ("elasticsearch-rolling-restart.yml", "playbooks/elasticsearch-rolling-restart.yml"),
        ("playbook", "docs/reference/playbook.yml"),
        ("riak-playbook", "docs/reference/riak-playbook.yml"),
    ):
        assert console.run("explain", name).out == (REPOSITORY / file).read_text(), name


def test_the_key_of_a_files_name_is_found_beside_the_file(console: Console) -> None:
    key = console.run("explain", "cluster.playbook").out
    assert key.startswith("playbook (key of cluster file)\n")
    assert "`orchestrate explain playbook` prints all" in " ".join(key.split())
    assert "`orchestrate explain cluster.playbook`" in console.run("explain", "playbook").out


def test_a_long_page_goes_through_a_pager(console: Console, tmp_path: Path) -> None:
    """Of a person at a terminal; without a pager it is printed."""
    shown = tmp_path / "shown"
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {shown}\n")
    pager.chmod(0o700)
    usual = {"PAGER": str(pager), "TERM": "xterm", "LINES": "24", "COLUMNS": "80"}
    whole = console.run("explain", "hold").out
    for name, typed, more, paged in (
        ("hold", "", {}, True),
        ("3", "", {}, False),
        ("hold", None, {}, False),
        ("hold", "", {"TERM": "dumb"}, False),
        ("hold", "", {"CI": "true"}, False),
        ("hold", "", {"PAGER": "no-such-pager"}, False),
        ("hold", "", {"LINES": "400"}, False),
    ):
        shown.unlink(missing_ok=True)
        said = replace(console, environment={**usual, **more}).run("explain", name, typed=typed)
        assert said.code == ExitCode.DONE
        assert (shown.exists(), said.out == "") == (paged, paged), (name, more)
    replace(console, environment=usual).run("explain", "hold", typed="")
    assert shown.read_text() == whole
    pager.write_text(f'#!/bin/sh\ncat > /dev/null\nprintf %s "$LESS" > {shown}\n')
    for given, prompts in (({}, True), ({"LESS": "-S"}, False)):
        replace(console, environment={**usual, **given}).run("explain", "hold", typed="")
        assert ("q ends" in shown.read_text()) is prompts, "what a person has set is left alone"
