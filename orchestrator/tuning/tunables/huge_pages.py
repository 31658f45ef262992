"""Transparent huge pages: whether they are used, and which process defragments memory for them.

RHEL 6 keeps them in `redhat_transparent_hugepage`, with different words (`[yes] no` for khugepaged); some of
its kernels have both folders. New kernels have one more file per size, which follows the general file
(`inherit`) or sets its own value. Changes count for memory that is mapped later: so they are made while the
node is down.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.model.host import HostFacts
from orchestrator.model.tuning import TuningProfile, TuningSetting, ValueChange
from orchestrator.tuning.tunables.choices import parse
from orchestrator.tuning.tunables.tunable import Absent, FactReads, Part, Tunable

TOP: Final = "/sys/kernel/mm/transparent_hugepage"
RHEL6: Final = "/sys/kernel/mm/redhat_transparent_hugepage"
_ENABLED: Final = "enabled"
_KHUGEPAGED: Final = "khugepaged/defrag"
_FOLDER: Final = 4
"""Position of the folder's name in a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HugePages(Tunable):
    """One of the three tunables."""

    name: str
    file: str  # below the folder
    words: tuple[str, ...]  # the words that a profile may use

    @property
    def reads(self) -> FactReads:
        """The files of the kernel."""
        sizes = (f"{TOP}/hugepages-*/enabled",) if self.file == _ENABLED else ()
        return FactReads(files=(f"{TOP}/{self.file}", f"{RHEL6}/{self.file}", *sizes))

    def valid(self, setting: TuningSetting) -> str | None:
        """Refuse words that no kernel accepts."""
        if isinstance(setting.wanted, str) and setting.wanted in self.words:
            return None
        return f"must be one of {', '.join(self.words)}"

    def line(self, setting: TuningSetting) -> str:
        """The same choice of words as here."""
        return shlex.join(["huge_pages", self.file, str(setting.wanted)])

    def parts(self, facts: HostFacts, setting: TuningSetting, _: TuningProfile) -> Iterator[Part | Absent]:
        """The general files, and the sizes that set a wrong value of their own."""
        paths = (f"{folder}/{self.file}" for folder in (TOP, RHEL6))
        tops = [path for path in paths if facts.text(path) is not None]
        if not tops:
            yield Absent(why="this kernel has no such file")
            return
        wanted = str(setting.wanted)
        for path in tops:
            yield self._part(facts, path, path.split("/")[_FOLDER] if len(tops) > 1 else "", {wanted}, wanted)
        if self.file == _ENABLED:
            # `never` is most sizes' default, and stricter than any wanted value.
            fine = {wanted, "inherit", "never"}
            for path in facts.matching(f"{TOP}/hugepages-", "/enabled"):
                part = self._part(facts, path, path.split("/")[_FOLDER + 1], fine, wanted)
                if not part.running:
                    yield part

    def _part(self, facts: HostFacts, path: str, of: str, fine: set[str], wanted: str) -> Part:
        """The state of one file; `fine` are the words that are as good as the wanted one."""
        text = facts.text(path)
        if not isinstance(text, str):
            why = f"{path} could not be read" + (f": {text.reason}" if text else "")
            return Part(of=of, wanted=wanted, found="", running=None, detail=why)
        choices = parse(text)
        offered = choices.offered
        if self.file == _KHUGEPAGED:
            offered = ("no", "yes") if choices.bracketed else ("0", "1")
            wanted = offered[wanted in {"1", "yes"}]
            fine = {wanted}
        found = choices.current or ""
        if found in fine:
            return Part(of=of, wanted=wanted, found=found, running=True)
        if wanted not in offered or not found:
            why = f"{wanted} is not offered: {text.strip() or 'the file is empty'}"
            return Part(of=of, wanted=wanted, found=found, running=None, detail=why)
        change = ValueChange(path=path, found=found, wanted=wanted)
        return Part(of=of, wanted=wanted, found=found, running=False, changes=(change,))


ENABLED: Final = HugePages(
    name="transparent_hugepage.enabled", file=_ENABLED, words=("always", "madvise", "never")
)
DEFRAG: Final = HugePages(
    name="transparent_hugepage.defrag",
    file="defrag",
    words=("always", "defer", "defer+madvise", "madvise", "never"),
)
KHUGEPAGED_DEFRAG: Final = HugePages(
    name="transparent_hugepage.khugepaged_defrag", file=_KHUGEPAGED, words=("0", "1", "no", "yes")
)
