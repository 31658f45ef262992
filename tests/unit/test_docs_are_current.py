"""What the docs say of the program is what the program says: generated pages, links, commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from docs import explained, generate, man_pages, witnesses
from docs.explained import EXIT_MEANINGS
from orchestrator.cli.program import app, run
from orchestrator.cli.work.explain import FILE
from orchestrator.elasticsearch.rules.predicates import PREDICATES
from orchestrator.errors import ExitCode
from orchestrator.model.phase import NodePhase, Phase
from orchestrator.simulation.invariants import INVARIANTS

ROOT = Path(__file__).parents[2]
PROSE = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
HANDWRITTEN = [page for page in PROSE if page.name not in generate.PAGES]


def test_a_generated_page_is_what_the_code_says_now(subtests: pytest.Subtests) -> None:
    for name in sorted(generate.PAGES):
        with subtests.test(name=name):
            assert (generate.FOLDER / name).read_text() == generate.PAGES[name](), "run: make docs"


def test_no_reference_page_shows_python_or_numbers_rows() -> None:
    shown = re.compile(
        r"\b(?:None|True|False|Args|Raises|Returns|Yields|Pure|self|tuple|dict|[a-z]+_[a-z_]+\.py)\b"
        r"|\('|^\| \d+ \| `\w+` \||\| `[(\[<][^`]*`",
        re.MULTILINE,
    )
    assert len(shown.findall("None of them, ('a',)\n| 1 | `a` |\n| `[1]` |")) == 4
    pages = {name: re.sub("<!--.*-->", "", page()) for name, page in generate.PAGES.items()}
    assert {name: found for name, page in pages.items() if (found := shown.findall(page))} == {}


def test_what_is_explained_and_a_tab_completes_is_of_now() -> None:
    assert FILE.read_text() == explained.text(), "run: make docs"


def test_the_manual_pages_are_those_of_the_commands() -> None:
    written = {page.name: page.read_text() for page in man_pages.FOLDER.glob("*.1")}
    assert written == man_pages.pages(), "run: make docs"
    assert {
        "orchestrate.1",
        "orchestrate-restart.1",
        "orchestrate-tune-apply.1",
        "orchestrate-report.1",
    } <= set(written)
    assert "orchestrate-fleet.1" not in written, "it is not in this version"


def test_a_line_of_a_manual_page_is_no_request_by_accident() -> None:
    """A dot or a quote begins a request of troff; a bare hyphen is no hyphen that a shell takes."""
    known = re.compile(r"^\.(?:TH|SH|TP|PP|B|BR)(?: |$)")
    for page in man_pages.pages().values():
        for line in page.splitlines():
            assert known.match(line) or not line.startswith((".", "'")), line
            assert line.startswith(".TH ") or not re.search(r"(?<!\\)-", line), line


def test_every_command_and_phase_is_on_its_page() -> None:
    page = generate.commands()
    group = typer.main.get_command(app)
    names = [name for name, command in group.commands.items() if not command.hidden]  # type: ignore[attr-defined]  # a group
    assert "restart" in names
    assert [name for name in names if f"## orchestrate {name}\n" not in page] == []
    listed = re.findall(r"^\| `(\w+)` \|", generate.phases(), re.MULTILINE)
    assert listed == [phase.value for phase in (*Phase, *NodePhase)]


def test_every_exit_code_is_documented_and_is_in_the_runbook() -> None:
    assert set(EXIT_MEANINGS) == set(ExitCode)
    runbook = (ROOT / "docs/how-to/it-stopped-what-now.md").read_text()
    to_act_on = [code for code in ExitCode if code is not ExitCode.DONE]
    assert [code for code in to_act_on if not re.search(rf"^## {code.value}: ", runbook, re.MULTILINE)] == []


def _anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_relative_link_leads_somewhere(subtests: pytest.Subtests) -> None:
    for page in PROSE:
        with subtests.test(str(page.relative_to(ROOT))):
            text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
            links = re.findall(r"\]\(([^)\s]+)\)", text)
            broken = []
            for link in links:
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, fragment = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                if not target.exists() or (fragment and fragment not in _anchors(target)):
                    broken.append(link)
            assert broken == []


def test_every_page_can_be_found_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)\s#]+)", page.read_text())
        todo += [(page.parent / link).resolve() for link in links if ":" not in link]
    unseen = [
        page for page in PROSE if page not in seen and not page.match("docs/development/changes/*-*.md")
    ]
    assert [str(page.relative_to(ROOT)) for page in unseen] == []


def _shown_commands() -> list[str]:
    """Command lines of `orchestrate` in the docs, in code blocks and between backticks."""
    found = set()
    for page in HANDWRITTEN:
        text = page.read_text()
        found |= set(re.findall(r"^(?:\$ )?(orchestrate [a-z].*)$", text, re.MULTILINE))
        found |= set(re.findall(r"`(orchestrate [a-z][^`\n]*)`", text))
    return sorted(found)


def test_every_command_shown_is_one_and_has_the_flags_shown(
    subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in _shown_commands():
        with subtests.test(line=line):
            words = shlex.split(line, comments=True)
            command = words[1]
            group = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]  # a group
            below = [words[2]] if words[2:] and words[2] in getattr(group, "commands", {}) else []
            assert run([command, *below, "--help"]) == ExitCode.DONE
            shown = capsys.readouterr().out
            flags = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
            assert [flag for flag in flags if not re.search(rf"{flag}\b", shown)] == []


def test_first_pages_begin_with_a_sentence_and_first_commands() -> None:
    for page in ("README.md", "docs/index.md"):
        title, sentence, commands, *_ = (ROOT / page).read_text().split("\n\n")
        assert title == "# orchestrate"
        assert sentence.endswith(".")
        assert ". " not in " ".join(sentence.split()), page
        assert commands.startswith("```sh\n")
        assert "\norchestrate plan --cluster prod " in commands


def test_every_module_and_test_named_is_there() -> None:
    """Such as `engine/run.py`, below the program, the tests or the top; and tests that are witnesses."""
    text = "\n".join(page.read_text() for page in HANDWRITTEN)
    named = set(re.findall(r"`([\w.-]+/[\w/.-]+\.py)`", text))
    assert "engine/run.py" in named
    roots = (ROOT, ROOT / "orchestrator", ROOT / "tests")
    assert sorted(name for name in named if not any((root / name).is_file() for root in roots)) == []
    witnesses_ = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text))
    assert witnesses_
    missing = {one for one in witnesses_ if f"def {one[1]}" not in (ROOT / one[0]).read_text()}
    assert missing == set()


def test_every_safety_rule_has_the_witnesses_that_are_marked() -> None:
    page, marked = witnesses.PAGE.read_text(), witnesses.witnesses()
    names = witnesses.rules(page)
    assert len(names) == len(set(names)) > 0
    assert [name for name in names if not marked.get(name)] == [], "no test has `pytest.mark.proves` with it"
    assert set(marked) - set(names) == set(), "no rule of the page has this name"
    assert page == witnesses.written(page, marked), "run: make docs"


def test_witnesses_are_found_at_tests_and_in_modules(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    file, mark = tmp_path / "tests/test_b.py", "pytest.mark.proves"
    file.write_text(f'pytestmark = {mark}("one")\n\n\n@{mark}("two", "one")\n@x\ndef test_a() -> None: ...\n')
    found = witnesses.witnesses(tmp_path / "tests")
    test = "tests/test_b.py::test_a"
    assert found == {"one": ["tests/test_b.py", test], "two": [test]}
    rows = "| `one` | A rule | gone |\n| `two` | An event | | gone |\n| `three` | Another | |\n"
    assert witnesses.written(rows, found) == (
        f"| `one` | A rule | `tests/test_b.py`, `{test}` |\n"
        f"| `two` | An event |  | `{test}` |\n| `three` | Another |  |\n"
    )


def test_every_predicate_named_with_a_complaint_is_one() -> None:
    known = {rule.name for rule in PREDICATES} | {rule.name for rule in INVARIANTS}
    text = (ROOT / "docs/development/complaints.md").read_text()
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+){2,})`", text))
    assert named
    assert named - known == set()


def test_the_readme_counts_the_predicates_right() -> None:
    of_upgrade = sum(predicate.of_upgrade for predicate in PREDICATES)
    counts = (len(PREDICATES) - of_upgrade, of_upgrade)
    assert counts == (25, 9), "the new number belongs here, below, and into the pages that are named"
    said = {
        "README.md": ("nine more before an upgrade", "wenty-five"),
        "CHANGELOG.md": ("wenty-five",),
        "docs/explanation/safety.md": ("wenty-five",),
        "docs/index.md": ("| 25 predicates, twice",),
    }
    for page, words in said.items():
        assert all(word in (ROOT / page).read_text() for word in words), (page, words)
