"""`kind: hosts`: tuned, diagnosed and validated by its file; every other command refuses it by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from orchestrator.cli.program import app
from orchestrator.errors import ExitCode, UsageError
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings
from orchestrator.runs import connect, plan, rehearse, restart, restore, resume
from orchestrator.runs import tune as tune_hosts
from orchestrator.runs.reach import host_settings
from tests.cli.console import Console, Said, pattern
from tests.cli.small_cluster import SmallCluster
from tests.fakes import host_kinds
from tests.fakes.host_kinds import DATA
from tests.fakes.host_tree import HostTree

TAKEN = {"tune check", "tune apply", "tune revert", "diagnose", "validate"}
NEEDED = {"upgrade": ("--to", "9.1.0"), "force-merge": ("--index", "a"), "post-bulk-index": ("--index", "a")}
REFUSAL = (
    "cass.yml: this file names hosts without a cluster (`kind: hosts`), for `tune`, `diagnose` and"
    " `validate`; this command needs the file of a cluster"
)
OURS = {
    "applies_to": "mongodb",
    "settings": {"vm.swappiness": 1, "io_scheduler": "none", "limits.nofile": 64000},
}


def file(console: Console, **keys: Any) -> str:
    """Hosts on this machine: `cass1` in rack1, `cass2` in rack2, `cass3` in none."""
    names = {"cass1": {"group": "rack1"}, "cass2": {"group": "rack2"}, "cass3": {}}
    hosts = {"names": names, "connect": "local", "sudo": False, **keys.pop("hosts", {})}
    path = console.folder / "cass.yml"
    path.write_text(json.dumps({"kind": "hosts", "name": "cass", "hosts": hosts, **keys}))
    return path.name


Trees = Callable[..., Mapping[str, HostTree]]


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trees:
    """Hosts made of files, in place of those that the file reaches; the file says all the rest."""
    made: dict[str, HostTree] = {}

    def on_trees(*read: Any) -> dict[NodeName, HostSettings]:
        settings = host_settings(*read)
        return {
            name: replace(one, root=str(made[name].path), environment=made[name].environment)
            for name, one in settings.items()
        }

    for module in ("from_file", "tuning"):
        monkeypatch.setattr(f"orchestrator.runs.{module}.host_settings", on_trees)

    def make(unit: str, **kinds: str) -> Mapping[str, HostTree]:
        for name, kind in kinds.items():
            made[name] = host_kinds.KINDS[kind](tmp_path / name)
            made[name].folder("/etc/security/limits.d")
            made[name].service(unit)
        return made

    return make


def tune(console: Console, verb: str, *more: str) -> Said:
    return console.run("tune", verb, "--cluster", "cass.yml", *more, *(["--yes"] * (verb != "check")))


def states(said: Said) -> dict[tuple[str, str], dict[str, Any]]:
    return {(line["node"], line["tunable"]): line for line in said.lines if line["event"] == "tunable"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "unit"),
    [("cassandra", "cassandra"), ("hadoop", "hadoop-hdfs-datanode"), ("./ours.yml", "mongod")],
)
def test_a_profile_applies_wholly_and_is_reverted(
    console: Console, trees: Trees, profile: str, unit: str
) -> None:
    hosts = trees(unit, cass1="rhel6", cass2="rhel7", cass3="debian")
    (console.folder / "ours.yml").write_text(json.dumps(OURS))
    file(console, tune=profile, hosts={"service": {"unit": unit}, "data": [DATA]})
    before = {name: tree.files() for name, tree in hosts.items()}
    found = states(tune(console, "check", "--output", "json"))
    assert {one["verdict"] for one in found.values()} <= {"drift", "ok"}, "each tunable is for each host"
    assert {name for (name, tunable), one in found.items() if one["changes"]} == set(hosts)
    applied = tune(console, "apply")
    assert applied.code == ExitCode.DONE, applied
    assert "applies to processes that start from now on; a running service needs a restart\n" in applied.err
    assert "orchestrate restart" not in applied.err
    assert tune(console, "check").code == ExitCode.DONE
    for name, tree in hosts.items():
        assert f"/etc/orchestrate-tuning/cass+{name}.part" in tree.files()
    reverted = tune(console, "revert")
    assert reverted.code == ExitCode.DONE, reverted
    assert {name: tree.files() for name, tree in hosts.items()} == before


@pytest.mark.slow
def test_a_host_without_a_service_or_data(console: Console, trees: Trees) -> None:
    """What the file does not name is not tuned, and each command says so."""
    tree = trees("cassandra", one="debian")["one"]
    path = file(console, hosts={"names": {"one": {}}, "data": [DATA]})
    before = tree.files()
    said = tune(console, "check")
    assert said.code == ExitCode.USAGE
    assert said.message.startswith(
        "cass.yml: no tuning profile is named: hosts without a cluster have no def"
    )
    found = states(tune(console, "check", "--profile", "cassandra", "--output", "json"))
    limits = found["one", "limits.nofile"]
    assert limits["verdict"] == "not_applicable"
    assert limits["detail"] == "`hosts.service` names no service of systemd, and no init script"
    assert tune(console, "apply", "--profile", "cassandra").code == ExitCode.DONE
    assert tree.files() != before
    assert tune(console, "revert").code == ExitCode.DONE
    assert tree.files() == before
    file(console, hosts={"names": {"one": {}}})
    said = console.run("validate", "--cluster", path)
    assert (
        "-    one          service      not named (`hosts.service`), so the limits of a service are not"
        in said.out
    )
    assert "-    one          data         not named (`hosts.data`), so disks are not tuned\n" in said.out


@pytest.mark.slow
def test_programs_of_two_services_on_one_machine(console: Console, trees: Trees) -> None:
    """Two names for it, each with its own service: both limits are set, and the kernel once."""
    hosts = trees("hadoop-hdfs-datanode", **{"w1-hdfs": "debian"})
    hosts["w1-yarn"] = hosts["w1-hdfs"]
    tree = hosts["w1-hdfs"]
    tree.service("hadoop-yarn-nodemanager")
    of = {
        "*-hdfs": {"service": {"unit": "hadoop-hdfs-datanode"}},
        "*-yarn": {"service": {"unit": "hadoop-yarn-nodemanager"}},
    }
    names: dict[str, Any] = {"w1-hdfs": {}, "w1-yarn": {}}
    file(console, tune="hadoop", hosts={"names": names, "overrides": of, "data": [DATA]})
    before = tree.files()
    applied = tune(console, "apply")
    assert applied.code == ExitCode.DONE, applied
    drop_in = "/etc/systemd/system/{}.service.d/zz-orchestrate-limits.nofile.conf"
    for override in of.values():
        assert "LimitNOFILE=65536" in (tree.read(drop_in.format(override["service"]["unit"])) or "")
    assert tune(console, "revert").code == ExitCode.DONE
    assert tree.files() == before


def test_groups_select_hosts(console: Console, subtests: pytest.Subtests) -> None:
    wanted = {"applies_to": "any", "settings": {"vm.swappiness": 1}, "persist": False}
    (console.folder / "wanted.yml").write_text(json.dumps(wanted))
    file(console, tune="./wanted.yml")
    for words, nodes in {
        (): {"cass1", "cass2", "cass3"},
        ("--zone", "rack2"): {"cass2"},
        ("--zone", "rack1", "--only", "cass*"): {"cass1"},
        ("--zone", "rack2", "--exclude", "cass1"): {"cass2"},
    }.items():
        with subtests.test(words=words):
            assert {name for name, _ in states(tune(console, "check", "--output", "json", *words))} == nodes
    for words, message in {
        ("--zone", "rack9"): "no selected node is in zone rack9; the zones are rack1, rack2",
        (
            "--zone",
            "rack1",
            "--only",
            "cass2",
        ): "no selected node is in zone rack1; the zones are rack1, rack2",
        ("--only", "es1"): "no node is called es1; there are cass1, cass2, cass3",
    }.items():
        with subtests.test(words=words):
            said = tune(console, "check", *words)
            assert (said.code, said.out) == (ExitCode.USAGE, "")
            assert re.fullmatch(pattern(message, console), said.err)


def test_zones_of_a_cluster_select_hosts_too(console: Console, cluster: SmallCluster) -> None:
    wanted = {"applies_to": "elasticsearch", "settings": {"vm.swappiness": 1}, "persist": False}
    (console.folder / "wanted.yml").write_text(json.dumps(wanted))
    cluster.write_file(console.folder)
    words = ("tune", "check", "--cluster", "lab.yml", "--profile", "./wanted.yml", "--output", "json")
    assert console.run(*words, "--zone", "a").message == "no selected node is in zone a; no node has a zone"
    cluster.zones = {"es1": "a", "es2": "b", "es3": "b"}
    cluster.settings["persistent"]["cluster.routing.allocation.awareness.attributes"] = "zone"
    assert {name for name, _ in states(console.run(*words, "--zone", "b"))} == {"es2", "es3"}


def test_diagnosis_of_hosts_without_a_cluster(console: Console) -> None:
    path = file(console)
    said = console.run("diagnose", "--cluster", path, "--sample", "1s", "--zone", "rack1", "--output", "json")
    assert said.lines[-1]["examined"] == ["cass1"]
    assert said.code == (ExitCode.HELD if said.lines[-1]["findings"] else ExitCode.DONE)
    assert "not compared: past restarts, which hosts without a cluster do not have\n" in said.err
    assert not console.state.exists()


def test_validation_of_hosts_without_a_cluster(console: Console) -> None:
    path = file(console, tune="cassandra", hosts={"data": ["/"], "overrides": {"cass9": {"user": "a"}}})
    said = console.run("validate", "--cluster", path, "--output", "json")
    points = [(line["subject"], line["point"]) for line in said.lines if line["event"] == "check"]
    assert points[0] == ("config", "files")
    of_one = [point for subject, point in points if subject == "cass1"]
    assert of_one == ["service", "resolve", "connect", "host_key", "log_in", "right_tune"]
    assert f"warning: {path}:1: hosts.overrides.cass9: no host of the file is called so" in said.err
    for flag in (("--reboot",), ("--playbook", "careful")):
        said = console.run("validate", "--cluster", path, *flag)
        message = f"{flag[0]}: not for {path}: nothing restarts hosts without a cluster"
        assert (said.code, said.message) == (ExitCode.USAGE, message)


def commands(group: typer.core.TyperGroup, *before: str) -> Iterator[tuple[str, bool]]:
    """Each command, and whether it takes a cluster."""
    for name, one in sorted(group.commands.items()):
        if isinstance(one, typer.core.TyperGroup):
            yield from commands(one, *before, name)
        else:
            yield " ".join((*before, name)), any("--cluster" in each.opts for each in one.params)


def test_every_other_command_refuses_the_file(console: Console, subtests: pytest.Subtests) -> None:
    path = file(console)
    takes = {name for name, cluster in commands(typer.main.get_command(app)) if cluster}
    assert takes >= TAKEN | NEEDED.keys()
    for name in sorted(takes - TAKEN - {"init"}):
        with subtests.test(command=name):
            said = console.run(*name.split(), "--cluster", path, *NEEDED.get(name, ()))
            assert (said.code, said.out, said.message) == (ExitCode.USAGE, "", REFUSAL)
            assert not console.state.exists()


@pytest.mark.slow
def test_the_python_api_tunes_hosts_and_restarts_none(console: Console, trees: Trees) -> None:
    tree = trees("cassandra", one="debian")["one"]
    path = console.folder / file(console, tune="hadoop", hosts={"names": {"one": {}}, "data": [DATA]})
    before = tree.files()
    with connect(path, state=console.url) as connection:
        for refused in (plan, restart, rehearse):
            with pytest.raises(UsageError, match="hosts without a cluster"):
                refused(connection)
        assert {event.tunable for event in tune_hosts(connection)} >= {"vm.swappiness", "io_scheduler"}
        with pytest.raises(UsageError, match="hosts without a cluster"):
            next(restore(connection))
        with pytest.raises(UsageError, match="no unfinished run of cluster cass"):
            next(resume(connection))
    assert tune(console, "revert").code == ExitCode.DONE
    assert tree.files() == before
