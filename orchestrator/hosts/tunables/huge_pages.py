"""Transparent huge pages: whether they are used, and which process defragments memory for them.

RHEL 6 keeps them in `redhat_transparent_hugepage`, with different words (`[yes] no` for khugepaged); some of
its kernels have both folders. New kernels have one more file per size, which follows the general file
(`inherit`) or sets its own value. Changes count for memory that is mapped later: so they are made while the
node is down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.tunables import rc_local, tmpfiles, tuned_profiles
from orchestrator.hosts.tunables.choices import parse
from orchestrator.hosts.tunables.standing import AtBoot, Part, judged, why_not_lasting
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import HostFacts, InitSystem
from orchestrator.model.tuning import Change, TunableState, TuningProfile, TuningSetting, ValueChange

TOP: Final = "/sys/kernel/mm/transparent_hugepage"
RHEL6: Final = "/sys/kernel/mm/redhat_transparent_hugepage"
_ENABLED: Final = "enabled"
_KHUGEPAGED: Final = "khugepaged/defrag"
_SWITCH: Final = {"0": "no", "1": "yes"}
"""Values of khugepaged's switch in new kernels, and in RHEL 6."""
_FOLDER: Final = 4
"""Position of the folder's name in a path."""
_COMMAND_LINE: Final = "transparent_hugepage="
_COMMAND_LINE_SIZES: Final = "thp_anon="


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
        """The files of the kernel, and the files that set them at boot."""
        sizes = (f"{TOP}/hugepages-*/enabled",) if self.file == _ENABLED else ()
        own = (f"{TOP}/{self.file}", f"{RHEL6}/{self.file}", *sizes)
        return Reads(files=(*own, *tmpfiles.FILES, *rc_local.PATHS, *tuned_profiles.FILES))

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
            boot = self._boot(facts, file.path)
            lasts = self._lasts(file, boot)
            if file.of.startswith("hugepages-") and file.right and lasts:
                continue
            parts.append(
                Part(
                    of=file.of,
                    wanted=file.target or str(setting.wanted),
                    found=file.found,
                    at_boot=boot,
                    running=file.right,
                    lasts=lasts,
                    detail=file.detail or why_not_lasting(facts, profile, boot, lasting=lasts),
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

    def persist(self, facts: HostFacts, setting: TuningSetting, profile: TuningProfile) -> tuple[Change, ...]:
        """Lines of tmpfiles.d, or of rc.local on RHEL 6; no change if the next boot is already right."""
        files = list(self._files(facts, setting))
        if not profile.persist or any(file.target is None for file in files):
            return ()

        def holds(later: HostFacts) -> bool:
            by_files = all(self._lasts(file, self._layer(later, file.path)) for file in files)
            return by_files or all(self._lasts(file, self._boot(later, file.path)) for file in files)

        general = (file for file in files if not file.of.startswith("hugepages-"))
        lines = [(file.path, file.target) for file in general if file.target]
        if self._sizes_on_command_line(facts) and setting.wanted == "never":
            lines.append((f"{TOP}/hugepages-*/enabled", "never"))
        match facts.init:
            case InitSystem.SYSTEMD:
                return tmpfiles.persisted(facts, self.name, lines, holds)
            case InitSystem.SYSV:
                return rc_local.persisted(facts, self.name, lines, holds)
            case InitSystem.OTHER:
                return ()

    def targets(self, facts: HostFacts, setting: TuningSetting) -> tuple[tuple[str, str], ...]:
        """Every file with its target value, as far as the file offers it."""
        return tuple((file.path, file.target) for file in self._files(facts, setting) if file.target)

    def of_tuned(self, facts: HostFacts, profile: tuned_profiles.Profile, path: str) -> str | None:
        """The value that a tuned profile gives a file; None if it sets none."""
        by_path = profile.sysfs(path)
        if by_path is not None or path != f"{TOP}/{self.file}":
            return by_path
        if self.file == _ENABLED:
            # tuned's vm plugin leaves huge pages alone when the kernel command line names them.
            named = any(word.startswith(_COMMAND_LINE) for word in facts.command_line)
            return None if named else profile.huge_pages()
        return profile.huge_pages_defrag() if self.file == "defrag" else None

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

    def _lasts(self, file: _File, boot: AtBoot) -> bool | None:
        if boot.unsure:
            return None
        if file.of.startswith("hugepages-"):
            return boot.value in {None, file.target, "inherit", "never"}
        return boot.value == file.target if boot.value is not None else False

    def _boot(self, facts: HostFacts, path: str) -> AtBoot:
        """The value of a file after the next boot: tuned comes last."""
        by_tuned = tuned_profiles.at_boot(facts, lambda profile: self.of_tuned(facts, profile, path))
        return by_tuned or self._layer(facts, path)

    def _layer(self, facts: HostFacts, path: str) -> AtBoot:
        """The same without tuned."""
        by_files = rc_local.at_boot if facts.init is InitSystem.SYSV else tmpfiles.at_boot
        found = by_files(facts, path)
        if found.value is not None or found.unsure:
            return found
        if path.startswith(f"{TOP}/hugepages-"):
            if self._sizes_on_command_line(facts):
                return AtBoot(unsure=f"the kernel command line sets sizes apart ({_COMMAND_LINE_SIZES}…)")
            return AtBoot()
        if self.file == _ENABLED:
            given = [word for word in facts.command_line if word.startswith(_COMMAND_LINE)]
            if given:
                return AtBoot(value=given[-1].removeprefix(_COMMAND_LINE), by="the kernel command line")
        return AtBoot()

    def _sizes_on_command_line(self, facts: HostFacts) -> bool:
        return any(word.startswith(_COMMAND_LINE_SIZES) for word in facts.command_line)


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
