"""Who can change a file that runs something here: by owner, group and mode of all on the way to it."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from orchestrator.owners import (
    OwnershipVerdict,
    PathEntry,
    Problem,
    _distrust,
    _is_private,
    entries_of,
    judge,
    verdict_on,
    who_reads,
)

ROOT, ANN, EVE = 0, 1000, 65534
STAFF, OPERATORS = 50, 900
FILE, FOLDER, LINK = stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK


def folder(path: str, mode: int, uid: int = ROOT, gid: int = ROOT, *, listed: bool = False) -> PathEntry:
    return PathEntry(path=Path(path), uid=uid, gid=gid, mode=FOLDER | mode, listed=listed)


def file(path: str, mode: int, uid: int = ANN, gid: int = ANN, *, listed: bool = False) -> PathEntry:
    return PathEntry(path=Path(path), uid=uid, gid=gid, mode=FILE | mode, listed=listed)


def judged(*entries: PathEntry, alone_in: str | None = None) -> OwnershipVerdict:
    """The verdict for Ann, who has a group of her own, as root has."""
    return judge(
        (folder("/", 0o755), *entries),
        trusted=frozenset({ROOT, ANN}),
        private=lambda gid: gid in (ROOT, ANN),
        alone_in=None if alone_in is None else Path(alone_in),
    )


HOME = folder("/h", 0o700, ANN, ANN)
SHARED = folder("/s", 0o2770, ROOT, OPERATORS)
TMP = folder("/tmp", 0o1777)
CASES: dict[str, tuple[tuple[PathEntry, ...], list[tuple[str, Problem]]]] = {
    "our file": ((HOME, file("/h/f", 0o600)), []),
    "root's file": ((folder("/etc", 0o755), file("/etc/f", 0o644, ROOT, ROOT)), []),
    "our group is ours alone": ((folder("/h", 0o775, ANN, ANN), file("/h/f", 0o664)), []),
    "another account's file": ((HOME, file("/h/f", 0o600, EVE)), [("/h/f", Problem.OWNER)]),
    "its file in /tmp": ((TMP, file("/tmp/f", 0o600, EVE)), [("/tmp/f", Problem.OWNER)]),
    "our file in /tmp": ((TMP, file("/tmp/f", 0o600)), []),
    "a file for all": ((HOME, file("/h/f", 0o602)), [("/h/f", Problem.OTHERS)]),
    "a file for a group": ((HOME, file("/h/f", 0o660, gid=STAFF)), [("/h/f", Problem.GROUP)]),
    "a list names others": ((HOME, file("/h/f", 0o660, listed=True)), [("/h/f", Problem.GROUP)]),
    "its folder": ((folder("/h", 0o755, EVE), file("/h/f", 0o600)), [("/h", Problem.OWNER)]),
    "a folder for all": ((folder("/h", 0o777, ANN), file("/h/f", 0o600)), [("/h", Problem.OTHERS)]),
    "a folder for a group": ((folder("/h", 0o770, ANN, STAFF), file("/h/f", 0o600)), [("/h", Problem.GROUP)]),
    "a folder far above": (
        (folder("/a", 0o777), folder("/a/b", 0o700, ANN), file("/a/b/f", 0o600)),
        [("/a", Problem.OTHERS)],
    ),
    "its link in /tmp to our file": (
        (TMP, PathEntry(path=Path("/tmp/l"), uid=EVE, gid=EVE, mode=LINK | 0o777), HOME, file("/h/f", 0o600)),
        [("/tmp/l", Problem.OWNER)],
    ),
    "our link to its file": (
        (PathEntry(path=Path("/l"), uid=ANN, gid=ANN, mode=LINK | 0o777), HOME, file("/h/f", 0o600, EVE)),
        [("/h/f", Problem.OWNER)],
    ),
    "a colleague's file where a group shares": ((SHARED, file("/s/f", 0o660, EVE, OPERATORS)), []),
    "a colleague's folder there": (
        (SHARED, folder("/s/c", 0o2750, EVE, OPERATORS), file("/s/c/f", 0o640, EVE, OPERATORS)),
        [],
    ),
    "a file of another group there": ((SHARED, file("/s/f", 0o600, EVE, EVE)), [("/s/f", Problem.OWNER)]),
    "for another group there": ((SHARED, file("/s/f", 0o660, ANN, STAFF)), [("/s/f", Problem.GROUP)]),
    "for all there": ((SHARED, file("/s/f", 0o666, ANN, OPERATORS)), [("/s/f", Problem.OTHERS)]),
    "shared with all": (
        (folder("/s", 0o2777, ROOT, OPERATORS), file("/s/f", 0o660, ANN, OPERATORS)),
        [("/s", Problem.OTHERS)],
    ),
    "sticky and setgid for all": (
        (folder("/s", 0o3777, ROOT, OPERATORS), file("/s/f", 0o644, EVE, OPERATORS)),
        [("/s/f", Problem.OWNER)],
    ),
    "shared by another account": (
        (folder("/s", 0o2770, EVE, OPERATORS), file("/s/f", 0o660, ANN, OPERATORS)),
        [("/s", Problem.OWNER)],
    ),
}


@pytest.mark.parametrize(("entries", "problems"), CASES.values(), ids=CASES)
def test_who_can_change_a_file(entries: tuple[PathEntry, ...], problems: list[tuple[str, Problem]]) -> None:
    found = judged(*entries)
    assert [(str(entry.path), problem) for entry, problem in found.problems] == problems


def test_a_folder_of_a_group_is_shared() -> None:
    assert judged(SHARED, file("/s/f", 0o600)).shared
    assert judged(SHARED, folder("/s/own", 0o700, ANN, ANN), file("/s/own/f", 0o600)).shared
    assert not judged(HOME, file("/h/f", 0o600)).shared


@pytest.mark.parametrize("crowd", [TMP, folder("/tmp", 0o1770, ROOT, STAFF)])
def test_a_sticky_folder_is_no_place_for_a_state(crowd: PathEntry) -> None:
    """Everybody could put a rollback journal there, which SQLite would write into the database."""
    ours = file("/tmp/f", 0o600)
    assert judged(crowd, ours, alone_in="/tmp").problems == ((crowd, Problem.CROWDED),)
    assert (
        judged(crowd, folder("/tmp/x", 0o700, ANN), file("/tmp/x/f", 0o600), alone_in="/tmp/x").problems == ()
    )


def test_every_link_on_the_way_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").touch()
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to(tmp_path / "real")
    found, end = entries_of(tmp_path / "real" / ".." / "one" / "f")
    names = [entry.path.relative_to(tmp_path) for entry in found if entry.path.is_relative_to(tmp_path)]
    assert [*map(str, dict.fromkeys(names))] == [".", "real", "one", "two", "real/f"]
    assert end == tmp_path / "real" / "f"
    assert found[0].path == Path("/")


def test_a_file_that_is_not_there_is_judged_by_its_folders(tmp_path: Path) -> None:
    found, end = entries_of(tmp_path / "no" / "such" / "file")
    assert (found[-1].path, end) == (tmp_path, tmp_path / "no" / "such" / "file")
    (tmp_path / "loop").symlink_to("loop")
    assert entries_of(tmp_path / "loop")[0]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A file of our own."""
    path = tmp_path / "it's here" / "file"
    path.parent.mkdir()
    path.touch(mode=0o600)
    return path


