"""The common part of all ways to persist a value: files of this program, and a name for them that counts.

systemd's folders (`sysctl.d`, `tmpfiles.d`, drop-ins) and udev's are read in the order of the file names,
over all folders together. Of two files with one name, only the one in the folder with more weight counts (man
pages sysctl.d(5), tmpfiles.d(5), systemd.unit(5), udev(7)). So another file may override a file of this
program: each way tries its usual name first, then a name that sorts where it takes precedence, and uses the
first name that is effective. Other files are never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from orchestrator.hosts.blocks import block_in, with_block
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import BlockChange, Change, FileChange, Reload

_WEIGHT: Final = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
"""Folders by their weight, the heaviest first."""


def header(name: str) -> str:
    """The first line of every file of this program."""
    return f"# Written by orchestrate for {name}; `orchestrate tune revert` takes it away again.\n"


def in_order(facts: HostFacts, folder: str, suffix: str) -> Iterator[tuple[str, str | Unknown]]:
    """Files of a folder such as `sysctl.d` with their texts, in the order in which they are read.

    A pattern whose files were not read comes last: any of them may be the one that counts.
    """
    by_name: dict[str, str] = {}
    for root in _WEIGHT:
        for path in facts.matching(f"{root}/{folder}/", suffix):
            by_name.setdefault(path.rpartition("/")[2], path)
    for name in sorted(by_name, key=lambda one: ("*" in one, one)):
        text = facts.text(by_name[name])
        if text is not None:
            yield by_name[name], text


def own_file(facts: HostFacts, path: str, text: str, reload: Reload = Reload.NOBODY) -> FileChange | None:
    """The change that writes a file of this program; None if the file there cannot be restored later."""
    found = facts.exact(path)
    if isinstance(found, Unknown):
        return None
    return FileChange(path=path, found=found, wanted=text, reload=reload)


def own_block(facts: HostFacts, path: str, name: str, lines: str) -> BlockChange | None:
    """The change that writes this program's lines into a file; None if the file is missing or not text."""
    text = facts.text(path)
    if not isinstance(text, str) or "\0" in text:
        return None
    return BlockChange(path=path, name=name, found=block_in(text, name), wanted=lines)


def after(facts: HostFacts, change: Change) -> HostFacts:
    """The facts after a file or a block is written; other changes are not visible in them."""
    match change:
        case FileChange(path=path, wanted=wanted):
            return replace(facts, files={**facts.files, path: wanted})
        case BlockChange(path=path, name=name, wanted=wanted):
            text = facts.text(path)
            before = text if isinstance(text, str) else ""
            return replace(facts, files={**facts.files, path: with_block(before, name, wanted)})
        case _:
            return facts


def first_that_holds(
    facts: HostFacts,
    candidates: Iterable[FileChange | BlockChange | None],
    holds: Callable[[HostFacts], bool],
) -> tuple[Change, ...]:
    """The first change that makes the next boot right; none if it is already right, or if no change does."""
    if holds(facts):
        return ()
    for change in candidates:
        if change is not None and change.found != change.wanted and holds(after(facts, change)):
            return (change,)
    return ()
