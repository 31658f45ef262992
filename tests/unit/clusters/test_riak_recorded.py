"""Every output that was recorded on a real Riak, read: `data/riak/meanings.md` has the meaning of each.

And what is put together from several: the ring, `/stats`, the life of a process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import HASH_SPACE, NodePartitions, NodeStats, Transfers
from orchestrator.riak.lives import parse_life
from orchestrator.riak.output import CommandOutput, RiakUnreadable, dialect_of, reading
from orchestrator.riak.parse_node import parse_n_val, parse_stats
from orchestrator.riak.parse_ring import numbers_of, parse_partitions, ring_of
from orchestrator.riak.terms import NARROW, take_table
from tests.fakes.riak_meanings import DIALECT, meaning, parser_of, table, value_of
from tests.fakes.riak_rings import claimed, names
from tests.riak_transcripts import FILES, STATS, recorded, wrapper_recordings
from tests.unit.clusters.cases import unread
from tests.unit.clusters.riak_cluster import BOOT, stat_line

MEANINGS = Path(__file__).parents[2] / "data" / "riak" / "meanings.md"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"
ULIMIT = "!!!!\n!!!! WARNING: ulimit -n is 20000; 65536 is the recommended minimum.\n!!!!\n"
"""As `riak daemon` of 3.2.1 printed it (recorded); other versions print it before any answer."""


def test_what_every_recorded_command_means() -> None:
    if os.environ.get(REWRITE):
        MEANINGS.write_text(table())
    assert MEANINGS.read_text() == table(), f"run with {REWRITE}=1 and read the diff"


def test_every_command_of_the_files_is_walked() -> None:
    bodies = [file.read_bytes() for file in FILES]
    heads = [line for body in bodies for line in body.split(b"\n") if line.startswith(b"===")]
    assert (len(recorded()), len(heads), len(wrapper_recordings())) == (598, 594, 4)


def test_each_recorded_output_is_read_or_withheld(subtests: pytest.Subtests) -> None:
    """And read alike after a warning, or with the packaged command's exit code, which is 0 in any case."""
    for record in recorded():
        with subtests.test(str(record)):
            if parser_of(record.command) is None:
                assert meaning(record).startswith("not read: ")
                continue
            found = value_of(record)
            unidentified = "is not responding to pings" in record.text or "Invalid " in record.text
            answers_in_any_case = record.command.startswith(("riak ping", "riak stop", "riak admin wait-for"))
            assert isinstance(found, Unknown) is (unidentified and not answers_in_any_case)
            if record.text.strip():
                assert value_of(replace(record, text=f"{ULIMIT}{record.text}")) == found
            packaged = value_of(replace(record, exit=0)) if record.exit else found
            assert isinstance(packaged, Unknown) == isinstance(found, Unknown)
            assert isinstance(found, Unknown) or packaged == found


def test_transfers_are_clean_after_every_drain_and_nowhere_else() -> None:
    """The oracle knows nothing of the parser: the text of the clean ones is one and the same."""
    clean = [each for each in recorded() if each.text == "No transfers active\n\nActive Transfers:\n\n\nok\n"]
    read = [each for each in recorded() if isinstance(value := value_of(each), Transfers) and value.clean]
    assert read == clean
    assert len(clean) == 7


def read(parse: Callable[..., Any], text: str, of: object) -> Any:
    return reading(lambda: parse(CommandOutput(exit=0, stdout=text), of))


def test_an_n_val_that_is_cut_is_unknown() -> None:
    """`n_val: 1` is no less a number than `n_val: 12`: a line must follow."""
    text = "wide is active\n\nyoung_vclock: 20\nn_val: 12\nallow_mult: true\nok\n"
    cuts = [read(parse_n_val, text[:end], "wide") for end in range(len(text))]
    assert {cut for cut in cuts if not isinstance(cut, Unknown)} == {12}


def test_a_table_as_wide_as_the_narrowest_screen_may_be_cut() -> None:
    """80 columns less the one that Riak keeps free; wider ones may have been cut to a wider screen."""
    assert NARROW == 79
    for width in (NARROW - 1, NARROW, NARROW + 1, 200):
        border = f"+{'-' * (width - 2)}+"
        head, row = (f"|{word:^{width - 2}}|" for word in ("node", "a@b"))
        found, _ = take_table((border, head, border, row, border), ("node",))
        if width < NARROW:
            found.must_be_uncut()
        else:
            with pytest.raises(RiakUnreadable, match="as wide as a screen"):
                found.must_be_uncut()


def test_stats_that_are_cut_are_unknown() -> None:
    body = STATS.read_text()
    assert all(unread(partial(parse_stats, body[:length])) for length in range(0, 16_000, 531))


