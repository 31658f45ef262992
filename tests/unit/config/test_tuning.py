"""Tuning profiles: short and long form, and those that are shipped."""

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


RULES = dict.fromkeys(NAMES, lambda _setting: None)


def _check(text: str) -> TuningProfile:
    return check_profile(parse(text, "f.yml"), rules=RULES, name="f")


HEAD = "applies_to: elasticsearch\nsettings:\n"


def test_the_short_form_of_the_contract() -> None:
    disks = "  io_scheduler: {ssd: none, rotational: mq-deadline}\n"
    profile = _check(f"{HEAD}  vm.swappiness: 1\n{disks}  numad: off\npersist: true\n")
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
    # Under a name that the checkout's own ./configs lacks, which comes first.
    own = tmp_path / "tuning" / "mine.yml"
    own.parent.mkdir()
    own.write_text(HEAD + "  numad: off\n")
    places = standard_places({"ORCHESTRATE_CONFIG": str(tmp_path)}, home=Path("/home/op"))
    assert find(Wanted.TUNING, "mine", places) == own
    with pytest.raises(ConfigError, match="there is no tuning profile 'riac'") as caught:
        find(Wanted.TUNING, "riac", places)
    assert "did you mean riak?" in str(caught.value)
