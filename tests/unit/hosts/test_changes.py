"""What has changed on a host, as its answers show it, and as a real shell gives them."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.hosts.changes import changes_script, read_changes
from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.port import Hosts
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import Connect
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.policy import HostChanges
from orchestrator.model.reading import Reading, Unknown
from orchestrator.runs.reach import host_changes
from tests.fakes.framing import MARK, part

ES1 = NodeName("es1")
FILES = ("/etc/elasticsearch/elasticsearch.yml", "/etc/elasticsearch/jvm.options.d")


def _section(name: str, *lines: str) -> str:
    return part(name, "\n".join(lines))


def _reboot(said: str, *kernels: str) -> Reading[HostChanges]:
    output = _section("reboot", said) + _section("kernels", *kernels)
    return read_changes(output, ES1, (), reboot=True)


def _here(node: str, *files: str) -> Reading[HostChanges]:
    done = LocalConnection().run(changes_script(NodeName(node), files, reboot=False), timeout=20.0)
    assert isinstance(done, CommandResult), done
    return read_changes(done.stdout, NodeName(node), files, reboot=False)


@pytest.mark.parametrize("node", ["../../root", "..", "es*", "es1\n"])
def test_a_name_that_leads_to_another_file_is_read_nowhere(node: str) -> None:
    name = NodeName(node)
    with closing(Hosts({name: HostSettings(node=name, address="", connect=Connect.LOCAL)})) as hosts:
        found = host_changes(hosts, [name], ("/etc/es/{node}/jvm.options",), reboot=False)[name]
        sound = host_changes(hosts, [name], ("/etc/hostname",), reboot=False)[name]
    assert isinstance(found, Unknown)
    assert "cannot be a part of a path: write `config_files` of the playbook without `{node}`" in found.reason
    assert isinstance(sound, HostChanges)


def test_a_reboot_is_asked_for_or_a_newer_kernel_is_installed() -> None:
    for said in ("/run/reboot-required exists", "`needs-restarting -r` asks for a reboot"):
        assert _reboot(said, "6.1.0-18-amd64") == HostChanges(reboot=said)
    older, newer = "5.14.0-362.8.1.el9_3.x86_64", "5.14.0-427.13.1.el9_4.x86_64"
    for running, installed, newest in (
        ("6.1.0-18-amd64", ("6.1.0-9-amd64", "6.1.0-18-amd64"), None),
        ("6.1.0-9-amd64", ("6.1.0-9-amd64", "6.1.0-18-amd64"), "6.1.0-18-amd64"),
        (older, (newer,), newer),
        (newer, ("0-rescue-0123456789abcdef", older), None),
        ("6.18.5", (), None),
    ):
        reboot = f"kernel {newest} is installed, {running} runs" if newest else ""
        assert _reboot("", running, *installed) == HostChanges(reboot=reboot)


def test_files_of_a_folder_count_and_missing_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "es1").mkdir()
    written = [tmp_path / "a b.yml", tmp_path / "es1" / "heap.options"]
    for path in written:
        path.write_text("x")
        os.utime(path, (1, 1))  # as a package or `rsync -a` leaves it
    found = _here("es1", str(tmp_path / "a b.yml"), str(tmp_path / "{node}"), str(tmp_path / "none"))
    assert isinstance(found, HostChanges)
    assert set(found.files) == {*map(str, written), str(tmp_path / "es1")}
    for path in written:
        assert found.files[str(path)] == int(path.stat().st_ctime) > 1


def test_without_any_of_the_files_it_is_not_known(tmp_path: Path) -> None:
    found = _here("es1", str(tmp_path / "{node}.yml"))
    assert isinstance(found, Unknown)
    assert f"none of its files exists ({tmp_path}/es1.yml, …)" in found.reason


def test_what_may_not_be_looked_at_is_not_known(subtests: pytest.Subtests) -> None:
    for said in (
        "stat: cannot statx '/etc/elasticsearch/elasticsearch.yml': Permission denied",
        "stat: can't stat '/etc/elasticsearch/elasticsearch.yml': Permission denied",
        "/etc/elasticsearch/jvm.options.d: Permission denied",
    ):
        with subtests.test(said=said):
            output = _section("files", "1700000000 /etc/default/elasticsearch", said)
            found = read_changes(output, ES1, FILES, reboot=False)
            assert isinstance(found, Unknown)
            assert found.reason.startswith(said)
            assert "setfacl" in found.reason


def test_an_answer_that_was_cut_off_is_not_known() -> None:
    for output in ("", _section("reboot"), f"{MARK} begin kernels\n6.1"):
        assert isinstance(read_changes(output, ES1, (), reboot=True), Unknown)
    assert isinstance(read_changes(f"{MARK} begin files\n1 /etc/x", ES1, FILES, reboot=False), Unknown)
