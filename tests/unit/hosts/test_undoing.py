"""Only what still shows our value is undone; our lines in files of others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.hosts.blocks import block_in, with_block
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.hosts.undoing import Back, Foreign, Ours, Standing, reads_for, standing
from orchestrator.model.host_facts import FileText, HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    ServiceChange,
    ServiceMode,
    TunedChange,
    ValueChange,
)

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
MEM = "/proc/sys/net/ipv4/tcp_rmem"
DENIED = Unknown(reason="may not be read")
RULE, SHARED = "/etc/udev/rules.d/60-orchestrate.rules", "/etc/sysctl.conf"
ON = ServiceMode(running=True, enabled=True)
OFF = ServiceMode(running=False, enabled=False, masked=True)

VALUE = ValueChange(path=THP, found="never", wanted="always")
NUMBERS = ValueChange(path=MEM, found="4096 1 2", wanted="4096 3 4")
MADE = FileChange(path=RULE, found="ours\n", wanted=None)
BLOCK = BlockChange(path=SHARED, name="vm.swappiness", found="vm.swappiness = 1", wanted=None)
NUMAD = ServiceChange(service="numad", found=OFF, wanted=ON)
TUNED = TunedChange(found="orchestrate", wanted="throughput-performance")


def facts_of(texts: dict[str, FileText]) -> HostFacts:
    return HostFacts(init=InitSystem.SYSTEMD, cpus=2, memory=2**34, files=texts)


def files(**texts: str) -> HostFacts:
    names = {"thp": THP, "mem": MEM, "rule": RULE, "shared": SHARED}
    return facts_of({names[name]: text for name, text in texts.items()})


def numad(
    *, present: bool = True, running: bool = False, enabled: bool = False, masked: bool = False
) -> HostFacts:
    told = ServiceFacts(present=present, running=running, enabled=enabled, masked=masked)
    return replace(facts_of({}), services={"numad": told})


def tuned(profile: str | None) -> HostFacts:
    return replace(facts_of({}), tuned=profile)


BACK, GONE = Back(why="it has its original value"), Back(why="no longer exists")
CASES: list[tuple[HostFacts, Change, Standing]] = [
    (files(thp="always madvise [never]\n"), VALUE, Ours(change=VALUE)),
    (files(thp="[always] madvise never\n"), VALUE, BACK),
    (files(thp="always [madvise] never\n"), VALUE, Foreign(shows="madvise")),
    (files(), VALUE, GONE),
    (files(mem="4096\t1\t2\n"), NUMBERS, Ours(change=NUMBERS)),
    (files(mem="4096\t3\t4\n"), NUMBERS, BACK),
    (files(mem="1\n"), NUMBERS, Foreign(shows="1")),
    (files(rule="ours\n"), MADE, Ours(change=MADE)),
    (files(), MADE, BACK),
    (files(rule="ours\nand mine\n"), MADE, Foreign(shows="another text")),
    (files(rule="ou"), MADE, Ours(change=replace(MADE, found="ou"))),  # killed while it was written
    (files(rule=""), MADE, Ours(change=replace(MADE, found=""))),
    (files(rule="our own"), MADE, Foreign(shows="our own")),
    (files(shared=with_block("a\n", "vm.swappiness", "vm.swappiness = 1")), BLOCK, Ours(change=BLOCK)),
    (files(shared="vm.swappiness = 1\n"), BLOCK, BACK),
    (files(), BLOCK, BACK),
    (
        files(shared=with_block("a\n", "vm.swappiness", "vm.swappiness = 9")),
        BLOCK,
        Foreign(shows="vm.swappiness = 9"),
    ),
    (
        files(shared=with_block("# \ufffdt\ufffd\n", "vm.swappiness", "vm.swappiness = 1")),
        BLOCK,
        Ours(change=BLOCK),
    ),
    (numad(masked=True), NUMAD, Ours(change=NUMAD)),
    (numad(running=True, enabled=True), NUMAD, BACK),
    (numad(running=True, masked=True), NUMAD, Foreign(shows="running, masked")),
    (numad(enabled=True), NUMAD, Ours(change=NUMAD)),  # killed between stop and disable
    (numad(), NUMAD, Ours(change=NUMAD)),  # killed before mask
    (numad(running=True), NUMAD, Foreign(shows="running, disabled")),
    (numad(present=False), NUMAD, GONE),
    (tuned("orchestrate"), TUNED, Ours(change=TUNED)),
    (tuned("throughput-performance"), TUNED, BACK),
    (tuned(None), TUNED, Foreign(shows="nothing")),
]


def test_ours_is_undone_and_what_is_not_is_left(subtests: pytest.Subtests) -> None:
    for number, (facts, undoing, stands) in enumerate(CASES):
        with subtests.test(number=number, undoing=undoing):
            assert standing(facts, (undoing,)) == stands
    earlier = ValueChange(path=THP, found="madvise", wanted="always")
    facts = files(thp="always [madvise] never")
    assert standing(facts, (VALUE, earlier)) == Ours(change=earlier), "any value of ours counts"
    assert standing(facts_of({}), ()) == BACK


def test_what_cannot_be_read_is_neither_ours_nor_back() -> None:
    no_text = with_block("a\n", "vm.swappiness", "vm.swappiness = \ufffd")
    for facts, undoing in (
        *(
            (facts_of({path: DENIED}), change)
            for path, change in ((THP, VALUE), (RULE, MADE), (SHARED, BLOCK))
        ),
        (facts_of({RULE: "caf\ufffd"}), MADE),
        (facts_of({}), NUMAD),
        (facts_of({}), TUNED),
        (files(shared=no_text), BLOCK),
    ):
        assert isinstance(standing(facts, (undoing,)), Unknown), undoing


def test_what_is_read_for_it() -> None:
    changes = (VALUE, MADE, BLOCK, NUMAD, TUNED, VALUE)
    assert reads_for(changes) == Reads(files=(THP, RULE, SHARED), services=("numad",))


WRITTEN = with_block("a\n", "vm.swappiness", "vm.swappiness = 1")


def test_lines_whose_marks_were_edited_are_still_owed() -> None:
    """They are there: to say that all is as it was found would leave them there for good."""
    for edited in (
        WRITTEN.replace("\n", "\r\n"),
        WRITTEN.replace("# END orchestrate vm.swappiness\n", ""),
        WRITTEN.replace("# BEGIN orchestrate vm.swappiness\n", ""),
        WRITTEN.replace("# END", "  # END"),
        WRITTEN + WRITTEN,
    ):
        stands = standing(files(shared=edited), (BLOCK,))
        assert isinstance(stands, Unknown), edited
        assert "take its lines away by hand" in stands.reason


SYSRQ = "kernel.sysrq = 0\n"
OURS = "# BEGIN orchestrate vm.swappiness\nvm.swappiness = 1\n# END orchestrate vm.swappiness\n"


def test_a_block_is_appended_found_and_taken_away() -> None:
    written = with_block(SYSRQ, "vm.swappiness", "vm.swappiness = 1")
    assert written == SYSRQ + OURS
    assert block_in(written, "vm.swappiness") == "vm.swappiness = 1"
    assert with_block(written, "vm.swappiness", None) == SYSRQ


def test_a_block_is_rewritten_in_place_and_others_are_left() -> None:
    text = OURS + SYSRQ + OURS.replace("swappiness", "other")
    written = with_block(text, "vm.swappiness", "vm.swappiness = 9")
    assert written == OURS.replace("= 1", "= 9") + SYSRQ + OURS.replace("swappiness", "other")


def test_where_there_is_no_whole_block_there_is_none() -> None:
    for text in (SYSRQ, "", "# BEGIN orchestrate vm.swappiness\nx\n", OURS.replace("vm", "um")):
        assert block_in(text, "vm.swappiness") is None
        assert with_block(text, "vm.swappiness", None) == text
    text = "# BEGIN orchestrate vm.swappiness\nprecious\n" + OURS
    assert with_block(text, "vm.swappiness", None) == "# BEGIN orchestrate vm.swappiness\nprecious\n"


@given(st.text(alphabet="ab#\n ", max_size=40), st.text(alphabet="xy= \n", max_size=20))
def test_removing_a_block_restores_all_but_the_last_line_end(text: str, lines: str) -> None:
    written = with_block(text, "n", lines)
    ended = text if not text or text.endswith("\n") else text + "\n"
    assert with_block(written, "n", None) == ended
    assert block_in(written, "n") == lines.removesuffix("\n")
