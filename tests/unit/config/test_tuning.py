"""Tuning profiles: short and long form, and those that are shipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config.lookup import KindOfFile, find, standard_places
from orchestrator.config.tuning import check_profile, load_profile
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError
from orchestrator.model.tuning import TuningProfile
from tests.fakes.cases import cases
from tests.fakes.plain import plain

NAMES = ("numad", "transparent_hugepage.enabled", "io_scheduler", "vm.swappiness")
STORES = ("cassandra", "elasticsearch", "hadoop", "riak")


RULES = dict.fromkeys(NAMES, lambda _setting: None)


def _check(text: str) -> TuningProfile:
    return check_profile(parse(text, "f.yml"), rules=RULES, name="f")


HEAD = "applies_to: elasticsearch\nsettings:\n"


def test_what_a_profile_means(subtests: pytest.Subtests) -> None:
    """In the order in which tunables are made, whatever the order of the file."""
    for text, expected in cases("config/read/profile.txt"):
        with subtests.test(text):
            profile = _check(text.replace("HEAD\n", HEAD, 1))
            found = [plain(setting) for setting in profile.settings]
            assert [*found, plain(replace(profile, settings=()))] == expected


@pytest.mark.parametrize("store", STORES)
def test_every_value_of_a_shipped_profile_has_reason_and_source(store: str) -> None:
    path = find(KindOfFile.TUNING, store, standard_places({}, home=Path("/home/op")))
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
    assert find(KindOfFile.TUNING, "mine", places) == own
    with pytest.raises(ConfigError, match="there is no tuning profile 'riac'") as caught:
        find(KindOfFile.TUNING, "riac", places)
    assert "did you mean riak?" in str(caught.value)