# The ring --------------------------------------------------------------------------------------------------

ONE, TWO, THREE = names(3)
RING = claimed(3, 16)
COUNTED = NodeStats(
    node=ONE,
    kv_vnodes=6,
    connected=frozenset({TWO, THREE}),
    members=frozenset({ONE, TWO, THREE}),
    ring_size=16,
    ownership=RING.ownership,
)
STEP = HASH_SPACE // RING.size
OWNED = {
    node: frozenset(number * STEP for number, owner in enumerate(RING.owners) if owner == node)
    for node in RING.ownership
}


def test_ring_of_is_what_stats_counts(subtests: pytest.Subtests) -> None:
    """Neither a row too few, which looks whole, nor owners that have changed places make a ring."""
    nine = NodeName("riak9@10.0.0.9")
    assert ring_of(OWNED, COUNTED) == RING
    assert ring_of({**OWNED, nine: frozenset()}, COUNTED) == RING
    assert ring_of(OWNED, replace(COUNTED, ownership={**COUNTED.ownership, nine: 0})) == RING
    assert len(OWNED[ONE]) != len(OWNED[THREE])
    changed = {**OWNED, ONE: OWNED[THREE], THREE: OWNED[ONE]}
    overlapping = {**OWNED, ONE: OWNED[ONE] - {min(OWNED[ONE])} | {min(OWNED[TWO])}}
    shifted = {node: frozenset(index + 1 for index in indices) for node, indices in OWNED.items()}
    wrong: list[tuple[Any, str]] = [
        (changed, "not as many as /stats counts"),
        (overlapping, ""),
        (shifted, ""),
    ]
    for node, indices in OWNED.items():
        wrong.append(({**OWNED, node: indices - {max(indices)}}, ""))
        wrong.append(({key: each for key, each in OWNED.items() if key != node}, ""))
    for index in (HASH_SPACE, 17 * STEP, -STEP, STEP + 1):
        odd = {**OWNED, ONE: OWNED[ONE] - {max(OWNED[ONE])} | {index}}
        wrong.append((odd, f"{index} is no partition of a ring of 16"))
    for number, (owned, reason) in enumerate(wrong):
        with subtests.test(number=number):
            assert reason in unread(partial(ring_of, owned, COUNTED))
    assert "does not divide" in unread(lambda: ring_of(OWNED, replace(COUNTED, ring_size=7)))
    assert numbers_of((0, STEP, 15 * STEP), 16) == frozenset({0, 1, 15})
    assert "is no partition of a ring of 16" in unread(lambda: numbers_of((0, HASH_SPACE), 16))


def test_partitions_that_are_cut_are_unknown() -> None:
    rows = [("primary", str(index), "0") for index in sorted(OWNED[ONE])[1:]]
    rows += [("secondary", "--", "--"), ("stopped", str(min(OWNED[ONE])), "0")]
    border = f"+---------+{'-' * 49}+--+\n"
    lines = "".join(f"|{kind:^9}|{index:^49}|{number:^2}|\n" for kind, index, number in rows)
    older = f"Partitions owned by '{ONE}':\n{border}|{'type':^9}|{'index':^49}|id|\n{border}{lines}{border}\n"
    for text, dialect, kept in ((f"{older}ok\n", DIALECT, 1), (older, dialect_of("2.9.10"), None)):
        assert dialect is not None
        found = [read(parse_partitions, text[:end], dialect) for end in range(len(text) + 1)]
        assert found[-1] == NodePartitions(node=ONE, owned=OWNED[ONE], others=frozenset())
        assert all(isinstance(cut, Unknown) or (kept is None and cut == found[-1]) for cut in found[:-2])


# A process -------------------------------------------------------------------------------------------------


def test_lives_differ_by_boot_number_and_start_and_by_no_clock() -> None:
    def life(start: int, pid: int = 4711, boot: str = BOOT, clock: int = 0) -> Incarnation:
        stat = f"cpu 1\nbtime {clock}\n" if clock else ""
        output = CommandOutput(exit=0, stdout=f"{boot}\n{stat_line(pid, start)}{stat}")
        return parse_life(output, pid)

    lives = [life(10), life(11), life(10, pid=4712), life(10, boot=BOOT.replace("3", "4"))]
    assert len({str(each) for each in lives}) == 4
    before, after = (life(10, clock=clock) for clock in (1_789_000_000, 1_789_000_001))
    assert after != before, "the kernel reckons the moment of the boot from the clock as it is now"
    assert after.is_same_as(before)
    assert not after.differs_from(before)
    assert not Incarnation().differs_from(lives[0]), "no life is no other life"
