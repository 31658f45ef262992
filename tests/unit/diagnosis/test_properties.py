"""Whatever a host answers: no exception, and no finding without a number."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.diagnosis.findings import diagnose
from orchestrator.diagnosis.reading import read_answers, signs_of
from orchestrator.diagnosis.records import signs_of_records
from orchestrator.errors import UsageError
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

OF_SIGNS = (Compaction, CpuUse, DiskUse, ErlangUse, FreeZone, Numad, PageMove, Reclaim, ThreadUse)
PARTS = {each.__name__: each for each in OF_SIGNS}
NODE = NodeName("es1")
SHARES = {"system", "busy", "peak_system", "cpu"}
"""Numbers from 0 to 1."""
TEXTS = {
    "node": [NodeName(f"es{number}") for number in range(1, 8)],
    "machine": ["", "a", "b", "c", "d", "e"],
    "zone": ["DMA", "DMA32", "Normal", "Movable"],
    "command": ["", "java"],
    "scheduler": ["cfq", "none", "bfq", ""],
    "offered": ["cfq", "noop", "none", "bfq"],
    "name": ["sda", "sdb", "1_scheduler"],
    "functions": ["compact_zone", "_spin_lock_irq", "scheduler_wait"],
    "huge_pages": ["always", "madvise", "never", ""],
}


def drawn(kind: str, name: str) -> st.SearchStrategy[Any]:
    """Values of a field, by its type and name."""
    if kind.startswith("Reading["):
        known = drawn(kind[len("Reading[") : -1], name)
        return st.one_of(known, st.just(NOT_READ), st.just(Unknown(reason="refused")))
    if kind.endswith(" | None"):
        return st.none() | drawn(kind.removesuffix(" | None"), name)
    if kind.startswith("tuple["):
        return st.lists(drawn(kind[len("tuple[") : -len(", ...]")], name), max_size=4).map(tuple)
    if kind.startswith("Mapping["):
        return st.dictionaries(st.sampled_from(TEXTS[name]), st.floats(0, 1))
    if kind in PARTS:
        return of(PARTS[kind])
    number = st.floats(0, 1) if name in SHARES else st.floats(0, 1e7)
    whole = st.integers(name == "cpus", 10**6)  # a host has a processor
    plain = {"float": number, "Seconds": number, "int": whole, "bool": st.booleans()}
    return plain[kind] if kind in plain else st.sampled_from(TEXTS.get(name, ["0"]))


@cache
def of(part: type) -> st.SearchStrategy[Any]:
    return st.builds(part, **{field.name: drawn(str(field.type), field.name) for field in fields(part)})


SIGNS = of(Signs)


@given(st.lists(SIGNS, max_size=7))
@settings(max_examples=60, deadline=None)
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
@settings(max_examples=60, deadline=None)
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
@settings(max_examples=100, deadline=None)
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


def test_a_number_of_any_length_is_a_reading_that_failed_at_most() -> None:
    """Python refuses to read whole numbers of more than 4300 digits."""
    for after in (
        "end stat ",
        "cpus ",
        "ctxt ",
        "cpu  ",
        "pgscan_direct ",
        "|none [mq-deadline] kyber bfq |",
    ):
        at = LATER.index(after) + len(after)
        answer = LATER[:at] + "9" * 5000 + LATER[at:]
        assert not isinstance(signs_of(NODE, read_answers(READING), read_answers(answer)), Unknown)
