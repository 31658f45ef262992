from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config.lookup import (
    KindOfFile,
    Places,
    find,
    folder_of_new,
    place_of_new,
    shipped,
    standard_places,
)
from orchestrator.errors import ConfigError


def _places(root: Path) -> Places:
    return Places(
        folders=tuple(root / name for name in ("cwd", "configured", "home", "etc")),
        shipped_playbooks=root / "shipped",
        shipped_tuning=root / "shipped" / "tuning",
        shipped_clusters=root / "examples",
    )


def _refusal(wanted: KindOfFile, name: str, root: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        find(wanted, name, _places(root))
    return str(caught.value)


def _put(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kind: elasticsearch\n")


def test_places_are_those_of_the_contract_in_its_order() -> None:
    places = standard_places({"ORCHESTRATE_CONFIG": "/srv/orch"}, home=Path("/home/op"))
    assert places.of(KindOfFile.CLUSTER) == tuple(
        Path(folder)
        for folder in (
            "configs/clusters",
            "/srv/orch/clusters",
            "/home/op/.config/orchestrate/clusters",
            "/etc/orchestrate/clusters",
        )
    )
    assert places.of(KindOfFile.PLAYBOOK)[-1] == shipped("playbooks")


@pytest.mark.parametrize("environment", [{}, {"ORCHESTRATE_CONFIG": ""}])
def test_an_unset_folder_is_not_looked_at(environment: dict[str, str]) -> None:
    assert len(standard_places(environment, home=Path("/home/op")).of(KindOfFile.CLUSTER)) == 3


def test_the_first_place_that_has_the_name_wins(tmp_path: Path) -> None:
    wanted = [tmp_path / folder / "clusters" / "prod.yml" for folder in ("cwd", "configured", "home", "etc")]
    for path in reversed(wanted):
        _put(path)
        assert find(KindOfFile.CLUSTER, "prod", _places(tmp_path)) == path


def test_shipped_playbooks_come_last_and_shipped_clusters_never(tmp_path: Path) -> None:
    _put(tmp_path / "shipped" / "book.yml", tmp_path / "examples" / "example.yml")
    assert find(KindOfFile.PLAYBOOK, "book", _places(tmp_path)) == tmp_path / "shipped" / "book.yml"
    _put(tmp_path / "etc" / "playbooks" / "book.yml")
    assert find(KindOfFile.PLAYBOOK, "book", _places(tmp_path)) == tmp_path / "etc" / "playbooks" / "book.yml"
    assert _refusal(KindOfFile.CLUSTER, "example", tmp_path)


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    _put(tmp_path / "any.where")
    assert find(KindOfFile.CLUSTER, f"{tmp_path}/any.where", _places(tmp_path)) == tmp_path / "any.where"
    missing = "no-such-file.yml: there is no such cluster file"
    assert _refusal(KindOfFile.CLUSTER, "no-such-file.yml", tmp_path) == missing
    # A path of another kind is named as such.
    (tmp_path / "folder.yml").mkdir()
    os.mkfifo(tmp_path / "pipe.yml")
    long = f"{'x' * 300}.yml"
    for name, said in {
        "folder.yml": "is a directory",
        "pipe.yml": "is no regular file",
        long: "is not accessible: File name too long",
    }.items():
        path = f"{tmp_path}/{name}"
        assert _refusal(KindOfFile.PLAYBOOK, path, tmp_path) == f"{path}: {said}"


@pytest.fixture
def no_root() -> Iterator[None]:
    """Root may read everything."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    yield
    os.seteuid(was)


@pytest.mark.usefixtures("no_root")
def test_a_place_that_is_not_accessible_is_passed_over_and_named() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own is for its user alone
        root = Path(folder)
        _put(root / "cwd" / "clusters" / "prod.yml", root / "etc" / "clusters" / "prod.yml")
        (root / "cwd").chmod(0)
        try:
            assert find(KindOfFile.CLUSTER, "prod", _places(root)) == root / "etc" / "clusters" / "prod.yml"
            said = _refusal(KindOfFile.CLUSTER, "other", root)
        finally:
            (root / "cwd").chmod(0o700)
    assert f"{root}/cwd/clusters/other.yml (is not accessible: Permission denied), " in said
    assert f"), {root}/configured/clusters/other.yml, " in said


def test_an_unknown_name_lists_the_places_and_the_near_names(tmp_path: Path) -> None:
    _put(tmp_path / "home" / "clusters" / "prod.yml", tmp_path / "etc" / "clusters" / "staging.yml")
    places = (f"{tmp_path}/{folder}/clusters/prdo.yml" for folder in ("cwd", "configured", "home", "etc"))
    said = f"there is no cluster 'prdo' (looked for {', '.join(places)}); did you mean prod?"
    assert _refusal(KindOfFile.CLUSTER, "prdo", tmp_path) == said
    assert _refusal(KindOfFile.CLUSTER, "xyz", tmp_path).endswith("; known: prod, staging")


def test_whoever_has_no_cluster_file_yet_is_shown_an_example(tmp_path: Path) -> None:
    assert _refusal(KindOfFile.CLUSTER, "prod", tmp_path).endswith(
        "; write one with `orchestrate init --endpoint URL`, or copy an example: "
        f"{tmp_path}/examples/example.yml; beside it are riak-example.yml and hosts-example.yml"
    )


@pytest.mark.parametrize("name", ["", "a b", "..\n", "prod*"])
def test_what_is_neither_a_name_nor_a_path_is_refused(name: str, tmp_path: Path) -> None:
    assert "neither the name of a cluster nor the path" in _refusal(KindOfFile.CLUSTER, name, tmp_path)


def test_a_new_file_goes_into_the_first_folder_or_the_named_one(tmp_path: Path) -> None:
    places = _places(tmp_path)
    assert folder_of_new(places) == tmp_path / "configured" / "clusters"
    (tmp_path / "etc" / "clusters").mkdir(parents=True)
    assert place_of_new("prod", places) == tmp_path / "etc" / "clusters" / "prod.yml"
    (tmp_path / "cwd" / "clusters").mkdir(parents=True)
    assert place_of_new("prod", places) == tmp_path / "cwd" / "clusters" / "prod.yml"
    at_home = standard_places({}, home=tmp_path / "nowhere")
    assert place_of_new("no-such-cluster", at_home).name == "no-such-cluster.yml"


@pytest.mark.parametrize("folder", ["cwd", "etc"])
def test_a_name_that_one_of_the_folders_has_is_not_given_again(tmp_path: Path, folder: str) -> None:
    """Else one of the two files would hide the other."""
    _put(path := tmp_path / folder / "clusters" / "prod.yml")
    with pytest.raises(ConfigError, match="exists; nothing is overwritten: choose another name") as caught:
        place_of_new("prod", _places(tmp_path))
    assert caught.value.file == str(path)


def test_a_name_that_is_not_looked_up_is_none_for_a_new_file(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for name in ["", "a/b", "prod.yml", "a b", ".."]:
        with subtests.test(name=name), pytest.raises(ConfigError, match="cannot be the name of a cluster"):
            place_of_new(name, _places(tmp_path))
