"""Files of this program for a node's next start: its drop-in, its limits, its JVM options. Pure.

Other files are never changed, but for the program's own lines in Riak's.
"""

from __future__ import annotations

from orchestrator.model.host import HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import FileChange, Reload


def header(name: str) -> str:
    """The first line of every file of this program."""
    return f"# Written by orchestrate for {name}; `orchestrate tune revert` takes it away again.\n"


def own_file(facts: HostFacts, path: str, text: str, reload: Reload = Reload.NONE) -> FileChange | None:
    """The change that writes a file of this program; None if the file there cannot be restored later."""
    found = facts.exact(path)
    if isinstance(found, Unknown):
        return None
    return FileChange(path=path, found=found, wanted=text, reload=reload)
