"""`plan.json`: what it is saved as, and one message for whatever `apply` is given instead."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.program import run
from orchestrator.errors import ExitCode
from orchestrator.runs.planning import Preparation
from tests.cli.console import Console
from tests.cli.small_cluster import SmallCluster

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def state(console: Console) -> str:
    return f"sqlite:///{console.state}"


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with SmallCluster() as server:
        yield server


@pytest.fixture
def saved(console: Console, cluster: SmallCluster, state: str) -> Path:
    """A plan that is right."""
    path = console.folder / "plan.json"
    file = cluster.write_file(console.folder)
    assert run(["plan", "--cluster", file, "--out", str(path), "--state", state]) == ExitCode.DONE
    return path


@pytest.mark.parametrize("before", [None, 0o644])
def test_a_plan_is_for_its_owner_alone(
    console: Console, cluster: SmallCluster, state: str, before: int | None
) -> None:
    path = console.folder / "plan.json"
    if before is not None:
        path.write_text("an older plan")
        path.chmod(before)
    file = cluster.write_file(console.folder)
    assert run(["plan", "--cluster", file, "--out", str(path), "--state", state]) == ExitCode.DONE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["event"] == "plan"
    assert sorted(each.name for each in console.folder.iterdir()) == ["lab.yml", "plan.json"]


def test_a_plan_is_not_put_in_the_place_of_what_is_no_file(
    console: Console, cluster: SmallCluster, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = console.folder / "pipe"
    os.mkfifo(pipe)
    (console.folder / "loop").symlink_to("loop")
    file = cluster.write_file(console.folder)
    for out in (pipe, console.folder / "loop", console.folder / "no" / "folder"):
        assert run(["plan", "--cluster", file, "--out", str(out), "--state", state]) == ExitCode.USAGE
        assert capsys.readouterr().err.startswith(f"orchestrate: {out}: the plan cannot be saved: ")
    assert pipe.is_fifo()
    assert sorted(each.name for each in console.folder.iterdir()) == ["lab.yml", "loop", "pipe"]


def _first_wave(plan: dict[str, Any]) -> dict[str, Any]:
    wave: dict[str, Any] = plan["waves"][0]
    return wave


EDITS: list[tuple[Edit, str]] = [
    (lambda plan: plan.pop("policy"), "policy: is missing"),
    (lambda plan: plan.update(policy=None), "policy: has no value"),
    (lambda plan: plan["policy"].pop("cluster"), "the saved plan is damaged: policy, cluster: is missing"),
    (lambda plan: plan["policy"].update(deadlines=3), "the saved plan is damaged: policy, deadlines: "),
    (lambda plan: plan.update(waves=None), "waves: has no value"),
    (lambda plan: plan.update(waves=[3]), "waves[0]: must be a mapping"),
    (lambda plan: _first_wave(plan).update(nodes="es1"), "waves[0].nodes: must be a list"),
    (lambda plan: _first_wave(plan).update(nodes=[1]), "waves[0].nodes[0]: must be text"),
    (lambda plan: plan.update(cluster_file=None), "cluster_file: has no value"),
    (lambda plan: plan.update(fingerprint=7), "fingerprint: must be text"),
    (lambda plan: plan.update(event="status"), "is no saved plan; make one with"),
]


@pytest.mark.parametrize(("edit", "says"), EDITS)
def test_a_plan_of_another_form_is_named_by_its_key(
    saved: Path, state: str, capsys: pytest.CaptureFixture[str], edit: Edit, says: str
) -> None:
    plan = json.loads(saved.read_text())
    edit(plan)
    saved.write_text(json.dumps(plan))
    capsys.readouterr()
    assert run(["apply", str(saved), "--yes", "--state", state]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"orchestrate: {saved}: {says}")


def test_an_edited_plan_is_told_as_such(saved: Path, state: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads(saved.read_text())
    plan["fingerprint"] = plan["fingerprint"][::-1]
    saved.write_text(json.dumps(plan))
    assert run(["apply", str(saved), "--yes", "--state", state]) == ExitCode.PLAN_MISMATCH
    assert "or the file was edited; make a new plan" in capsys.readouterr().err


SERVICE = {"manager": "command", "stop": "true", "start": "true", "status": "true"}
CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "stop command": (
        {"hosts": {"service": {**SERVICE, "stop": "touch x; true"}}},
        [f"hosts.{node}.service.stop: saved `true`, now `touch x; true`" for node in ("es1", "es2", "es3")],
    ),
    "of one node": (
        {"hosts": {"overrides": {"es2": {"service": {"start": "false"}}}}},
        ["has changed: hosts.es2.service.start: saved `true`, now `false`; make a new plan"],
    ),
    "transport": ({"hosts": {"connect": "ssh"}}, ["hosts.es1.connect: saved `local`, now `ssh`"]),
    "user": ({"hosts": {"user": "eve"}}, ["hosts.es1.user: saved nothing, now `eve`"]),
    "port": ({"hosts": {"port": 2222}}, ["hosts.es1.port: saved nothing, now `2222`"]),
    "address": (
        {"hosts": {"overrides": {"es3": {"address": "192.0.2.1"}}}},
        ["hosts.es3.address: saved nothing, now `192.0.2.1`"],
    ),
    "known hosts": ({"hosts": {"known_hosts": "/var/k"}}, [".ssh/known_hosts`, now `/var/k`"]),
    "identity": ({"hosts": {"identity": "/var/id"}}, ["hosts.es1.identity: saved nothing, now `/var/id`"]),
    "sudo": ({"hosts": {"sudo": True}}, ["hosts.es1.sudo: saved `False`, now `True`"]),
    "sudo's password": (
        {"hosts": {"sudo": {"password": "command:echo hunter2"}}},
        ["hosts.es1.sudo_password: saved nothing, now `command:echo … (sha256 "],
    ),
    "service manager": (
        {"hosts": {"service": {"manager": "systemd", "unit": "evil"}}},
        ["hosts.es1.service.manager: saved `command`, now `systemd`"],
    ),
    "trust": ({"tls": {"verify": False}}, ["tls.verify: saved `True`, now `False`"]),
    "endpoints": ({"endpoints": ["http://192.0.2.1:9200"]}, [", now `http://192.0.2.1:9200`"]),
    "credentials": (
        {"auth": {"api_key": "command:touch x"}},
        ["auth.api_key: saved nothing, now `command:touch … (sha256 "],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_is_applied_only_with_the_same_access(
    cluster: SmallCluster, saved: Path, state: str, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    """It is compared before the file is used: nothing is asked by the new one, and no secret is fetched."""
    keys, says = CHANGES[change]
    file = cluster.write_file(saved.parent, **keys)
    capsys.readouterr()
    asked = len(cluster.asked)
    assert run(["apply", str(saved), "--yes", "--state", state]) == ExitCode.PLAN_MISMATCH
    said = capsys.readouterr().err
    assert f"the saved plan does not fit lab: {file} has changed: " in said
    for each in says:
        assert each in said
    assert "hunter2" not in said
    assert len(cluster.asked) == asked


def test_a_change_that_concerns_no_node_of_the_plan_is_none(
    cluster: SmallCluster, saved: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.write_file(saved.parent, hosts={"overrides": {"other*": {"user": "eve"}}})
    monkeypatch.setattr(Preparation, "run", lambda _self, _plan: pytest.fail("applied"))
    with pytest.raises(pytest.fail.Exception, match="applied"):
        run(["apply", str(saved), "--yes", "--state", state])


def test_the_access_is_in_the_fingerprint(
    saved: Path, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan in which it was changed as in the file, and the fingerprint was not."""
    plan = json.loads(saved.read_text())
    file = Path(plan["cluster_file"])
    file.write_text(file.read_text().replace('"stop": "true"', '"stop": "touch x"'))
    plan["access"] = {k: "touch x" if k.endswith("service.stop") else v for k, v in plan["access"].items()}
    saved.write_text(json.dumps(plan))
    assert run(["apply", str(saved), "--yes", "--state", state]) == ExitCode.PLAN_MISMATCH
    assert "or the file was edited" in capsys.readouterr().err


