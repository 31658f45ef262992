"""Whatever a command would obey is refused if another account can change it; nothing is asked or changed."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.config import lookup
from orchestrator.errors import ExitCode
from orchestrator.runtime.state_file import last_runs
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


PLAN, RESTART = (
    ("plan", "--cluster", "cluster/lab.yml"),
    ("restart", "--cluster", "cluster/lab.yml", "--yes"),
)
APPLY = ("apply", "plan/plan.json", "--yes")
RESUME = ("resume", "--yes")
WAYS: list[tuple[Callable[[Place], Path], tuple[str, ...]]] = [
    (lambda p: p.state, RESUME),
    (lambda p: p.state, ("restore", "--yes")),
    (lambda p: p.state, ("status",)),
    (lambda p: p.beside("-journal"), RESUME),
    (lambda p: p.beside("-wal"), ("history",)),
    (lambda p: p.state.parent, RESUME),
    (lambda p: p.state.parent.parent, RESUME),
    (lambda p: p.file, PLAN),
    (lambda p: p.file.parent, RESTART),
    (lambda p: p.book, RESTART),
    (lambda p: p.book.parent, PLAN),
    (lambda p: p.profile, ("tune", "check", "--cluster", "cluster/lab.yml", "--profile", "profile/ours.yml")),
    (lambda p: p.plan, APPLY),
    (lambda p: p.plan.parent, APPLY),
    (lambda p: p.file, APPLY),
]


@pytest.mark.parametrize("give", [_to_all, _to_an_account])
def test_what_others_can_change_is_not_obeyed(place: Place, give: Give, subtests: pytest.Subtests) -> None:
    for what, words in WAYS:
        given = what(place)
        before = given.stat()
        with subtests.test(given=given, words=words):
            give(given)
            said = place.do(*words)
            assert said.code == ExitCode.USAGE
            why = "can be written by every account" if give is _to_all else "belongs to "
            assert f"{given} {why}" in said.err
            assert f"`chmod o-w {given}`" in said.err or f" {given}`" in said.err
            assert place.cluster.templates == {}
        os.chown(given, before.st_uid, before.st_gid)
        given.chmod(before.st_mode)
        if given.suffix.startswith(".db-"):
            given.unlink()


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
    with closing(sqlite3.connect(place.state)) as state, state:
        assert state.execute("select count(*) from runs").fetchone() == (1,)
