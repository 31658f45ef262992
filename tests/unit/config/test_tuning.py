# ruff: noqa: E501  (the table is read by its rows: a file, its place and its message in one line each)
"""Tuning profiles: short and long form, what is refused and where, and those that are shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.lookup import Wanted, find, standard_places
from orchestrator.config.tuning import check_profile, load_profile
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError
from orchestrator.model.tuning import OnFailure, TuningProfile, TuningSetting

NAMES = ("numad", "transparent_hugepage.enabled", "io_scheduler", "vm.swappiness")
STORES = ("cassandra", "elasticsearch", "hadoop", "riak")


def _rule(setting: TuningSetting) -> str | None:
    return "must not be that" if "bad" in str(setting.wanted) else None


RULES = dict.fromkeys(NAMES, _rule)


def _check(text: str) -> TuningProfile:
    return check_profile(parse(text, "f.yml"), rules=RULES, name="f")


HEAD = "applies_to: elasticsearch\nsettings:\n"


def test_the_short_form_of_the_contract() -> None:
    profile = _check(
        HEAD
        + "  vm.swappiness: 1\n  io_scheduler: {ssd: none, rotational: mq-deadline}\n  numad: off\npersist: true\n"
    )
    assert profile == TuningProfile(
        name="f",
        applies_to="elasticsearch",
        # In the order in which tunables are made, whatever the order of the file.
        settings=(
            TuningSetting(tunable="numad", wanted="off"),
            TuningSetting(tunable="io_scheduler", wanted={"ssd": "none", "rotational": "mq-deadline"}),
            TuningSetting(tunable="vm.swappiness", wanted="1"),
        ),
    )


def test_the_long_form_with_its_reason() -> None:
    profile = _check(
        HEAD
        + "  numad: {value: off, why: it moves pages, source: the field, on_failure: stop}\n"
        + "  io_scheduler: {value: {ssd: none}}\n"
        + "on_failure: warn\npersist: false\ndevices: {sdb: ssd, cciss!c0d0: rotational}\n"
    )
    assert profile.settings == (
        TuningSetting(
            tunable="numad", wanted="off", why="it moves pages", source="the field", on_failure=OnFailure.STOP
        ),
        TuningSetting(tunable="io_scheduler", wanted={"ssd": "none"}),
    )
    assert profile.persist is False
    assert profile.devices == {"sdb": "ssd", "cciss!c0d0": "rotational"}


def test_the_profile_s_on_failure_is_for_all_that_do_not_say() -> None:
    profile = _check(HEAD + "  numad: off\n  vm.swappiness: {value: 1, on_failure: warn}\non_failure: stop\n")
    assert [setting.on_failure for setting in profile.settings] == [OnFailure.STOP, OnFailure.WARN]


KNOWN = "numad, transparent_hugepage.enabled, io_scheduler, vm.swappiness"
BAD = [
    ("settings: {numad: off}\n", None, "applies_to", "is missing"),
    ("applies_to: x\n", None, "settings", "is missing"),
    ("applies_to: x\nsettings: {}\n", 2, "settings", "must not be empty"),
    (HEAD + "  vm.swapiness: 1\n", 3, "settings", "unknown tunable `vm.swapiness`; did you mean `vm.swappiness`?"),
    (HEAD + "  nope: 1\n", 3, "settings", f"unknown tunable `nope`; known: {KNOWN}"),
    (HEAD + "  numad: bad\n", 3, "settings.numad", "must not be that"),
    (HEAD + "  numad:\n    why: x\n    value: bad\n", 5, "settings.numad.value", "must not be that"),
    (HEAD + "  io_scheduler: {ssd: bad}\n", 3, "settings.io_scheduler", "must not be that"),
    (HEAD + "  io_scheduler: {nvme: none}\n", 3, "settings.io_scheduler", "unknown key; known: ssd, rotational, value, why, source, on_failure"),
    (HEAD + "  numad:\n", 3, "settings.numad", "has no value"),
    (HEAD + "  numad: true\n", 3, "settings.numad", "must be a word or a whole number (YAML 1.2 takes on and off for words)"),
    (HEAD + "  vm.swappiness: 1.5\n", 3, 'settings["vm.swappiness"]', "must be a word or a whole number (YAML 1.2 takes on and off for words)"),
    (HEAD + "  numad: [off]\n", 3, "settings.numad", "must be text, not a list"),
    (HEAD + "  numad: {why: x}\n", 3, "settings.numad.value", "is missing"),
    (HEAD + "  numad: {value: off, wy: x}\n", 3, "settings.numad", "unknown key `wy`; did you mean `why`?"),
    (HEAD + "  numad: {value: off, on_failure: ignore}\n", 3, "settings.numad.on_failure", "must be one of stop, warn"),
    (HEAD + "  numad: off\n  numad: off\n", 4, None, "this key is on line 3 too; remove one of them"),
    (HEAD + "  numad: off\npersist: yes\n", 4, "persist", "must be true or false (YAML 1.2 takes yes, no, on and off for text)"),
    (HEAD + "  numad: off\ndevices: {sdb: nvme}\n", 4, "devices.sdb", "must be one of ssd, rotational"),
    (HEAD + "  numad: off\ndevices: {/dev/sdb: ssd}\n", 4, 'devices["/dev/sdb"]', "must be a disk's name in /sys/block, such as sdb, without a path"),
    (HEAD + "  numad: off\nsetings: {}\n", 4, None, "unknown key `setings`; did you mean `settings`?"),
]  # fmt: skip


def test_a_bad_profile_is_refused_with_its_place(subtests: pytest.Subtests) -> None:
    for text, line, key, message in BAD:
        with subtests.test(text=text, line=line, key=key, message=message):
            with pytest.raises(ConfigError) as caught:
                _check(text)
            error = caught.value
            assert (error.line, error.key) == (line, key)
            assert message in str(error)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        _check(HEAD + "  nope: 1\n  numad: bad\n")
    assert caught.value.line == 3
    assert "f.yml:4: settings.numad: must not be that" in str(caught.value)


@pytest.mark.parametrize("store", STORES)
def test_every_value_of_a_shipped_profile_has_reason_and_source(store: str) -> None:
    path = find(Wanted.TUNING, store, standard_places({}, home=Path("/home/op")))
    written = [
        line.strip().rstrip(":")
        for line in path.read_text().splitlines()
        if line.startswith("  ") and not line.startswith("   ")
    ]
    profile = load_profile(path, rules=dict.fromkeys(written, lambda _setting: None))
    assert profile.name == profile.applies_to == store
    assert len(profile.settings) == len(written)
    assert [setting.tunable for setting in profile.settings if not setting.why or not setting.source] == []
    assert not any("http" in setting.source for setting in profile.settings)


def test_one_s_own_profile_comes_before_the_shipped_one(tmp_path: Path) -> None:
    own = tmp_path / "tuning" / "riak.yml"
    own.parent.mkdir()
    own.write_text(HEAD + "  numad: off\n")
    places = standard_places({"ORCHESTRATE_CONFIG": str(tmp_path)}, home=Path("/home/op"))
    # The checkout's own ./configs comes first in the order of the contract; a name that it lacks shows the rest.
    own.rename(own.with_name("mine.yml"))
    assert find(Wanted.TUNING, "mine", places) == own.with_name("mine.yml")
    with pytest.raises(ConfigError, match="there is no tuning profile 'riac'") as caught:
        find(Wanted.TUNING, "riac", places)
    assert "did you mean riak?" in str(caught.value)
