"""The variables that programs get: no secret that a file names, and everything else that `ssh` may need."""

from __future__ import annotations

import ast
import getpass
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator import variables
from orchestrator.config.cluster import check_cluster
from orchestrator.config.secrets import parse_reference, run_command
from orchestrator.config.yaml import parse
from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.connections.pool import Connections
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings
from tests.tools import needs

ROOT = Path(__file__).parents[3]
SECRETS = {
    "V_ES_PASSWORD": "planted-1",
    "V_SUDO": "planted-2",
    "V_OVERRIDE": "planted-3",
    "ORCHESTRATE_STATE": "postgresql+psycopg://o:planted-4@db/state",
    "PGPASSWORD": "planted-5",
}
NEEDED = {"SSH_AUTH_SOCK": "/run/agent", "KRB5CCNAME": "FILE:/tmp/krb5", "V_OF_THE_PROXY": "its own"}
FILE = """\
kind: elasticsearch
name: lab
endpoints: [https://es1:9200]
auth: {basic: {username: orch, password: "env:V_ES_PASSWORD"}}
hosts:
  sudo: {password: "env:V_SUDO"}
  overrides:
    es7: {sudo: {password: "env:V_OVERRIDE"}}
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, **NEEDED}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def read_file() -> Iterator[None]:
    """A cluster file was read; none of its secrets was used yet."""
    check_cluster(parse(FILE, "lab.yml"), path=Path("lab.yml"), home=Path("/root"))
    return


def kept(env: str) -> None:
    assert "planted-" not in env
    assert not [name for name in SECRETS if f"{name}=" in env]


@pytest.mark.usefixtures("read_file")
def test_no_program_gets_a_variable_that_a_file_names() -> None:
    programs = variables.for_programs()
    kept("\n".join(f"{name}={value}" for name, value in programs.items()))
    assert {name: programs[name] for name in NEEDED} == NEEDED
    assert "V_OF_THE_PROXY" not in variables.for_commands()
    assert {"PATH", "LC_ALL"} <= set(variables.for_commands())


def test_a_usual_variable_that_a_file_names_is_held_back() -> None:
    parse_reference("env:DOCKER_HOST")
    assert "DOCKER_HOST" not in variables.for_commands()


@pytest.mark.usefixtures("read_file")
def test_password_stores_hooks_and_command_gates_get_none() -> None:
    env = run_command(["env"]).decode()
    kept(env)
    assert "KRB5CCNAME=FILE:/tmp/krb5" in env
    here = LocalConnection().run("env", timeout=20.0)
    assert isinstance(here, CommandResult)
    kept(here.stdout)
    assert "KRB5CCNAME" not in here.stdout


@pytest.mark.usefixtures("read_file")
@pytest.mark.parametrize(
    ("connect", "option"),
    [
        (Connect.SSH, "ProxyCommand sh -c 'env >{file}; echo SSH-1.0-x'"),
        (Connect.OPENSSH, "ProxyCommand sh -c 'env >{file}'"),
        (Connect.OPENSSH, 'Match exec "env >{file}"'),
    ],
)
def test_nothing_that_an_ssh_configuration_runs_gets_one(
    tmp_path: Path, connect: Connect, option: str
) -> None:
    if connect is Connect.OPENSSH:
        needs("ssh")
    file, config = tmp_path / "env", tmp_path / "config"
    config.write_text(f"Host *\n  HostName 127.0.0.1\n  Port 1\n{option.format(file=file)}\n")
    settings = HostSettings(
        node="es1",
        address="es1",
        connect=connect,
        user=getpass.getuser(),
        known_hosts=(str(tmp_path / "known_hosts"),),
        ssh_config=(str(config),),
    )
    with closing(Connections(wait=lambda _: None)) as connections:
        connection = connections.to(settings)
        assert getattr(connection, "run", None) is not None, connection
        for _ in range(5):  # a connection that fails at once may end the command before it has written
            connection.run("true", timeout=20.0)
            if file.exists() and file.read_text():
                break
    env = file.read_text()
    kept(env)
    assert "SSH_AUTH_SOCK=/run/agent" in env
    assert "V_OF_THE_PROXY=its own" in env


_RUN = {"run", "Popen", "call", "check_call", "check_output", "getoutput"}
_STARTS = _RUN | {"system", "popen", "ProxyCommand"}
_OWN = {"lab", "airflow"}
"""They start servers of a laboratory, and this program itself."""


def test_every_program_gets_chosen_variables() -> None:
    """Without `env`, a program gets every variable of this one."""
    found = []
    for path in sorted((ROOT / "orchestrator").rglob("*.py")):
        if path.relative_to(ROOT / "orchestrator").parts[0] in _OWN:
            continue
        text = path.read_text()
        if "**os.environ" in text:
            found.append(f"{path.relative_to(ROOT)}: every variable")
        tree = ast.parse(text if any(f"{one}." in text for one in ("subprocess", "os", "paramiko")) else "")
        for call in (one for one in ast.walk(tree) if isinstance(one, ast.Call)):
            name = ast.unparse(call.func)
            module, _, what = name.rpartition(".")
            starts = what in _STARTS and module in {"subprocess", "os", "paramiko"}
            if (starts or name.startswith(("os.exec", "os.spawn", "os.posix_spawn"))) and not any(
                keyword.arg == "env" for keyword in call.keywords
            ):
                found.append(f"{path.relative_to(ROOT)}:{call.lineno}: {name}")
    assert found == []
