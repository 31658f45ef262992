"""Whatever a command would obey is refused if another account can change it; nothing is asked or changed."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.config import lookup
from orchestrator.errors import ExitCode
from orchestrator.runtime.glance import last_runs
from tests.cli.console import Console, Said
from tests.cli.runs import RUN, ended_run
from tests.cli.small_cluster import SmallCluster

Give = Callable[[Path], None]
OTHER = 65534


def _to_all(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def _to_an_account(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root gives files away; tests/unit/test_owners.py has the rule")
    os.chown(path, OTHER, OTHER)


class Place:
    """All files that a command obeys, each in a folder of its own."""

    def __init__(self, console: Console, cluster: SmallCluster) -> None:
        self.console, self.cluster = console, cluster
        self.folder = console.folder
        self.book = self._file("book", "ours.yml")
        self.profile = self._file("profile", "ours.yml")
        self.profile.write_text(json.dumps({"applies_to": "elasticsearch", "tunables": {}}))
        self.book.write_text(json.dumps({"kind": "elasticsearch"}))
        (self.folder / "cluster").mkdir()
        self.file = Path(cluster.write_file(self.folder / "cluster", playbook=str(self.book)))
        self.plan = self._file("plan", "plan.json")
        ended_run(console)
        self.state = console.state
        assert self.do("plan", "--cluster", str(self.file), "--out", str(self.plan)).code == ExitCode.DONE

    def _file(self, folder: str, name: str) -> Path:
        (self.folder / folder).mkdir()
        return self.folder / folder / name

    def do(self, *words: str) -> Said:
        return self.console.run(*words)

    def beside(self, suffix: str) -> Path:
        """A file that SQLite would read with the state."""
        path = self.state.with_name(self.state.name + suffix)
        path.touch(mode=0o600)
        return path


@pytest.fixture
def place(console: Console, cluster: SmallCluster) -> Place:
    return Place(console, cluster)


WAYS: dict[str, tuple[Callable[[Place], Path], tuple[str, ...]]] = {
    "state": (lambda p: p.state, ("resume", "--yes")),
    "state, restored": (lambda p: p.state, ("restore", "--yes")),
    "state, shown": (lambda p: p.state, ("status",)),
    "rollback journal": (lambda p: p.beside("-journal"), ("resume", "--yes")),
    "write-ahead log": (lambda p: p.beside("-wal"), ("history",)),
    "folder of the state": (lambda p: p.state.parent, ("resume", "--yes")),
    "folder above it": (lambda p: p.state.parent.parent, ("resume", "--yes")),
    "cluster file": (lambda p: p.file, ("plan", "--cluster", "cluster/lab.yml")),
    "its folder": (lambda p: p.file.parent, ("restart", "--cluster", "cluster/lab.yml", "--yes")),
    "playbook": (lambda p: p.book, ("restart", "--cluster", "cluster/lab.yml", "--yes")),
    "its folder too": (lambda p: p.book.parent, ("plan", "--cluster", "cluster/lab.yml")),
    "profile": (
        lambda p: p.profile,
        ("tune", "check", "--cluster", "cluster/lab.yml", "--profile", "profile/ours.yml"),
    ),
    "plan": (lambda p: p.plan, ("apply", "plan/plan.json", "--yes")),
    "folder of the plan": (lambda p: p.plan.parent, ("apply", "plan/plan.json", "--yes")),
    "cluster file of a plan": (lambda p: p.file, ("apply", "plan/plan.json", "--yes")),
}


@pytest.mark.parametrize("give", [_to_all, _to_an_account])
@pytest.mark.parametrize("way", WAYS)
def test_what_others_can_change_is_not_obeyed(place: Place, give: Give, way: str) -> None:
    what, words = WAYS[way]
    given = what(place)
    give(given)
    said = place.do(*words)
    assert said.code == ExitCode.USAGE
    assert f"{given} {'can be written by every account' if give is _to_all else 'belongs to '}" in said.err
    assert f"`chmod o-w {given}`" in said.err or f" {given}`" in said.err
    assert place.cluster.templates == {}


def test_a_tab_does_not_read_it(place: Place) -> None:
    assert last_runs(place.state, limit=1)[0].run == RUN
    _to_all(place.state)
    assert last_runs(place.state, limit=1) == []


def test_no_state_is_made_where_others_can_write(console: Console, file: str) -> None:
    """Also not in a folder like /tmp, where they could put a rollback journal beside it."""
    crowd = console.folder / "tmp"
    crowd.mkdir()
    crowd.chmod(0o1777)
    said = console.run("restart", "--cluster", file, "--yes", "--state", f"sqlite:///{crowd}/x.db")
    assert said.code == ExitCode.USAGE
    assert f"other accounts can create files in {crowd}" in said.err
    assert [*crowd.iterdir()] == []


def test_files_of_the_package_are_as_trusted_as_the_package(
    console: Console, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An image may be built by another account than the one that runs in it."""
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    book = shipped / "elasticsearch-rolling-restart.yml"
    book.write_text(json.dumps({"kind": "elasticsearch"}))
    _to_all(book)
    file = cluster.write_file(console.folder, playbook=str(book))
    assert console.run("plan", "--cluster", file).code == ExitCode.USAGE
    monkeypatch.setattr(lookup, "shipped", lambda _folder: shipped)
    assert console.run("plan", "--cluster", file).code == ExitCode.DONE


def test_a_state_that_was_read_is_unchanged(place: Place) -> None:
    """A planted write-ahead log is not written into the database."""
    log = place.beside("-wal")
    log.write_bytes(b"planted")
    _to_all(log)
    before = place.state.read_bytes()
    assert place.do("history").code == ExitCode.USAGE
    assert (place.state.read_bytes(), log.read_bytes()) == (before, b"planted")
    log.unlink()
    with sqlite3.connect(place.state) as state:
        assert state.execute("select count(*) from runs").fetchone() == (1,)
