"""Who can change a file whose content runs here: a state, a saved plan, a cluster file, a playbook.

It may belong to the running account, to root or, in a folder that a group shares (group-writable and setgid,
`chmod 2770`), to that group. The same holds for every folder and link on the way to it, since a folder that
others can write lets them replace what is in it. A folder with the sticky bit, as `/tmp`, does not.

`judge` is pure. Access control lists need no rule of their own: where one lets anybody write, the mode shows
the group's write bit (acl(5), "mask").
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from orchestrator.untrusted import visible

_ROOT: Final = Path("/")
_MOST_LINKS: Final = 40
"""As Linux follows at most."""
_ACCESS_LIST: Final = "system.posix_acl_access"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathEntry:
    """A folder, link or file on the way to a path, or the file itself."""

    path: Path
    uid: int
    gid: int
    mode: int  # as `lstat` has it
    listed: bool = False  # whether an access control list names further accounts

    @property
    def folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)


class Problem(Enum):
    """Why an account that is not trusted can change it."""

    OWNER = "owner"
    GROUP = "group"
    OTHERS = "others"
    CROWDED = "crowded"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipVerdict:
    """What is wrong on the way to a path."""

    # by entry, from the root folder on; none where the path can be trusted
    problems: tuple[tuple[PathEntry, Problem], ...]
    shared: bool  # whether a group shares one of its folders


def judge(
    entries: Iterable[PathEntry],
    *,
    trusted: frozenset[int],
    private: Callable[[int], bool],
    alone_in: Path | None = None,
) -> OwnershipVerdict:
    """Judge a path by its entries.

    Args:
        entries: in the order in which the path is followed.
        trusted: accounts that may own them.
        private: whether a group has no member but a trusted account.
        alone_in: a folder in which others may not even create files.
    """
    problems: list[tuple[PathEntry, Problem]] = []
    sharing: dict[Path, int] = {}
    for entry in entries:
        group = sharing.get(entry.path.parent)
        if entry.uid not in trusted and entry.gid != group:
            problems.append((entry, Problem.OWNER))
        if stat.S_ISLNK(entry.mode):
            continue
        sticky = entry.folder and bool(entry.mode & stat.S_ISVTX)
        others = bool(entry.mode & stat.S_IWOTH)
        by_group = bool(entry.mode & stat.S_IWGRP)
        # In a sticky one for all, everybody's files get the group of the folder.
        shares = by_group and entry.folder and entry.mode & stat.S_ISGID and not (others and sticky)
        if entry.gid == group or shares:
            sharing[entry.path] = entry.gid
        elif by_group and (entry.listed or not private(entry.gid)):
            if not sticky:
                problems.append((entry, Problem.GROUP))
            elif entry.path == alone_in:
                problems.append((entry, Problem.CROWDED))
        if others and not sticky:
            problems.append((entry, Problem.OTHERS))
        elif others and entry.path == alone_in:
            problems.append((entry, Problem.CROWDED))
    return OwnershipVerdict(problems=tuple(problems), shared=bool(sharing))


def entries_of(path: Path) -> tuple[list[PathEntry], Path]:
    """The entries of a path, and the path without links. What is missing or closed to us ends the entries."""
    left, at, links = [*reversed(path.absolute().parts[1:])], _ROOT, 0
    entries = [_entry(_ROOT)]
    while left:
        name = left.pop()
        if name == "..":
            at = at.parent
            continue
        try:
            entry = _entry(at / name)
            target = entry.path.readlink() if stat.S_ISLNK(entry.mode) else None
        except OSError:
            return entries, at.joinpath(name, *reversed(left))
        entries.append(entry)
        if target is None:
            at = entry.path
            continue
        links += 1
        if links > _MOST_LINKS:  # opening it fails as well
            break
        at = _ROOT if target.is_absolute() else at
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return entries, at


def verdict_on(path: Path, *, alone: bool = False) -> OwnershipVerdict:
    """Judge a path for this process.

    Args:
        path: the file; it need not exist.
        alone: others may not even create files beside it, as SQLite reads those too.
    """
    entries, end = entries_of(path)
    # The owner of the root folder can replace the program itself. It is root, unless in a user namespace.
    trusted = frozenset({0, os.geteuid(), entries[0].uid})
    return judge(
        entries,
        trusted=trusted,
        private=lambda gid: any(_is_private(gid, uid) for uid in trusted),
        alone_in=end.parent if alone else None,
    )


def why_not(path: Path, *, beside: Sequence[str] | None = None) -> str | None:
    """Why a file is not read, and the command that repairs it; None if it can be trusted.

    Args:
        path: the file; it need not exist.
        beside: endings of further files that are read with it; then others may not even create files there.
    """
    files = (path, *(path.with_name(path.name + ending) for ending in beside or ()))
    found = (_distrust(verdict_on(file, alone=beside is not None)) for file in files)
    return next((visible(why) for why in found if why is not None), None)


def who_reads(path: Path) -> str | None:
    """Who else can read a file with a secret, and the command that repairs it; None for its owner alone.

    By the mode alone, as ssh judges a key. A group may read it if no other account is in it, or if it shares
    the folder: one of that group with setgid, as by `chmod 2750`.

    Args:
        path: the file; a link is followed. What is missing or closed to us is None as well.
    """
    try:
        found, folder = path.stat(), path.resolve().parent.stat()
    except OSError:
        return None
    shared = folder.st_gid == found.st_gid and bool(folder.st_mode & stat.S_ISGID)
    by_group = found.st_mode & stat.S_IRGRP and not shared and not _is_private(found.st_gid, found.st_uid)
    everyone = found.st_mode & stat.S_IROTH
    if not by_group and not everyone:
        return None
    who = "every account" if everyone else _group(found.st_gid)
    sudo = "sudo " if os.geteuid() not in (0, found.st_uid) else ""
    change = "go-rwx" if by_group else "o-rwx"
    return visible(f"{who} can read {path}: `{sudo}chmod {change} {shlex.quote(str(path))}`")


def _distrust(verdict: OwnershipVerdict) -> str | None:
    if not verdict.problems:
        return None
    why = "; ".join(dict.fromkeys(_why(entry, problem) for entry, problem in verdict.problems))
    repairs = [_repair(entry, problem) for entry, problem in verdict.problems]
    if None in repairs:
        return f"{why}: use a file in a folder of your own"
    elsewhere = any(entry.folder and problem is Problem.OWNER for entry, problem in verdict.problems)
    message = (
        f"{why}: another account could decide what runs here as {_account(os.geteuid())}. Check the content, "
        f"then {'use a copy in a folder of your own, or ' if elsewhere else ''}"
        f"`{' && '.join(dict.fromkeys(filter(None, repairs)))}`"
    )
    unshared = [e for e, problem in verdict.problems if problem is Problem.GROUP and e.folder]
    if unshared and len(unshared) == len(verdict.problems):
        line = " ".join(["chmod g+s", *(shlex.quote(str(entry.path)) for entry in unshared)])
        message += f"; for a folder that all of this group share, `{line}`"
    return message


def _entry(path: Path) -> PathEntry:
    found = path.lstat()
    listed = False
    if found.st_mode & stat.S_IWGRP and not stat.S_ISLNK(found.st_mode):
        with suppress(OSError):  # there is none, or the file system has none
            listed = bool(os.getxattr(path, _ACCESS_LIST))
    return PathEntry(path=path, uid=found.st_uid, gid=found.st_gid, mode=found.st_mode, listed=listed)


def _is_private(gid: int, uid: int) -> bool:
    """Whether this is the group that many systems give to an account alone; then its umask is often 002."""
    try:
        account, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    own = account.pw_gid == gid and group.gr_name == account.pw_name and {*group.gr_mem} <= {account.pw_name}
    # Group 0 is that of accounts without a name, as in containers.
    return own and gid != 0 and all(one.pw_gid != gid or one.pw_uid == uid for one in pwd.getpwall())


def _why(entry: PathEntry, problem: Problem) -> str:
    match problem:
        case Problem.OWNER:
            return f"{entry.path} belongs to {_account(entry.uid)}"
        case Problem.GROUP:
            return f"{entry.path} can be written by {_group(entry.gid)}"
        case Problem.OTHERS:
            return f"{entry.path} can be written by every account"
        case Problem.CROWDED:
            return f"other accounts can create files in {entry.path}, which would be read with it"


def _repair(entry: PathEntry, problem: Problem) -> str | None:
    """The command, as it is typed; None if there is none."""
    uid, path = os.geteuid(), shlex.quote(str(entry.path))
    sudo = "sudo " if uid and (problem is Problem.OWNER or entry.uid != uid) else ""
    match problem:
        case Problem.OWNER:
            only = "-h " if stat.S_ISLNK(entry.mode) else ""
            return f"{sudo}chown {only}{_name_of(uid) or uid} {path}"
        case Problem.GROUP:
            return f"{sudo}chmod g-w {path}"
        case Problem.OTHERS:
            return f"{sudo}chmod o-w {path}"
        case Problem.CROWDED:
            return None


def _account(uid: int) -> str:
    name = _name_of(uid)
    return f"account {name} (uid {uid})" if name else f"uid {uid}"


def _group(gid: int) -> str:
    try:
        return f"group {grp.getgrgid(gid).gr_name} (gid {gid})"
    except KeyError:
        return f"gid {gid}"


def _name_of(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
