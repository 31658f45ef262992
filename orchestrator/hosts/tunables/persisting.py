"""What all ways of making a value last share: files of our own, and the search for one that is not outvoted.

systemd's folders (`sysctl.d`, `tmpfiles.d`, drop-ins) and udev's are read in the order of the files' names,
over all folders together; of two files with one name the one in the folder with more weight counts alone (man
pages sysctl.d(5), tmpfiles.d(5), systemd.unit(5), udev(7)). So a file of ours may be outvoted by somebody's
file with another name: each way offers its usual name first and one that sorts at the end that counts second,
and the first that would hold is taken. Nobody else's file is ever changed.
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
    """The first line of every file of ours."""
    return f"# Written by orchestrate for {name}; `orchestrate tune revert` takes it away again.\n"


def in_order(facts: HostFacts, folder: str, suffix: str) -> Iterator[tuple[str, str | Unknown]]:
    """Files of a folder such as `sysctl.d` with their texts, in the order in which they are read.

    A pattern that stands for files that were not read comes last: any of them may be the one that counts.
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
    """The change that writes a file of ours; None where what stands there cannot be put back."""
    found = facts.exact(path)
    if isinstance(found, Unknown):
        return None
    return FileChange(path=path, found=found, wanted=text, reload=reload)


def own_block(facts: HostFacts, path: str, name: str, lines: str) -> BlockChange | None:
    """The change that writes our lines into a file; None where there is none, or what is there is no text."""
    text = facts.text(path)
    if not isinstance(text, str) or "\0" in text:
        return None
    return BlockChange(path=path, name=name, found=block_in(text, name), wanted=lines)


def after(facts: HostFacts, change: Change) -> HostFacts:
    """The facts as they will be when a file or a block is written; other changes do not show in them."""
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
    """The first change after which the next boot is right; nothing where it is already, or none would do."""
    if holds(facts):
        return ()
    for change in candidates:
        if change is not None and change.found != change.wanted and holds(after(facts, change)):
            return (change,)
    return ()
