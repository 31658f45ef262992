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
from pathlib import Path

import pytest
import typer
from ruamel.yaml import YAML

from orchestrator.airflow.command import Selection
from orchestrator.cli.program import app
from orchestrator.runs import Connection
from orchestrator.runs.simulated import Simulation
from tests.simulation.play import cluster, lives, policy
from tests.tools import needs

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/how-to").glob("*.md"))
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


def test_there_are_examples_of_every_kind() -> None:
    assert UNITS
    assert len(JOBS) == 2
    assert len(CRONTABS) == 1
    assert DAGS
    assert CRONTABS[0].name.startswith("/etc/cron.d/")


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


@pytest.mark.parametrize("broken", ["OnCalendar=every now and then", "Tiemout=3", "KillMode=gently"])
def test_systemd_would_find_what_is_wrong(tmp_path: Path, broken: str) -> None:
    section, kind = ("Timer", "timer") if "Calendar" in broken else ("Service", "service")
    (tmp_path / "orchestrate-x.service").write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n")
    path = tmp_path / f"orchestrate-x.{kind}"
    path.write_text(f"{path.read_text() if path.exists() else ''}[{section}]\n{broken}\n")
    done = _analyze("verify", "--man=no", str(path), folder=tmp_path)
    assert "orchestrate-x" in done.stderr


def test_every_timer_has_its_service_and_every_handler_is_shown() -> None:
    names = {Path(one.name).name for one in UNITS}
    timers = {name for name in names if name.endswith(".timer")}
    assert {name.replace(".timer", ".service") for name in timers} <= names
    handlers = {found for one in UNITS for found in re.findall(r"OnFailure=(\S+)", one.text)}
    assert {re.sub(r"@.*\.service", "@.service", handler) for handler in handlers} <= names


@pytest.mark.parametrize("unit", [one for one in UNITS if PROGRAM in one.text], ids=lambda one: one.name)
def test_a_unit_gives_a_stand_down_its_time_and_one_signal(unit: Example) -> None:
    assert "\nKillMode=mixed\n" in unit.text
    assert "\nTimeoutStopSec=30min\n" in unit.text
    assert "--yes" in unit.text
    assert "Type=oneshot" in unit.text


@pytest.mark.parametrize("job", JOBS, ids=lambda one: one.name)
def test_a_job_is_one_that_outlives_its_runner(job: Example) -> None:
    found = YAML(typ="safe", pure=True).load(StringIO(job.text))
    assert found
    assert "systemd-run --user --wait" in job.text
    assert "cancel-in-progress: true" not in job.text
    if "jobs" in found:
        settle = found["jobs"]["settle"]
        assert settle["timeout-minutes"] > 60 * _hours(settle["steps"][0]["run"])
        assert found["concurrency"]["group"]
    else:
        settle = found["settle-posts"]
        hours, minutes = re.fullmatch(r"(\d+)h (\d+)m", settle["timeout"]).groups()
        assert int(hours) * 60 + int(minutes) > 60 * _hours(settle["script"][0])
        assert settle["resource_group"]
        assert settle["retry"]["exit_codes"] == [3, 6]


def _hours(line: str) -> int:
    found = re.search(r"--timeout (\d+)h", line)
    assert found is not None, line
    return int(found[1])


FIELD = r"(\*|[0-9]+(-[0-9]+)?)(/[0-9]+)?"


@pytest.mark.parametrize("table", CRONTABS, ids=lambda one: one.name)
def test_a_crontab_has_lines_that_cron_and_a_shell_can_read(table: Example) -> None:
    jobs = 0
    for line in table.text.splitlines():
        if not line or line.startswith("#") or re.match(r"[A-Z_]+=", line):
            continue
        found = re.fullmatch(rf"((?:{FIELD} ){{5}})([a-z]+) (.+)", line)
        assert found is not None, line
        command = line.split(" ", 6)[6]
        assert "%" not in command.replace(r"\%", ""), "cron ends the command at a bare percent sign"
        done = subprocess.run(["/bin/sh", "-n", "-c", command], capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stderr
        jobs += 1
    assert jobs == 1
    assert "MAILTO=" in table.text


@pytest.mark.parametrize(("code", "mailed"), [(0, False), (6, False), (3, True), (8, True)])
def test_cron_sends_mail_for_every_end_but_done_and_leased(tmp_path: Path, code: int, mailed: bool) -> None:  # noqa: FBT001
    (line,) = [line for line in CRONTABS[0].text.splitlines() if line.startswith("*/")]
    program = tmp_path / "orchestrate"
    program.write_text(f'#!/bin/sh\necho \'{{"event": "summary"}}\'\nexit {code}\n')
    program.chmod(0o755)
    command = line.split(" ", 6)[6].replace("/var/log/orchestrate", str(tmp_path))
    done = subprocess.run(  # noqa: S603  (the line of the docs)
        ["/bin/sh", "-c", command],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert (f"exit code {code}\n" in done.stdout) is mailed
    assert bool(done.stdout) is mailed


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


def test_command_lines_are_found_in_all_kinds_of_examples() -> None:
    text = "\n".join(COMMANDS)
    assert COMMANDS
    for part in ("--timeout 5h", "--timeout 3h", "--pause-after 1 --yes", "--started-before 30d --yes"):
        assert part in text, part


def test_the_program_itself_reads_every_command_line_shown(subtests: pytest.Subtests) -> None:
    for line in COMMANDS:
        with subtests.test(line=line):
            words = shlex.split(line)
            command = typer.main.get_command(app)
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words[0]]  # type: ignore[attr-defined]  # a group
                words = words[1:]
            context = command.make_context("orchestrate", words)
            assert context.params


def test_the_program_would_refuse_a_line_that_is_wrong() -> None:
    command = typer.main.get_command(app).commands["restart"]  # type: ignore[attr-defined]  # a group
    for words in (
        ["--cluster"],
        ["--cluster", "prod", "--no-such-flag"],
        ["--cluster", "prod", "--output", "xml"],
    ):
        with pytest.raises(typer.TyperException):
            command.make_context("orchestrate", words)


@pytest.mark.parametrize("dag", DAGS, ids=lambda one: one.name)
def test_a_dag_gives_its_operator_arguments_that_it_has(dag: Example) -> None:
    """A real Airflow loads them too: `tests/integration/test_airflow.py`."""
    source = (ROOT / "orchestrator/airflow/operators.py").read_text()
    classes = {one.name: one for one in ast.parse(source).body if isinstance(one, ast.ClassDef)}
    calls = [
        node
        for node in ast.walk(ast.parse(dag.text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes
    ]
    assert len(calls) == 1
    (call,) = calls
    assert isinstance(call.func, ast.Name)
    known = _arguments(classes["OrchestrateOperator"]) | _arguments(classes[call.func.id])
    of_every_task = {"task_id", "retries", "retry_delay", "execution_timeout", "queue"}
    given = {keyword.arg for keyword in call.keywords}
    assert given - of_every_task <= known
    assert {"timeout", "execution_timeout", "retries"} <= given


def _arguments(owner: ast.ClassDef) -> set[str]:
    (init,) = (one for one in owner.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    return {argument.arg for argument in init.args.kwonlyargs}


def test_the_operators_pass_on_all_that_a_selection_has() -> None:
    tree = ast.parse((ROOT / "orchestrator/airflow/operators.py").read_text())
    (base,) = (
        one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "OrchestrateOperator"
    )
    assert set(inspect.signature(Selection).parameters) <= _arguments(base)


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
