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

from orchestrator.hosts.tunables.choices import parse
from orchestrator.hosts.tunables.standing import Part, judged
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.tuning import Change, TunableState, TuningProfile, TuningSetting, ValueChange

TOP: Final = "/sys/kernel/mm/transparent_hugepage"
RHEL6: Final = "/sys/kernel/mm/redhat_transparent_hugepage"
_ENABLED: Final = "enabled"
_KHUGEPAGED: Final = "khugepaged/defrag"
_SWITCH: Final = {"0": "no", "1": "yes"}
"""Values of khugepaged's switch in new kernels, and in RHEL 6."""
_FOLDER: Final = 4
"""Position of the folder's name in a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """One file of the kernel and the value to write to it.

    Attributes:
        target: the wanted value; None if the file does not offer it.
    """

    path: str
    of: str
    found: str
    target: str | None
    right: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HugePages:
    """One of the three tunables.

    Attributes:
        file: below the folder.
        words: the words that a profile may use.
    """

    name: str
    file: str
    words: tuple[str, ...]

    @property
    def reads(self) -> Reads:
        """The files of the kernel."""
        sizes = (f"{TOP}/hugepages-*/enabled",) if self.file == _ENABLED else ()
        return Reads(files=(f"{TOP}/{self.file}", f"{RHEL6}/{self.file}", *sizes))

    def valid(self, setting: TuningSetting) -> str | None:
        """Refuse words that no kernel accepts."""
        if isinstance(setting.wanted, str) and setting.wanted in self.words:
            return None
        return f"must be one of {', '.join(self.words)}"

    def supported(self, facts: HostFacts) -> str | None:
        """A kernel built without them has no such files."""
        return None if self._tops(facts) else "this kernel has no such file"

    def check(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> TunableState:
        """The state of the general files, and of the sizes that set their own value."""
        parts = []
        for file in self._files(facts, setting):
            if file.of.startswith("hugepages-") and file.right:
                continue
            parts.append(
                Part(
                    of=file.of,
                    wanted=file.target or str(setting.wanted),
                    found=file.found,
                    running=file.right,
                    detail=file.detail,
                )
            )
        return judged(self, facts, setting, profile, parts)

    def apply(
        self,
        facts: HostFacts,
        setting: TuningSetting,
        profile: TuningProfile,  # noqa: ARG002  (every tunable has this shape)
    ) -> tuple[Change, ...]:
        """Write to every file that is wrong and offers the wanted value."""
        return tuple(
            ValueChange(path=file.path, found=file.found, wanted=file.target)
            for file in self._files(facts, setting)
            if file.right is False and file.target is not None
        )

    def line(self, setting: TuningSetting) -> str:
        """The same choice of words as here."""
        return shlex.join(["huge_pages", self.file, str(setting.wanted)])

    def _tops(self, facts: HostFacts) -> tuple[str, ...]:
        paths = (f"{folder}/{self.file}" for folder in (TOP, RHEL6))
        return tuple(path for path in paths if facts.text(path) is not None)

    def _files(self, facts: HostFacts, setting: TuningSetting) -> Iterator[_File]:
        tops = self._tops(facts)
        for path in tops:
            yield self._file(facts, path, path.split("/")[_FOLDER] if len(tops) > 1 else "", setting)
        if self.file == _ENABLED:
            for path in facts.matching(f"{TOP}/hugepages-", "/enabled"):
                yield self._file(facts, path, path.split("/")[_FOLDER + 1], setting)

    def _file(self, facts: HostFacts, path: str, of: str, setting: TuningSetting) -> _File:
        text = facts.text(path)
        wanted = str(setting.wanted)
        if not isinstance(text, str):
            why = f"{path} could not be read" + (f": {text.reason}" if text else "")
            return _File(path=path, of=of, found="", target=None, right=None, detail=why)
        choices = parse(text)
        offered: tuple[str, ...]
        if self.file == _KHUGEPAGED:
            switch = "1" if wanted in {"1", "yes"} else "0"
            offered = ("no", "yes") if choices.bracketed else ("0", "1")
            wanted = _SWITCH[switch] if choices.bracketed else switch
        else:
            offered = choices.offered
        found = choices.current or ""
        # `inherit` follows the general file; `never` is most sizes' default, and stricter than any wanted
        # value.
        fine = {wanted, "inherit", "never"} if of.startswith("hugepages-") else {wanted}
        if found in fine:
            return _File(path=path, of=of, found=found, target=wanted, right=True)
        if wanted not in offered or not found:
            why = f"{wanted} is not offered: {text.strip() or 'the file is empty'}"
            return _File(path=path, of=of, found=found, target=None, right=None, detail=why)
        return _File(path=path, of=of, found=found, target=wanted, right=False)


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
