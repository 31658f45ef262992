"""Huge pages for a JVM's heap, reserved by the kernel. Opt-in, since other programs cannot use that memory.

The pages are reserved before the JVM's option is written. A kernel with fragmented memory gives fewer pages
than requested: the value is read back, and then the option is not written. `limits.memlock` must let the JVM
lock the pages.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.model.host import HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import Change, TuningProfile, TuningSetting, ValueChange
from orchestrator.tuning.tunables.kernel_parameters import path_of
from orchestrator.tuning.tunables.numbers import is_number
from orchestrator.tuning.tunables.own_files import header, own_file
from orchestrator.tuning.tunables.tunable import Absent, FactReads, Part, Tunable

KEY: Final = "vm.nr_hugepages"
_FOLDERS: Final = ("/etc/elasticsearch/jvm.options.d/", "/etc/opensearch/jvm.options.d/")
_FILE: Final = "orchestrate-huge-pages.options"
_OPTION: Final = "-XX:+UseLargePages"
_MEMORY: Final = "/proc/meminfo"
_MOST: Final = 0.75
"""Maximum share of the memory to reserve: the rest of the system needs some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmHugePages(Tunable):
    """At least this many huge pages, and the JVM option to use them."""

    name: str = "jvm.huge_pages"

    @property
    def reads(self) -> FactReads:
        """The kernel's pages, and the folder for the JVM's options."""
        options = (f"{folder}*.options" for folder in _FOLDERS)
        path = path_of(KEY)
        return FactReads(files=(path, _MEMORY, *_FOLDERS, *options))

    def valid(self, setting: TuningSetting) -> str | None:
        """A number of pages."""
        wanted = setting.wanted
        good = isinstance(wanted, str) and is_number(wanted) and int(wanted) > 0
        return (
            None
            if good
            else "must be a number of huge pages (2 MiB each on x86), the heap's size and a little"
        )

    def line(self, setting: TuningSetting) -> str:
        """The pages; the option is in a file."""
        return shlex.join(["at_least", KEY, str(setting.wanted)])

    def parts(self, facts: HostFacts, setting: TuningSetting, _: TuningProfile) -> Iterator[Part | Absent]:
        """The pages first: without them the option does no more than print a warning."""
        path, wanted, folder, unread = path_of(KEY), str(setting.wanted), _folder(facts), _unread(facts)
        if folder is None and not unread:  # Elasticsearch has it from 7.7 on
            yield Absent(why=f"there is no {' or '.join(_FOLDERS)}: the JVM's options cannot be added to")
            return
        if facts.text(path) is None:
            yield Absent(why=f"this kernel has no {KEY}")
            return
        found, trouble, options = _pages(facts), _trouble(facts, setting), _options_file(facts)
        possible = folder is not None and found is not None and not trouble
        enough = found is not None and int(found) >= int(wanted)
        pages, option = list[Change](), list[Change]()
        if possible and not enough:
            pages.append(ValueChange(path=path, found=found or "", wanted=wanted))
        if possible and options is None:
            file = own_file(facts, f"{folder}{_FILE}", f"{header(self.name)}{_OPTION}\n")
            option += [] if file is None else [file]
        yield Part(
            of="kernel",
            wanted=f"at least {wanted} pages",
            found=f"{found} pages" if found else "",
            running=None if found is None or trouble else enough,
            detail=trouble,
            changes=tuple(pages),
        )
        yield Part(
            of="JVM",
            wanted=_OPTION,
            found=f"{_OPTION}, from the next start on" if options else "not set",
            at_boot=f"{_OPTION} by {options}" if options else "not set",
            running=options is not None or (None if unread else False),
            changes=tuple(option),
        )


def _folder(facts: HostFacts) -> str | None:
    return next((folder for folder in _FOLDERS if isinstance(facts.text(folder), str)), None)


def _unread(facts: HostFacts) -> bool:
    """Whether it is unknown if there is such a folder."""
    return any(isinstance(facts.text(folder), Unknown) for folder in _FOLDERS)


def _pages(facts: HostFacts) -> str | None:
    text = facts.text(path_of(KEY))
    return text.strip() if isinstance(text, str) and is_number(text.strip()) else None


def _options_file(facts: HostFacts) -> str | None:
    """The file that tells the JVM to use them."""
    for folder in _FOLDERS:
        for path in facts.matching(folder, ".options"):
            text = facts.text(path)
            if isinstance(text, str) and any(line.strip() == _OPTION for line in text.splitlines()):
                return path
    return None


def _trouble(facts: HostFacts, setting: TuningSetting) -> str:
    """Why this many pages cannot be reserved."""
    if _folder(facts) is None:
        return "the folder for options of the JVM could not be read"
    text = facts.text(_MEMORY)
    size = re.search(r"^Hugepagesize:\s+(\d+) kB", text, re.MULTILINE) if isinstance(text, str) else None
    if size is None or not facts.memory:
        return "the size of a huge page, or of the memory, could not be read"
    needed = int(str(setting.wanted)) * int(size[1]) * 1024
    if needed > facts.memory * _MOST:
        return f"{setting.wanted} pages of {size[1]} kB are more than {_MOST:.0%} of this host's memory"
    return ""


JVM_HUGE_PAGES: Final = JvmHugePages()
