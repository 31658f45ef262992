from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from orchestrator.model.action import Action, Purpose, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.event import (
    ActionConfirmed,
    ActionSent,
    Event,
    LeaseTaken,
    ReplicasAdded,
    RestoreBegun,
    SettingChanged,
    VotingExcluded,
    WaveGaveWay,
    WaveStarted,
)
from orchestrator.model.observation import Level
from orchestrator.model.phase import Outcome
from orchestrator.model.policy import Hook, Hooks, Wave
from orchestrator.model.tuning import BOOT, TunableState, Verdict
from orchestrator.model.work_event import TuningApplied
from orchestrator.names import OUTCOMES
from orchestrator.tuning.boot import NOT_SET, SET_BY_US
from orchestrator.untrusted import one_line, visible
from orchestrator.view.above import sign_of
from orchestrator.view.feed import Feed
from orchestrator.view.signs import IN_ASCII, SIGNS
from orchestrator.view.text import duration, listed, setting, size, stamp, stamp_seconds
from orchestrator.view.words import action_sentence, sentence
from tests.unit.view import samples

Golden = Callable[[str, str], None]


def test_every_event_and_action_has_a_plain_line(subtests: pytest.Subtests, golden: Golden) -> None:
    examples = samples.examples()
    sent = {type(one.action) for one in examples if isinstance(one, ActionSent)}
    assert {type(one) for one in examples} == set(get_args(Event)), "an example of each in events.jsonl"
    assert sent == set(get_args(Action))
    for one in examples:
        with subtests.test(type(one).__name__):
            line = sentence(one)
            assert line.translate(dict.fromkeys(map(ord, IN_ASCII))).isascii()
            assert line.isprintable()
            assert "=" not in line, "a repr is no sentence"
            assert not sign_of(one) or sign_of(one) in SIGNS
    lines = [f"{stamp_seconds(record.at)} {sentence(record.event)}" for record in samples.records(examples)]
    golden("lines.txt", "\n".join(lines) + "\n")
    assert list(OUTCOMES) == [outcome.value for outcome in Outcome]


def test_output_of_a_command_cannot_drive_the_terminal() -> None:
    line = sentence(ActionConfirmed(action=samples.hook, output="a\x1b]0;owned\x07\x1b[2J\r\nb\u202eevil"))
    assert line.isprintable()
    assert line.endswith(r"a\x1b]0;owned\x07\x1b[2J | b\u202eevil")
    assert len(sentence(ActionConfirmed(action=samples.hook, output="x" * 5000))) < 450


def test_what_could_drive_a_terminal_is_spelt_out() -> None:
    for given, shown in [
        ("es1 \u00e9 \u4e2d", "es1 \u00e9 \u4e2d"),
        ("a\x1b[2Jb\tc\nd\re", r"a\x1b[2Jb\tc\nd\re"),
        ("\x00\x7f\x85\x9b", r"\x00\x7f\x85\x9b"),
        ("a\u202eb\u2066c\u200fd\u2028e", r"a\u202eb\u2066c\u200fd\u2028e"),
        ("\udc80", r"\udc80"),
    ]:
        assert visible(given) == shown


def test_the_first_line_does_not_spell_out_the_hooks() -> None:
    hooks = Hooks(before_stop=(Hook(run="depool {node} --token=hunter2"),))
    line = sentence(replace(samples.started, policy=replace(samples.policy, hooks=hooks)))
    assert "prod" in line
    assert "hunter2" not in line


DURATIONS = "-3 0s, 0.44 0.4s, 3 3s, 9.96 10s, 59.6 1m 0s, 72 1m 12s, 3599.7 1h 0m, 3725 1h 2m, 90000 1d 1h"
SIZES = "0 0 B, 999 999 B, 1000 1.0 kB, 999960 1.0 MB, 1234567890 1.2 GB, 5000000000000000 5.0 PB"


def test_times_sizes_settings_and_lists_in_words() -> None:
    for given, _, shown in (row.partition(" ") for row in DURATIONS.split(", ")):
        assert duration(float(given)) == shown, given
    for given, _, shown in (row.partition(" ") for row in SIZES.split(", ")):
        assert size(int(given)) == shown, given
    assert [setting(value) for value in (None, "", ("a", "b"))] == ["not set", '""', "[a, b]"]
    assert (listed(["a", "b", "c"], 2), listed([], 2)) == ("a, b and 1 more", "")
    assert (one_line("a\n\n b "), one_line("x" * 20, 10)) == ("a | b", "xxxxxxx...")
    assert stamp(1_800_000_000.1234) == "2027-01-15T08:00:00.123Z", "of RFC 3339, in UTC"
    lines = [sentence(WaveGaveWay(number=1, copies=copies)) for copies in (1, 2)]
    assert [line.rpartition("while ")[2] for line in lines] == ["1 copy recovers", "2 copies recover"]


def test_what_a_record_lists_is_said_to_be_listed() -> None:
    """Until its restore begins, a run that restores another's changes only repeats that run's record."""
    setting = SettingChanged(
        level=Level.PERSISTENT, key="a.b", found=None, wanted="none", purpose=Purpose.WITHHOLD
    )
    wave = WaveStarted(wave=Wave(number=1, nodes=(NodeName("es1"),)), incarnations={})
    replica = ReplicasAdded(index="i", index_uuid="u", found=0, wanted=1)
    excluded = VotingExcluded(node=NodeName("es2"))
    replayed = (setting, wave, replica, excluded)
    taken = LeaseTaken(epoch=2, holder="ann@b", takeover=True, takes_over="dead-1")
    begun = RestoreBegun(operator="ann", host="b", takes_over="dead-1")
    for repairs in ("dead-1", None):
        sentences = Feed().sentence
        sentences(replace(samples.run_state().begun, repairs=repairs))
        said = [sentences(event) for event in (taken, *replayed)]
        listed = "listed in the record of run dead-1: " if repairs else ""
        assert said == [sentence(taken), *(f"{listed}{sentence(event)}" for event in replayed)]
        assert [sentences(event) for event in (begun, setting)] == [sentence(begun), sentence(setting)]


def test_a_tunable_is_said_with_its_former_value_if_there_is_one(subtests: pytest.Subtests) -> None:
    boot = TunableState(tunable=BOOT, wanted=SET_BY_US, running="", at_boot=NOT_SET, verdict=Verdict.DRIFT)
    for found, wanted, said in [
        ("60", "1", "x: 60 → 1"),
        (boot.former, boot.wanted, "x: not set by orchestrate → set by orchestrate's unit, enabled"),
        ("", SET_BY_US, "x: set by orchestrate's unit, enabled"),
        ("not set", "at least 65535", "x: not set → at least 65535"),
    ]:
        with subtests.test(found=found):
            made = TuneHost(node=NodeName("es1"), tunable="x", changes=(), found=found, wanted=wanted)
            assert action_sentence(made) == f"es1: set {said}"
            applied = TuningApplied(node=made.node, tunable="x", found=found, wanted=wanted)
            assert sentence(applied) == f"es1: {said}, read back"
