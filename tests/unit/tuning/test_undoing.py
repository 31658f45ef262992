"""Only what still shows our value is undone; our lines in files of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.host import HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Reading, Unknown
from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    ServiceChange,
    ServiceMode,
    TunedChange,
    ValueChange,
)
from orchestrator.tuning.blocks import block_in, with_block
from orchestrator.tuning.tunable import FactReads
from orchestrator.tuning.undoing import Back, Foreign, Ours, Standing, reads_for, standing
from tests.fakes.cases import rows

DENIED = Unknown(reason="may not be read")
MODES = ("running", "enabled", "masked")
EMPTY = HostFacts(init=InitSystem.SYSTEMD, cpus=2, memory=2**34, files={})


def read(row: dict[str, Any]) -> tuple[Change, HostFacts]:
    """The change of a row, and the facts of its host."""
    shown = DENIED if row["is"] == "unread" else row["is"]
    match row:
        case {"value": [path, found, wanted]}:
            change: Change = ValueChange(path=path, found=found, wanted=wanted)
        case {"file": [path, found]}:
            change = FileChange(path=path, found=found, wanted=None)
        case {"block": [path, found]}:
            change = BlockChange(path=path, name="b", found=found, wanted=None)
        case {"service": name}:
            modes = ServiceFacts(present=shown != "absent", **{mode: mode in (shown or "") for mode in MODES})
            services = {} if shown is None else {name: modes}
            off, on = (ServiceMode(running=up, enabled=up, masked=not up) for up in (False, True))
            return ServiceChange(service=name, found=off, wanted=on), replace(EMPTY, services=services)
        case {"tuned": found}:
            undoing = TunedChange(found=found, wanted="throughput-performance")
            return undoing, replace(EMPTY, tuned=shown)
    return change, replace(EMPTY, files={change.path: shown} if shown is not None else {})


def word(stands: Reading[Standing], change: Change) -> str:
    """What stands there, as the rows say it."""
    match stands:
        case Unknown(reason=reason):
            return "by hand" if "take its lines away by hand" in reason else "unknown"
        case Foreign(shows=shows):
            return f"shows {shows}"
        case Back(why=why):
            return {"it has its original value": "back", "no longer exists": "gone"}[why]
        case Ours(change=ours) if ours == change:
            return "ours"
        case Ours(change=FileChange(found=found)):
            return f'ours as "{found}"'
    raise AssertionError(stands)


def test_standing_of_ours_back_foreign_and_unknown(subtests: pytest.Subtests) -> None:
    for row in rows("tuning/undoing.yml"):
        with subtests.test(row=row):
            change, facts = read(row)
            assert word(standing(facts, (change,)), change) == row["stands"]
    value, earlier = (ValueChange(path="/a", found=found, wanted="always") for found in ("never", "madvise"))
    facts = replace(EMPTY, files={"/a": "always [madvise] never"})
    assert standing(facts, (value, earlier)) == Ours(change=earlier), "any value of ours counts"
    assert standing(EMPTY, ()) == Back(why="it has its original value")


def test_reads_for_changes() -> None:
    changes = [read(row)[0] for row in rows("tuning/undoing.yml")]
    files = ("/sys/thp", "/proc/tcp_rmem", "/etc/a.rules", "/etc/a.conf")
    assert reads_for(changes) == FactReads(files=files, services=("numad",), tuned=True)
    assert not reads_for(changes[:1]).tuned


SYSRQ = "kernel.sysrq = 0\n"
OURS = "# BEGIN orchestrate vm.swappiness\nvm.swappiness = 1\n# END orchestrate vm.swappiness\n"


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
