"""What a TAB offers, as bash asks for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from tests.cli.console import Console
from tests.cli.runs import RUN, ended_run

LATER = "20261101-0400-abcd"
FILES = {
    "configs/clusters/prod.yml": "kind: elasticsearch\n",
    "configs/clusters/staging.yml": "kind: elasticsearch\n",
    "configs/playbooks/careful.yml": "kind: elasticsearch\n",
    "block.yml": "kind: elasticsearch\nname: prod  # ours\n",
    "flow.yml": '{"kind": "elasticsearch",\n "name": "prod"\n}',
    "other.yml": "kind: elasticsearch\nname: other\n",
    "binary.yml": "\0\x01\x7f\xff",
}


def tab(console: Console, line: str) -> list[str]:
    """What is offered at the end of the line."""
    words = f"orchestrate {line}"
    place = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    asked = {"_ORCHESTRATE_COMPLETE": "complete_bash", **place}
    said = replace(console, environment={**console.environment, **asked}).run()
    assert (said.code, said.err) == (0, "")
    return said.out.split()


@pytest.fixture
def configured(console: Console) -> Console:
    """Files of an operator, and two runs: of two nodes of prod, and later of three of lab."""
    for name, text in FILES.items():
        file = console.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="latin-1")
    ended_run(console, cluster="prod", nodes=2, at=1.0)
    ended_run(console, run=LATER, at=2.0)
    return console


def test_a_tab_offers_what_there_is(configured: Console, subtests: pytest.Subtests) -> None:
    here = f"--state {configured.url}"
    nowhere = replace(configured, environment={"ORCHESTRATE_STATE": f"{configured.url}.none"})
    both, prod, lab = f"{RUN} {LATER}", "es1 es2", "es1 es2 es3"
    for line, offered in [
        ("res", "restart restore resume"),
        ("init --fing", "--fingerprint"),
        ("init --kind ", "elasticsearch riak"),
        ("restart --cluster ", "prod staging"),
        ("status --cluster st", "staging"),
        ("resume ", both),
        ("resume 2027", ""),
        (f"resume {here} ", both),
        ("resume --state postgresql+psycopg://db/state ", ""),
        ("status --output json --output json ", both),
        ("restart --only ", lab),
        ("resume --skip es2", "es2"),
        ("restart --only es1,es", "es1,es1 es1,es2 es1,es3"),
        ("restart --cluster block.yml --only ", prod),
        ("restart --cluster flow.yml --only ", prod),
        *(
            (f"restart --cluster {file} --only ", "")
            for file in ("other.yml", "./binary.yml", "./no.yml", "./")
        ),
        ("explain no_other_m", "no_other_maintenance"),
    ]:
        with subtests.test(line=line):
            assert sorted(tab(configured, line)) == offered.split()
    for line, among in [
        ("restart --playbook ", {"careful", "elasticsearch-rolling-restart"}),
        ("tune apply --profile ", {"elasticsearch"}),
        ("explain ", {"stand-down"}),
        ("restart --disable-predicate ", {"no_other_maintenance", "all_members_up"}),
    ]:
        with subtests.test(line=line):
            assert among <= set(tab(configured, line))
    assert "lease_is_held" not in tab(configured, "restart --disable-predicate ")
    assert tab(nowhere, "resume ") == []
    assert sorted(tab(nowhere, f"resume {here} ")) == both.split()


@pytest.mark.parametrize("place", [{"COMP_CWORD": "x"}, {"COMP_CWORD": ""}, {}])
def test_variables_that_cannot_be_read_offer_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], place: dict[str, str]
) -> None:
    words = {"_ORCHESTRATE_COMPLETE": "complete_bash", "COMP_WORDS": "orchestrate res", **place}
    monkeypatch.delenv("COMP_CWORD", raising=False)
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    assert run([]) == ExitCode.USAGE
    assert capfd.readouterr() == ("", "")


def test_without_readable_files_nothing_is_offered_or_printed(console: Console) -> None:
    console.state.write_text("no database")
    for line in ("resume ", "restart --only ", "restart --cluster nowhere --only "):
        assert tab(console, line) == []
    assert console.state.read_text() == "no database"
