"""Whatever a host answers: no exception, and no finding without a number."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.diagnosis.diagnose import diagnose
from orchestrator.errors import UsageError
from orchestrator.hosts.diagnosis.reading import read_answers, signs_of
from orchestrator.hosts.diagnosis.records import signs_of_records
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import (
    Compaction,
    Confidence,
    CpuUse,
    Diagnosis,
    DiskUse,
    ErlangUse,
    Finding,
    FreeZone,
    Numad,
    PageMove,
    Reclaim,
    Signs,
    Syndrome,
    ThreadUse,
)
from orchestrator.model.reading import NOT_READ, Unknown
from tests.unit.diagnosis.signs import DATA

NODE = NodeName("es1")
RATE = st.floats(0, 1e7)
SHARE = st.floats(0, 1)


def _maybe(known: st.SearchStrategy) -> st.SearchStrategy:  # type: ignore[type-arg]  # any kind of reading
    return st.one_of(known, st.just(NOT_READ), st.just(Unknown(reason="refused")))


SIGNS = st.builds(
    Signs,
    node=st.sampled_from([NodeName(f"es{number}") for number in range(1, 8)]),
    machine=st.sampled_from(["", "a", "b", "c", "d", "e"]),
    cpus=_maybe(st.integers(1, 256)),
    load=_maybe(RATE),
    cpu=_maybe(st.builds(CpuUse, system=SHARE, busy=SHARE, peak_system=SHARE)),
    switches=_maybe(RATE),
    reclaim=_maybe(
        st.builds(
            Reclaim,
            scanned_direct=RATE,
            scanned_kswapd=RATE,
            stolen_direct=st.none() | RATE,
            stolen=RATE,
            peak_direct=RATE,
        )
    ),
    compaction=_maybe(
        st.builds(Compaction, stalls=RATE, failures=RATE, huge_faults=RATE, huge_fallbacks=RATE)
    ),
    zones=_maybe(
        st.lists(
            st.builds(
                FreeZone,
                numa_node=st.integers(0, 3),
                zone=st.sampled_from(["DMA", "DMA32", "Normal", "Movable"]),
                blocks=st.lists(st.integers(0, 10**6), max_size=11).map(tuple),
            ),
            max_size=4,
        ).map(tuple)
    ),
    numad=_maybe(
        st.builds(
            Numad,
            moves=st.lists(
                st.builds(
                    PageMove,
                    pid=st.integers(1, 9),
                    command=st.sampled_from(["", "java"]),
                    to_nodes=st.just("0"),
                    seconds=RATE,
                    age=st.none() | RATE,
                ),
                max_size=3,
            ).map(tuple),
            running=st.none() | st.booleans(),
        )
    ),
    disks=_maybe(
        st.lists(
            st.builds(
                DiskUse,
                name=st.sampled_from(["sda", "sdb"]),
                scheduler=st.sampled_from(["cfq", "none", "bfq", ""]),
                offered=st.sampled_from([(), ("cfq",), ("noop", "cfq"), ("none", "bfq")]),
                rotational=st.none() | st.booleans(),
                busy=SHARE,
                kib=RATE,
                carries_data=st.none() | st.booleans(),
            ),
            max_size=2,
        ).map(tuple)
    ),
    erlang=_maybe(
        st.lists(
            st.builds(
                ErlangUse,
                pid=st.integers(1, 9),
                schedulers=st.lists(
                    st.builds(ThreadUse, name=st.just("1_scheduler"), cpu=SHARE, sleeps=RATE), max_size=6
                ).map(tuple),
            ),
            max_size=2,
        ).map(tuple)
    ),
    functions=_maybe(
        st.dictionaries(st.sampled_from(["compact_zone", "_spin_lock_irq", "scheduler_wait"]), SHARE)
    ),
    huge_pages=_maybe(st.sampled_from(["always", "madvise", "never", ""])),
    zone_reclaim_mode=_maybe(st.integers(0, 7)),
    min_free=_maybe(st.integers(0, 10**9)),
    recovery=_maybe(RATE),
)


@given(st.lists(SIGNS, max_size=7))
@settings(max_examples=300, deadline=None)
def test_every_finding_has_numbers_nodes_and_something_to_do(fleet: list[Signs]) -> None:
    hosts = {signs.node: signs for signs in fleet}
    diagnosis = diagnose(hosts)
    for finding in diagnosis.findings:
        assert finding.numbers
        assert set(finding.nodes) <= set(hosts)
        assert finding.advice
        assert finding.why
    # Each syndrome of one host was looked for, or is told not to have been.
    blind = {(one.node, one.syndrome) for one in (*diagnosis.unexamined, *diagnosis.unrecorded)}
    for finding in diagnosis.findings:
        assert not {(node, finding.syndrome) for node in finding.nodes} & blind


def test_a_finding_without_a_number_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="without a number"):
        Finding(
            syndrome=Syndrome.OUTLIER,
            nodes=(NODE,),
            confidence=Confidence.LOW,
            why="it feels slow",
            numbers=(),
            advice="",
            tunable=None,
        )


READING = (DATA / "healthy" / "compile" / "reading-1.txt").read_text()
LATER = (DATA / "healthy" / "compile" / "reading-2.txt").read_text()


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_answer_of_a_host_makes_an_exception(data: st.DataObject) -> None:
    # A real answer, with a piece of anything in place of a piece of it.
    start = data.draw(st.integers(0, len(LATER)))
    end = data.draw(st.integers(start, min(len(LATER), start + 2000)))
    other = data.draw(
        st.text(max_size=60)
        | st.sampled_from(["9" * 5000, "-1", "\u0663 \u0664 \u0665", "²", "\x00", "\n\n"])
    )
    answer = LATER[:start] + other + LATER[end:]
    for first, second in ((READING, answer), (answer, LATER), (answer, answer)):
        found = signs_of(NODE, read_answers(first), read_answers(second))
        assert isinstance(diagnose({NODE: found}), Diagnosis)


RECORDS = sorted(
    path for path in (DATA / "incidents").glob("*/*") if "reading" not in path.name and path.suffix != ".md"
)


@given(st.sampled_from(RECORDS), st.data())
@settings(max_examples=200, deadline=None)
def test_no_record_makes_an_exception(path: Path, data: st.DataObject) -> None:
    text = path.read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 200)))
    other = data.draw(st.text(max_size=40) | st.sampled_from(["9" * 5000, "nan", "inf", "1e999", "-1"]))
    try:
        found = signs_of_records(NODE, {path.name: text[:start] + other + text[end:]})
    except UsageError:
        return  # no record any more
    assert isinstance(diagnose({NODE: found}), Diagnosis)


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_a_text_that_is_no_record_is_refused(text: str) -> None:
    try:
        found = signs_of_records(NODE, {"x.txt": text})
    except UsageError:
        return
    assert (
        diagnose({NODE: found}).unexamined or isinstance(found, Unknown) or diagnose({NODE: found}).unrecorded
    )


def test_an_answer_that_is_cut_off_hides_nothing() -> None:
    whole = LATER.index("@@orchestrate-00000000-0000-4000 begin buddyinfo")
    found = signs_of(NODE, read_answers(READING), read_answers(LATER[:whole]))
    unexamined = {one.syndrome for one in diagnose({NODE: found}).unexamined}
    assert Syndrome.FRAGMENTATION in unexamined
    assert Syndrome.NUMAD_MOVES in unexamined
    assert Syndrome.DIRECT_RECLAIM not in unexamined


def test_a_host_that_was_booted_between_two_readings_is_not_read() -> None:
    booted = LATER.replace("00000000-0000", "11111111-0000")
    found = signs_of(NODE, read_answers(READING), read_answers(booted))
    assert isinstance(found, Unknown)
    assert "booted between" in found.reason
    # And where the boot ids cannot tell: the time since the boot does.
    assert isinstance(signs_of(NODE, read_answers(LATER), read_answers(READING)), Unknown)
    assert isinstance(signs_of(NODE, read_answers(LATER), read_answers(LATER)), Unknown)


def test_a_number_of_any_length_is_a_reading_that_failed_at_most(subtests: pytest.Subtests) -> None:
    for after in [
        "end stat ",
        "cpus ",
        "ctxt ",
        "cpu  ",
        "pgscan_direct ",
        "|none [mq-deadline] kyber bfq |",
    ]:
        with subtests.test(after=after):
            # Python refuses to read whole numbers of more than 4300 digits.
            at = LATER.index(after) + len(after)
            answer = LATER[:at] + "9" * 5000 + LATER[at:]
            assert not isinstance(signs_of(NODE, read_answers(READING), read_answers(answer)), Unknown)
