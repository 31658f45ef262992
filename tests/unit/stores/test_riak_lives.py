"""Which process a node is, from its host's `/proc`."""

from __future__ import annotations

import pytest

from orchestrator.model.cluster import Incarnation
from orchestrator.model.reading import Unknown
from orchestrator.stores.riak.lives import parse_life
from orchestrator.stores.riak.output import CommandOutput
from tests.unit.stores.riak_cluster import BOOT, stat_line

PID = 4711


def read(stdout: str, exit_code: int | None = 0) -> Incarnation | Unknown:
    return parse_life(CommandOutput(exit=exit_code, stdout=stdout), PID)


def test_the_moment_of_the_start_is_read_past_any_name(subtests: pytest.Subtests) -> None:
    for name in ["beam.smp", "1 (x) S 2", "a) R 1 2 (b", "( )", ")", ") ) )"]:
        with subtests.test(name=name):
            life = read(f"{BOOT}\n{stat_line(PID, 987654, name)}")
            assert life == Incarnation(ephemeral_id=f"{BOOT} {PID} 987654")


STAT = "cpu  1 2 3\ncpu0 1 2 3\nintr 5 0\nctxt 7\nbtime 1789000000\nprocesses 9\n"


def test_the_start_is_told_by_the_clock_of_the_host() -> None:
    life = read(f"{BOOT}\n{stat_line(PID, 987654)}{STAT}")
    assert life == Incarnation(
        ephemeral_id=f"{BOOT} {PID} 987654", started_at_ms=1_789_000_000_000 + 9_876_540
    )


@pytest.mark.parametrize("text", ["", "cpu 1\n", STAT + "btime 17\n", STAT.replace("btime 1", "btime x")])
def test_a_life_without_its_boot_has_no_start(text: str) -> None:
    assert read(f"{BOOT}\n{stat_line(PID, 10)}{text}") == Incarnation(ephemeral_id=f"{BOOT} {PID} 10")


def test_a_clock_that_was_set_makes_no_other_life() -> None:
    """The kernel reckons the moment of the boot from the clock as it is now."""
    before = read(f"{BOOT}\n{stat_line(PID, 10)}{STAT}")
    after = read(f"{BOOT}\n{stat_line(PID, 10)}{STAT.replace('1789000000', '1789000001')}")
    assert isinstance(before, Incarnation)
    assert isinstance(after, Incarnation)
    assert after != before
    assert after.is_same_as(before)
    assert not after.differs_from(before)


def test_lives_differ_by_boot_by_number_and_by_start() -> None:
    whole = read(f"{BOOT}\n{stat_line(PID, 10)}")
    other = read(f"{BOOT.replace('3', '4')}\n{stat_line(PID, 10)}")
    later = read(f"{BOOT}\n{stat_line(PID, 11)}")
    number = parse_life(CommandOutput(exit=0, stdout=f"{BOOT}\n{stat_line(PID + 1, 10)}"), PID + 1)
    assert len({str(each) for each in (whole, other, later, number)}) == 4
    assert not any(isinstance(each, Unknown) for each in (whole, other, later, number))


def test_a_text_that_is_not_whole_tells_no_life(subtests: pytest.Subtests) -> None:
    for text in [
        "",
        f"{BOOT}\n",
        stat_line(PID, 10),
        f"{BOOT}\n{PID} (beam.smp) S 1 2\n",
        f"no boot\n{stat_line(PID, 10)}",
        f"{BOOT}\n{stat_line(PID, 10)}{stat_line(PID, 10)}",
        f"{BOOT}\n{PID} (beam.smp\n",
        f"{BOOT}\n{stat_line(PID, 10).replace(' 10 ', ' -1 ')}",
    ]:
        with subtests.test(text=text):
            assert isinstance(read(text), Unknown)


@pytest.mark.parametrize("code", [1, None])
def test_a_command_that_failed_or_was_cut_tells_no_life(code: int | None) -> None:
    assert isinstance(read(f"{BOOT}\n{stat_line(PID, 10)}", code), Unknown)
