"""`plan.json`: what it is saved as, and one message for any other file that `apply` is given."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ExitCode
from orchestrator.runs.prepare import Preparation
from tests.cli.console import Console, Said
from tests.cli.small_cluster import SmallCluster

Edit = Callable[[dict[str, Any]], object]


def save(console: Console, file: str, out: object = "plan.json") -> Said:
    return console.run("plan", "--cluster", file, "--out", str(out))


def apply(console: Console, plan: object = "plan.json") -> Said:
    return console.run("apply", str(plan), "--yes")


@pytest.fixture(autouse=True)
def _no_run_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Preparation, "run", lambda _self, _plan: pytest.fail("applied"))


@pytest.fixture
def saved(console: Console, file: str) -> Path:
    """A plan that is right."""
    assert save(console, file).code == ExitCode.DONE
    return console.folder / "plan.json"


@pytest.mark.parametrize("before", [None, 0o644])
def test_a_plan_is_for_its_owner_alone(console: Console, file: str, before: int | None) -> None:
    path = console.folder / "plan.json"
    if before is not None:
        path.write_text("an older plan")
        path.chmod(before)
    assert save(console, file).code == ExitCode.DONE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["event"] == "plan"
    assert sorted(each.name for each in console.folder.iterdir()) == ["lab.yml", "plan.json"]


def test_a_plan_replaces_nothing_that_is_no_file(console: Console, file: str) -> None:
    pipe = console.folder / "pipe"
    os.mkfifo(pipe)
    (console.folder / "loop").symlink_to("loop")
    for out in (pipe, console.folder / "loop", console.folder / "no" / "folder"):
        said = save(console, file, out)
        assert said.code == ExitCode.USAGE
        assert said.err.startswith(f"orchestrate: {out}: the plan cannot be saved: ")
    assert pipe.is_fifo()
    assert sorted(each.name for each in console.folder.iterdir()) == ["lab.yml", "loop", "pipe"]


def _turned(plan: dict[str, Any]) -> None:
    plan["fingerprint"] = plan["fingerprint"][::-1]


EDITS: list[tuple[Edit, ExitCode, str]] = [
    (lambda plan: plan.pop("policy"), ExitCode.USAGE, "policy: is missing"),
    (lambda plan: plan.update(policy=None), ExitCode.USAGE, "policy: has no value"),
    (lambda plan: plan["policy"].pop("cluster"), ExitCode.USAGE, "damaged: policy, cluster: is missing"),
    (lambda plan: plan["policy"].update(deadlines=3), ExitCode.USAGE, "damaged: policy, deadlines: "),
    (lambda plan: plan.update(waves=None), ExitCode.USAGE, "waves: has no value"),
    (lambda plan: plan.update(waves=[3]), ExitCode.USAGE, "waves[0]: must be a mapping"),
    (lambda plan: plan["waves"][0].update(nodes="es1"), ExitCode.USAGE, "waves[0].nodes: must be a list"),
    (lambda plan: plan["waves"][0].update(nodes=[1]), ExitCode.USAGE, "waves[0].nodes[0]: must be text"),
    (lambda plan: plan.update(cluster_file=None), ExitCode.USAGE, "cluster_file: has no value"),
    (lambda plan: plan.update(fingerprint=7), ExitCode.USAGE, "fingerprint: must be text"),
    (lambda plan: plan.update(event="status"), ExitCode.USAGE, "is no saved plan; make one with"),
    (_turned, ExitCode.PLAN_MISMATCH, "or the file was edited; make a new plan"),
    # A plan of an earlier version: nothing could be compared with how hosts are reached now.
    (
        lambda plan: plan.pop("access"),
        ExitCode.PLAN_MISMATCH,
        "it was saved by an earlier version, without how its hosts are reached",
    ),
]


def test_apply_refuses_an_edited_plan_by_its_key(
    console: Console, saved: Path, subtests: pytest.Subtests
) -> None:
    for edit, code, says in EDITS:
        with subtests.test(says=says):
            plan = json.loads(saved.read_text())
            edit(plan)
            (console.folder / "edited.json").write_text(json.dumps(plan))
            said = apply(console, console.folder / "edited.json")
            (line,) = said.err.splitlines()
            assert said.code == code
            assert says in line
            if code is ExitCode.USAGE:
                assert line.startswith(f"orchestrate: {console.folder}/edited.json: ")


SERVICE = {"manager": "command", "stop": "true", "start": "true", "status": "true"}
CHANGES: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"hosts": {"service": {**SERVICE, "stop": "touch x; true"}}},
        [f"hosts.{node}.service.stop: saved `true`, now `touch x; true`" for node in ("es1", "es2", "es3")],
    ),
    (
        {"hosts": {"overrides": {"es2": {"service": {"start": "false"}}}}},
        ["has changed: hosts.es2.service.start: saved `true`, now `false`; make a new plan"],
    ),
    ({"hosts": {"connect": "ssh"}}, ["hosts.es1.connect: saved `local`, now `ssh`"]),
    ({"hosts": {"user": "eve"}}, ["hosts.es1.user: saved nothing, now `eve`"]),
    ({"hosts": {"port": 2222}}, ["hosts.es1.port: saved nothing, now `2222`"]),
    (
        {"hosts": {"overrides": {"es3": {"address": "192.0.2.1"}}}},
        ["hosts.es3.address: saved nothing, now `192.0.2.1`"],
    ),
    ({"hosts": {"known_hosts": "/var/k"}}, ["hosts.es1.known_hosts: saved nothing, now `/var/k`"]),
    ({"hosts": {"identity": "/var/id"}}, ["hosts.es1.identity: saved nothing, now `/var/id`"]),
    ({"hosts": {"sudo": True}}, ["hosts.es1.sudo: saved `False`, now `True`"]),
    (
        {"hosts": {"sudo": {"password": "command:echo hunter2"}}},
        ["hosts.es1.sudo_password: saved nothing, now `command:echo … (sha256 "],
    ),
    (
        {"hosts": {"service": {"manager": "systemd", "unit": "evil"}}},
        ["hosts.es1.service.manager: saved `command`, now `systemd`"],
    ),
    ({"tls": {"verify": False}}, ["tls.verify: saved `True`, now `False`"]),
    ({"endpoints": ["http://192.0.2.1:9200"]}, [", now `http://192.0.2.1:9200`"]),
    (
        {"auth": {"api_key": "command:touch x"}},
        ["auth.api_key: saved nothing, now `command:touch … (sha256 "],
    ),
]


@pytest.mark.usefixtures("saved")
def test_apply_needs_the_access_of_the_plan(
    console: Console, cluster: SmallCluster, subtests: pytest.Subtests
) -> None:
    """It is compared before the file is used: nothing is asked by the new one, and no secret is fetched."""
    cluster.asked.clear()
    for keys, says in CHANGES:
        with subtests.test(keys=keys):
            file = cluster.write_file(console.folder, **keys)
            said = apply(console)
            assert said.code == ExitCode.PLAN_MISMATCH
            for each in (f"the saved plan does not fit lab: {file} has changed: ", *says):
                assert each in said.err
            assert "hunter2" not in said.err
            assert cluster.asked == []


@pytest.mark.usefixtures("saved")
def test_a_change_that_concerns_no_node_of_the_plan_is_none(console: Console, cluster: SmallCluster) -> None:
    cluster.write_file(console.folder, hosts={"overrides": {"other*": {"user": "eve"}}})
    with pytest.raises(pytest.fail.Exception, match="applied"):
        apply(console)


def test_the_access_is_in_the_fingerprint(console: Console, saved: Path) -> None:
    """A plan in which it was changed as in the file, and the fingerprint was not."""
    plan = json.loads(saved.read_text())
    file = Path(plan["cluster_file"])
    file.write_text(file.read_text().replace('"stop": "true"', '"stop": "touch x"'))
    plan["access"] = {k: "touch x" if k.endswith("service.stop") else v for k, v in plan["access"].items()}
    saved.write_text(json.dumps(plan))
    said = apply(console)
    assert (said.code, "or the file was edited" in said.err) == (ExitCode.PLAN_MISMATCH, True)


def test_apply_reads_only_a_file_of_json_of_some_size(console: Console, subtests: pytest.Subtests) -> None:
    os.mkfifo(console.folder / "pipe")
    (console.folder / "deep").write_text("[" * 100_000)
    with (console.folder / "large").open("wb") as large:
        large.truncate(65 * 1024 * 1024)
    for path, says in [
        ("deep", ": is no saved plan: it is nested too deeply"),
        ("pipe", ": is no regular file\n"),
        ("large", ": is no saved plan: it is larger than 64 MiB\n"),
    ]:
        with subtests.test(path=path):
            said = apply(console, path)
            assert (said.code, said.err.count("\n")) == (ExitCode.USAGE, 1)
            assert said.err.startswith(f"orchestrate: {path}{says}")


@pytest.mark.usefixtures("saved")
def test_a_plan_without_terminal_and_yes_is_not_applied(console: Console) -> None:
    said = console.run("apply", "plan.json")
    question = "there is no terminal for the question: check with `orchestrate plan --cluster /"
    assert (said.code, said.message.startswith(question)) == (ExitCode.USAGE, True)
