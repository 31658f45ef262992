"""Each tunable against the facts of hosts: its verdict, what it would write, its words and its boot line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.model.host import (
    BlockDevice,
    HostFacts,
    InitSystem,
    ServiceFacts,
)
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BlockChange,
    FileChange,
    HostTuning,
    Reload,
    ServiceChange,
    TunableState,
    ValueChange,
    Wanted,
)
from orchestrator.tuning.kernel import KernelParameter
from orchestrator.tuning.registry import RULES, TUNABLES
from orchestrator.tuning.values import chosen, is_number, parse
from tests.fakes.cases import rows
from tests.fakes.tuned_hosts import current, profile, rhel6, rhel7, setting, with_files

HOSTS = {"current": current, "rhel6": rhel6, "rhel7": rhel7}
MODES = ("running", "enabled", "masked")
KEYS = (
    "on set is files facts services devices profile persist writes says modes wanted running at_boot restart"
)


def known(value: Any) -> Any:
    return Unknown(reason="denied") if value == "unread" else value


def service(modes: str) -> ServiceFacts | Unknown:
    if modes == "unread":
        return Unknown(reason="denied")
    return ServiceFacts(present=modes != "absent", **{mode: mode in modes for mode in MODES})


def device(line: str) -> BlockDevice:
    """`NAME [ROLE…] [rotational|solid]`."""
    name, *words = line.split()
    kinds = {"rotational": True, "solid": False}
    rotational = next((kinds[word] for word in words if word in kinds), None)
    roles = tuple(word for word in words if word not in kinds)
    return BlockDevice(name=name, roles=roles, rotational=rotational, data_paths=("/data",))


def host_of(row: dict[str, Any]) -> HostFacts:
    facts = {name: known(value) for name, value in row.get("facts", {}).items()}
    if "init" in facts:
        facts["init"] = InitSystem(facts["init"])
    if "devices" in row:
        facts["devices"] = known(row["devices"])
        if isinstance(facts["devices"], list):
            facts["devices"] = tuple(map(device, row["devices"]))
    if "services" in row:
        facts["services"] = {name: service(modes) for name, modes in row["services"].items()}
    files = {path: known(text) for path, text in row.get("files", {}).items()}
    return replace(with_files(HOSTS[row["on"]](), **files), **facts)


def written(state: TunableState) -> dict[str, str | None]:
    """The values, lines and texts (without their first line) that it would write, by path and in order."""
    found: dict[str, str | None] = {}
    for change in state.changes:
        match change:
            case ValueChange(path=path, wanted=text) | BlockChange(path=path, wanted=text):
                found[path] = text
            case FileChange(path=path, wanted=text, reload=reload):
                found[path] = None if text is None else text.partition("\n")[2]
                # A drop-in counts after a reload.
                assert (reload is Reload.SYSTEMD) is (".service.d/" in path)
    return found


def test_each_tunable_against_the_facts_of_hosts(subtests: pytest.Subtests) -> None:
    for row in rows("tuning/tunables.yml", KEYS):
        with subtests.test(row=row):
            lines = [setting(*item) for item in row["set"].items()]
            wanted = profile(*lines, devices=row.get("profile"), persist=row.get("persist", True))
            state = TUNABLES[lines[0].tunable].check(host_of(row), lines[0], wanted)
            assert state.verdict.value == row["is"]
            services = [change.wanted for change in state.changes if isinstance(change, ServiceChange)]
            modes = [" ".join(mode for mode in MODES if getattr(one, mode)) for one in services]
            assert modes == row.get("modes", [])
            assert list(written(state).items()) == list(row.get("writes", {}).items())
            if "says" in row:
                assert row["says"] in state.detail
                assert bool(state.detail) is bool(row["says"])
            shown = row.keys() & {"wanted", "running", "at_boot"}
            assert {name: getattr(state, name) for name in shown} == {name: row[name] for name in shown}
            if "restart" in row:
                tuning = HostTuning(states=(state,))
                assert (tuning.drifted, tuning.restart_needed, tuning.unread) == ((), (state,), ())


def test_the_word_is_chosen_from_what_the_file_offers(subtests: pytest.Subtests) -> None:
    for wanted, offered, choice in [
        ("none", "none mq-deadline kyber bfq", "none"),
        ("none", "noop deadline cfq", "noop"),
        ("noop", "none mq-deadline", "none"),
        ("deadline", "none mq-deadline", "mq-deadline"),
        ("mq-deadline", "noop deadline cfq", "deadline"),
        ("cfq", "none mq-deadline kyber bfq", None),
        ("no", "1", "0"),
        ("1", "0", "1"),
        ("0", "[yes] no", "no"),
        ("madvise", "[always] never", None),
    ]:
        with subtests.test(wanted=wanted, offered=offered):
            assert chosen(wanted, parse(offered)) == choice


def test_choices_of_a_file_of_the_kernel(subtests: pytest.Subtests) -> None:
    for text, word, offered, bracketed in [
        ("always defer [defer+madvise] never", "defer+madvise", "always defer defer+madvise never", True),
        ("noop deadline [cfq] \n", "cfq", "noop deadline cfq", True),
        ("none\n", "none", "none", False),
        ("[none]", "none", "none", True),
        ("a b\n", None, "a b", False),
        ("\n", None, "", False),
    ]:
        with subtests.test(text=text):
            choices = parse(text)
            found = (choices.current, choices.offered, choices.bracketed)
            assert found == (word, tuple(offered.split()), bracketed)


@pytest.mark.parametrize(
    ("name", "wanted", "line"),
    [
        ("io_scheduler", "noop", "disks scheduler noop noop"),
        ("read_ahead_kb", {"rotational": "64"}, "disks read_ahead_kb - 64"),
        ("vm.swappiness", "1", "parameter vm.swappiness 1"),
        ("vm.min_free_kbytes", "1048576", "at_least vm.min_free_kbytes 1048576 5"),
    ],
)
def test_lines_of_the_boot_script(name: str, wanted: Wanted, line: str) -> None:
    assert TUNABLES[name].line(setting(name, wanted)) == line


def test_words_of_a_profile(subtests: pytest.Subtests) -> None:
    for wrong, settings in rows("tuning/words.yml").items():
        for name, wanted in (item for each in settings for item in each.items()):
            with subtests.test(name=name, wanted=wanted):
                said = RULES[name](setting(name, wanted))
                assert said is None if not wrong else wrong in str(said)
    for parameter in (one for one in TUNABLES.values() if isinstance(one, KernelParameter)):
        with subtests.test(parameter.name):
            low, high = parameter.allowed.start, parameter.allowed.stop - 1
            assert parameter.valid(setting(parameter.name, str(high))) is None
            said = parameter.valid(setting(parameter.name, str(high + 1)))
            assert said == f"must be a whole number from {low} to {high}"


def test_what_only_python_takes_for_a_number_is_none(subtests: pytest.Subtests) -> None:
    assert is_number("0")
    assert is_number(str(2**64 - 1))
    threes = "\u0663\u0663\u0663"
    for word in ("\u00b2", threes, "1" * 5000, "+1", "1_0", " 1", "1\n", "-1", "1.5", "010", "00", ""):
        with subtests.test(word[:10]):
            assert not is_number(word)
            taken = [name for name, rule in RULES.items() if rule(setting(name, word)) is None]
            assert taken == []