def test_a_plan_of_an_earlier_version_is_made_again(
    saved: Path, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not say how its hosts were to be reached, so nothing could be compared."""
    plan = json.loads(saved.read_text())
    del plan["access"]
    saved.write_text(json.dumps(plan))
    assert run(["apply", str(saved), "--yes", "--state", state]) == ExitCode.PLAN_MISMATCH
    assert "it was saved by an earlier version, without how its hosts are reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[" * 100_000, ": is no saved plan: it is nested too deeply"),
        (b"\n{", ":2: is no saved plan: it is not JSON (Expecting property name"),
        (b"\xff\xfe\xfd", ": is no saved plan: "),
    ],
)
def test_what_is_no_json(
    console: Console, capsys: pytest.CaptureFixture[str], content: bytes, says: str
) -> None:
    path = console.folder / "plan.json"
    path.write_bytes(content)
    assert run(["apply", str(path), "--yes"]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"orchestrate: {path}{says}")


def test_only_a_file_is_read_and_only_so_much_of_it(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(console.folder / "pipe")
    with (console.folder / "large").open("wb") as large:
        large.truncate(65 * 1024 * 1024)
    for path, says in (
        (Path("/dev/zero"), "is no regular file"),
        (console.folder / "pipe", "is no regular file"),
        (console.folder, "is a directory"),
        (console.folder / "nothing", "there is no such saved plan"),
        (console.folder / "large", "is no saved plan: it is larger than 64 MiB"),
    ):
        assert run(["apply", str(path), "--yes"]) == ExitCode.USAGE
        assert capsys.readouterr().err == f"orchestrate: {path}: {says}\n"


def test_a_plan_without_terminal_and_yes_is_not_applied(console: Console, saved: Path) -> None:
    said = console.run("apply", str(saved))
    assert said.code == ExitCode.USAGE
    asked = "there is no terminal for the question: check with `orchestrate plan --cluster /"
    assert said.message.startswith(asked)
