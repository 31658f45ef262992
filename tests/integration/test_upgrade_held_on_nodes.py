"""What holds an upgrade before its first stop, on three real nodes of 7.17: one defect each, nothing changed.

An index that is too old is in `test_upgrade_on_nodes.py`, since it takes two versions to make one. A full
disk and a cluster that lists deprecations are not made here: unit tests have their answers.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.generations import Story, assert_settings, prepare, settings_of
from tests.integration.packages import Packages
from tests.integration.restarting import held_by, orchestrate
from tests.lab.distributions import find_distribution
from tests.lab.java import find_java
from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="upgrades")]

OLD, NEW = "7.17.28", "8.19.0"
REMOVED = "gateway.expected_nodes"
"""A setting that 7.17 takes and 8 refuses."""


@pytest.fixture(scope="module")
def packages() -> Iterator[Packages]:
    with LabCluster.start(version=OLD, heap_mb=256) as lab:
        prepare(lab)
        yield Packages(lab, NEW)


def _ask(lab: LabCluster, method: str, path: str, body: Any = None) -> Any:
    client = lab.client
    try:
        return client.ask(method, path, body)
    finally:
        client.close()


def _settings(lab: LabCluster) -> Any:
    client = lab.client
    try:
        return settings_of(client)
    finally:
        client.close()


def _held(
    packages: Packages,
    folder: Path,
    *words: str,
    to: str = NEW,
    unlisted: bool = True,
    **changes: object,
) -> Mapping[str, str]:
    """The predicates that hold an upgrade, with what is said. Nothing was changed or installed."""
    lab = packages.lab
    pids, before = lab.pids(), _settings(lab)
    if unlisted:
        words = (*words, "--disable-predicate", "no_critical_deprecations")
    book = packages.playbook(upgrade=packages.upgrade(**changes))
    code, lines = orchestrate(packages, folder, "upgrade", "--to", to, *words, playbook=book)
    assert code == 3, lines[-1]
    assert lab.pids() == pids
    assert_settings(lab, before, Story(OLD))
    assert packages.installs().begun == {}
    found = {name for name, _ in held_by(lines)}
    text = str(lines)
    return dict.fromkeys(found, text)


def test_a_major_version_that_is_left_out(packages: Packages, tmp_path: Path) -> None:
    held = _held(packages, tmp_path, to="9.1.0", verify=[])
    assert set(held) == {"upgrade_path_is_supported"}
    assert "upgrade to the last 8.x first" in held["upgrade_path_is_supported"]


def test_a_target_that_is_older(packages: Packages, tmp_path: Path) -> None:
    held = _held(packages, tmp_path, to="7.17.0", verify=[])
    assert set(held) == {"no_node_is_newer"}
    assert "newer than 7.17.0" in held["no_node_is_newer"]


def test_deprecations_that_cannot_be_read(packages: Packages, tmp_path: Path) -> None:
    """The servers of these tests lack that part of X-Pack: unknown is never healthy."""
    held = _held(packages, tmp_path, unlisted=False)
    assert set(held) == {"no_critical_deprecations"}
    assert "GET /_migration/deprecations" in held["no_critical_deprecations"]


def test_a_package_that_is_on_no_host(packages: Packages, tmp_path: Path) -> None:
    held = _held(packages, tmp_path, to="8.18.0")
    assert set(held) == {"hosts_can_install"}
    assert "package-8.18.0" in held["hosts_can_install"]


def test_no_snapshot_then_an_old_one(packages: Packages, tmp_path: Path) -> None:
    lab = packages.lab
    held = _held(packages, tmp_path, snapshot_younger_than="1h")
    assert "there is no finished snapshot" in held["snapshot_is_recent"]
    _ask(lab, "PUT", "/_snapshot/nightly", {"type": "fs", "settings": {"location": "nightly"}})
    _ask(lab, "PUT", "/_snapshot/nightly/one?wait_for_completion=true", {"indices": "people"})
    held = _held(packages, tmp_path, snapshot_younger_than="1s")
    assert "the youngest, nightly/one, is" in held["snapshot_is_recent"]
    held = _held(packages, tmp_path, to="8.18.0", snapshot_younger_than="1h")
    assert set(held) == {"hosts_can_install"}, "this one is young enough"


def test_a_keystore_with_a_password(packages: Packages, tmp_path: Path) -> None:
    """By the server's own tool, in the home of a server that was unpacked."""
    lab = packages.lab
    name, pid = next(iter(lab.pids().items()))
    words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
    (home,) = (word.partition("=")[2] for word in words if word.startswith("-Des.path.home="))
    config = lab.directory / name / "config"
    # As in every package but the reduced one of these tests.
    for tool in Path(home, "bin").iterdir():
        tool.chmod(0o755)
    bundled = Path(home, "jdk")
    bundled.symlink_to(find_java(find_distribution(OLD)).path)
    keystore = config / "elasticsearch.keystore"
    found, owner = keystore.read_bytes(), keystore.stat()
    try:
        subprocess.run(  # noqa: S603  (the server's own)
            [f"{home}/bin/elasticsearch-keystore", "passwd"],
            env={**os.environ, "ES_PATH_CONF": str(config)},
            input="secret-1\nsecret-1\n",
            text=True,
            capture_output=True,
            check=True,
        )
        assert set(_held(packages, tmp_path)) == {"keystores_need_no_password"}
    finally:
        keystore.write_bytes(found)
        os.chown(keystore, owner.st_uid, owner.st_gid)
        bundled.unlink()


def test_a_setting_that_the_target_refuses(packages: Packages, tmp_path: Path) -> None:
    lab, name = packages.lab, packages.lab.nodes[0].name
    with (lab.directory / name / "config" / "elasticsearch.yml").open("a", encoding="utf-8") as file:
        file.write(f"\n{REMOVED}: 3\n")
    lab.stop_nodes([name])
    lab.start_nodes([name])
    lab.wait_ready(status="green")
    held = _held(packages, tmp_path)
    assert set(held) == {"settings_known_to_target"}
    assert REMOVED in held["settings_known_to_target"]
    assert f"take it out of the files of {name}" in held["settings_known_to_target"]