def test_our_own_file_is_trusted(place: Path) -> None:
    assert _distrust(verdict_on(place, alone=True)) is None


def test_a_refusal_has_the_command_that_repairs_it(place: Path) -> None:
    place.parent.chmod(0o777)
    place.chmod(0o606)
    said = _distrust(verdict_on(place))
    assert said is not None
    assert f"{place.parent} can be written by every account; {place} can be written by every account" in said
    command = said.partition("`")[2].rpartition("`")[0]
    assert os.system(command) == 0  # noqa: S605  (chmod)
    assert _distrust(verdict_on(place)) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away; the rule itself is tested above")
def test_the_file_of_another_account_is_refused_with_its_repair(place: Path) -> None:
    os.chown(place, EVE, EVE)
    said = _distrust(verdict_on(place))
    assert said is not None
    assert f"(uid {EVE})" in said
    assert os.system(said.partition("`")[2].rpartition("`")[0]) == 0  # noqa: S605  (chown)
    assert _distrust(verdict_on(place)) is None
    os.chown(place.parent, EVE, EVE)
    assert "then use a copy in a folder of your own, or `chown " in str(_distrust(verdict_on(place)))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another group")
def test_a_folder_for_a_group_can_be_closed_or_shared(place: Path) -> None:
    os.chown(place.parent, 0, EVE)
    place.parent.chmod(0o770)
    said = str(_distrust(verdict_on(place)))
    close, share = said.split("`")[1::2]
    assert close.startswith("chmod g-w ")
    assert os.system(share) == 0  # noqa: S605  (chmod)
    assert verdict_on(place) == OwnershipVerdict(problems=(), shared=True)


def test_a_group_of_other_accounts_too_is_not_private() -> None:
    """By their entry in the list of accounts: the group does not list those whose first group it is."""
    assert not _is_private(0, 0), "accounts without a name have it"
    for account in pwd.getpwall():
        shared = [one for one in pwd.getpwall() if one.pw_gid == account.pw_gid]
        assert len(shared) == 1 or not _is_private(account.pw_gid, account.pw_uid)


@pytest.mark.parametrize(
    ("mode", "folder_mode", "group", "said"),
    [
        (0o600, 0o755, STAFF, None),
        (0o640, 0o755, STAFF, "group staff (gid 50) can read {path}: `chmod go-rwx {path}`"),
        (0o640, 0o2750, STAFF, None),
        (0o640, 0o2750, OPERATORS, "gid 900 can read {path}: `chmod go-rwx {path}`"),
        (0o644, 0o2750, STAFF, "every account can read {path}: `chmod o-rwx {path}`"),
        (0o644, 0o700, STAFF, "every account can read {path}: `chmod go-rwx {path}`"),
        (0o622, 0o755, STAFF, None),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to another group")
def test_who_reads_a_secret(
    tmp_path: Path, mode: int, folder_mode: int, group: int, said: str | None
) -> None:
    (shared := tmp_path / "s").mkdir()
    os.chown(shared, 0, STAFF)
    shared.chmod(folder_mode)
    (path := shared / "pw").write_text("x")
    os.chown(path, 0, group)
    path.chmod(mode)
    (link := tmp_path / "link").symlink_to(path)
    for way in (path, link):
        assert who_reads(way) == (None if said is None else said.format(path=way))
    assert who_reads(tmp_path / "absent") is None
