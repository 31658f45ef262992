"""Files of this program, and its lines in the files of others, for a node's next start. Pure.

Of limits and Erlang's settings, the last file or line counts: the usual name first, then a name that sorts
where it takes precedence, and the first that is effective is used. Other files are never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from orchestrator.hosts.blocks import block_in, with_block
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import BlockChange, Change, FileChange, Reload


def header(name: str) -> str:
    """The first line of every file of this program."""
    return f"# Written by orchestrate for {name}; `orchestrate tune revert` takes it away again.\n"


def in_order(facts: HostFacts, folder: str, suffix: str) -> Iterator[tuple[str, str | Unknown]]:
    """Files of a folder with their texts, in the order in which they are read.

    A pattern whose files were not read comes last: any of them may be the one that counts.
    """
    for path in sorted(facts.matching(f"{folder}/", suffix), key=lambda one: ("*" in one, one)):
        text = facts.text(path)
        if text is not None:
            yield path, text


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
    """The first change that makes the next start right; none if it is right, or if no change does."""
    if holds(facts):
        return ()
    for change in candidates:
        if change is not None and change.found != change.wanted and holds(after(facts, change)):
            return (change,)
    return ()
