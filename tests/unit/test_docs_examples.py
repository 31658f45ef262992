"""What the docs show to be copied is tried: units, crontabs, jobs, DAGs, and command lines by the program."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
import typer
from ruamel.yaml import YAML

from orchestrator.airflow.command import Selection
from orchestrator.cli.program import app
from orchestrator.runs import Connection
from tests.simulation.play import cluster, lives, policy
from tests.simulation.program import Simulation
from tests.tools import needs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs/index.md", *sorted((ROOT / "docs").glob("[eht]*/*.md"))]
"""For operators: the first pages, and those of how-to, tutorial and explanation."""
PROGRAM = "/usr/local/bin/orchestrate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A block of a page; its first line names the file that it is."""

    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        found = re.match(r"# (\S+)\n", self.text)
        return found[1] if found else ""


def _examples() -> list[Example]:
    blocks = []
    for page in PAGES:
        found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        blocks += [Example(page=page, language=language, text=text) for language, text in found]
    return blocks


EXAMPLES = _examples()


def _of(*languages: str) -> list[Example]:
    return [one for one in EXAMPLES if one.language in languages]


UNITS = [one for one in _of("ini") if one.name.startswith("/etc/systemd/system/")]
JOBS = [one for one in _of("yaml") if one.name in {".gitlab-ci.yml", ".github/workflows/settle-posts.yml"}]
CRONTABS = _of("cron")
DAGS = [one for one in _of("python") if one.name.startswith("dags/")]


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All units of the docs in one folder, with a program that is there on every machine."""
    folder = tmp_path_factory.mktemp("units")
    for one in UNITS:
        path = folder / Path(one.name).name
        text = one.text.replace(PROGRAM, "/bin/true")
        assert not path.exists() or path.read_text() == text, f"{one.name} is shown in two ways"
        path.write_text(text)
    return folder


def _analyze(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  (systemd's own tool)
        [needs("systemd-analyze"), *words],
        env={"SYSTEMD_UNIT_PATH": f"{folder}:"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_systemd_finds_nothing_wrong_with_the_units(units: Path) -> None:
    names = sorted(path.name for path in units.iterdir())
    shown = [str(units / name.replace("@.", "@any.")) for name in names]
    for name in names:
        if "@." in name:
            shutil.copy(units / name, units / name.replace("@.", "@any."))
    done = _analyze("verify", "--man=no", *shown, folder=units)
    ours = [line for line in done.stderr.splitlines() if "orchestrate" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_systemd_would_find_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "orchestrate-x.service").write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n")
    service = "[Service]\nExecStart=/bin/true\n"
    for broken in (
        "[Timer]\nOnCalendar=every now and then",
        f"{service}Tiemout=3",
        f"{service}KillMode=gently",
    ):
        path = tmp_path / f"orchestrate-x.{'timer' if 'Timer' in broken else 'service'}"
        path.write_text(f"{broken}\n")
        assert "orchestrate-x" in _analyze("verify", "--man=no", str(path), folder=tmp_path).stderr


def test_every_timer_has_its_service_and_every_handler_is_shown() -> None:
    names = {Path(one.name).name for one in UNITS}
    timers = {name for name in names if name.endswith(".timer")}
    assert {name.replace(".timer", ".service") for name in timers} <= names
    handlers = {found for one in UNITS for found in re.findall(r"OnFailure=(\S+)", one.text)}
    assert {re.sub(r"@.*\.service", "@.service", handler) for handler in handlers} <= names


def test_a_unit_gives_a_stand_down_its_time_and_one_signal() -> None:
    texts = [one.text for one in UNITS if PROGRAM in one.text]
    assert texts
    for part in ("\nKillMode=mixed\n", "\nTimeoutStopSec=30min\n", "--yes", "Type=oneshot"):
        assert [text for text in texts if part not in text] == []


def test_a_job_is_one_that_outlives_its_runner() -> None:
    read = {one.name: YAML(typ="safe", pure=True).load(StringIO(one.text)) for one in JOBS}
    gitlab, github = read[".gitlab-ci.yml"], read[".github/workflows/settle-posts.yml"]
    for job in JOBS:
        assert "systemd-run --user --wait" in job.text
        assert "cancel-in-progress: true" not in job.text
    settle = gitlab["settle-posts"]
    hours, minutes = re.fullmatch(r"(\d+)h (\d+)m", settle["timeout"]).groups()
    assert int(hours) * 60 + int(minutes) > 60 * _hours(settle["script"][0])
    assert settle["resource_group"]
    assert settle["retry"]["exit_codes"] == [3, 6]
    settle = github["jobs"]["settle"]
    assert settle["timeout-minutes"] > 60 * _hours(settle["steps"][0]["run"])
    assert github["concurrency"]["group"]


def _hours(line: str) -> int:
    found = re.search(r"--timeout (\d+)h", line)
    assert found is not None, line
    return int(found[1])


FIELD = r"(\*|[0-9]+(-[0-9]+)?)(/[0-9]+)?"


CRON_LINES = [
    line for one in CRONTABS for line in one.text.splitlines() if line and not re.match(r"#|[A-Z_]+=", line)
]


def test_a_crontab_has_lines_that_cron_and_a_shell_can_read() -> None:
    (table,) = (one for one in CRONTABS if one.name)
    assert table.name.startswith("/etc/cron.d/")
    assert "MAILTO=" in table.text
    assert [
        word for line in CRON_LINES for word in ("restart", "post-bulk-index") if f" {word} " in line
    ] == [
        "restart",
        "post-bulk-index",
    ]
    for line in CRON_LINES:
        found = re.fullmatch(rf"((?:{FIELD} ){{5}})([a-z]+) (.+)", line)
        assert found is not None, line
        command = line.split(" ", 6)[6]
        assert "%" not in command.replace(r"\%", ""), "cron ends the command at a bare percent sign"
        done = subprocess.run(["/bin/sh", "-n", "-c", command], capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stderr


def test_cron_sends_mail_for_every_end_but_done_and_leased(tmp_path: Path) -> None:
    program = tmp_path / "orchestrate"
    ends = ((0, False), (6, False), (3, True), (8, True))
    for line, (code, mailed) in product(CRON_LINES, ends):
        command = line.split(" ", 6)[6].replace("/var/log/orchestrate", str(tmp_path))
        command = command.replace(PROGRAM, str(program))
        program.write_text(f'#!/bin/sh\necho \'{{"event": "summary"}}\'\nexit {code}\n')
        program.chmod(0o755)
        done = subprocess.run(  # noqa: S603  (the line of the docs)
            ["/bin/sh", "-c", command],
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        assert (f"exit code {code}\n" in done.stdout) is bool(done.stdout) is mailed


def _commands() -> Iterator[str]:
    """Every whole command line of `orchestrate` in the how-to pages, joined where a file folds it."""
    for one in EXAMPLES:
        text = re.sub(r"\\\n\s*", " ", one.text)
        if one.language == "cron":
            text = re.sub(r" (>|2>|\|\|) .*", "", text)
        for line in text.splitlines():
            found = re.search(r"(?:^|[ =/])orchestrate ((?!orchestrate)[a-z][a-z-]*(?: .*)?)$", line)
            if found and one.language in {"sh", "ini", "cron", "yaml"} and not line.lstrip().startswith("#"):
                yield re.sub(r"\s+#.*", "", found[1])


COMMANDS = sorted(set(_commands()))


def test_the_program_itself_reads_every_command_line_shown(subtests: pytest.Subtests) -> None:
    shown = "\n".join(COMMANDS)
    for part in ("--timeout 5h", "--timeout 3h", "--pause-after 1 --yes", "--started-before 30d --yes"):
        assert part in shown, "command lines are found in all kinds of examples"
    for line in COMMANDS:
        with subtests.test(line=line):
            words = shlex.split(line)
            command = typer.main.get_command(app)
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words[0]]  # type: ignore[attr-defined]  # a group
                words = words[1:]
            assert command.make_context("orchestrate", words).params


def test_a_dag_gives_its_operator_arguments_that_it_has() -> None:
    """A real Airflow loads them too: `tests/integration/test_airflow.py`."""
    source = (ROOT / "orchestrator/airflow/operators.py").read_text()
    classes = {one.name: one for one in ast.parse(source).body if isinstance(one, ast.ClassDef)}
    base = _arguments(classes["OrchestrateOperator"])
    assert set(inspect.signature(Selection).parameters) <= base, "operators pass on all of a selection"
    assert DAGS
    for dag in DAGS:
        (call,) = (
            node
            for node in ast.walk(ast.parse(dag.text))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes
        )
        assert isinstance(call.func, ast.Name)
        of_every_task = {"task_id", "retries", "retry_delay", "execution_timeout", "queue"}
        given = {keyword.arg for keyword in call.keywords}
        assert given - of_every_task <= base | _arguments(classes[call.func.id])
        assert {"timeout", "execution_timeout", "retries"} <= given


def _arguments(owner: ast.ClassDef) -> set[str]:
    (init,) = (one for one in owner.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    return {argument.arg for argument in init.args.kwonlyargs}


def test_the_program_in_python_restarts_a_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example as it is shown, with a simulated cluster in the place of `prod`."""
    (example,) = [one for one in _of("python") if one.name == "restart_prod.py"]
    simulated = Simulation(cluster(3), policy=policy())
    named: list[str] = []

    def connect(name: str) -> AbstractContextManager[Connection]:
        named.append(name)
        return simulated.connect()

    monkeypatch.setattr("orchestrator.runs.connect", connect)
    exec(compile(example.text, example.name, "exec"), {})  # noqa: S102  (the example itself)
    first, *events, last = capsys.readouterr().out.splitlines()
    (run,) = simulated.runs()
    assert named == ["prod"]
    assert first == "3 waves"
    assert last == f"{run}: done, exit code 0"
    assert len(events) == len(simulated.records(run))
    assert set(lives(simulated.world).values()) == {2}
