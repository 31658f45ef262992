from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables import registry, tuned_profiles
from orchestrator.hosts.tunables.tuned import TUNED
from orchestrator.hosts.tunables.tuned_profiles import Profile
from orchestrator.model.host_facts import FileText, HostFacts, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import FileChange, TunableState, TunedChange, TuningSetting, Verdict
from tests.fakes.tuned_hosts import current, profile, rhel6, rhel7, setting, with_files

OWN = "/etc/tuned/orchestrate/tuned.conf"
BASE = "/usr/lib/tuned/throughput-performance/tuned.conf"
THP = setting("transparent_hugepage.enabled", "never")


def check(host: HostFacts, *settings: TuningSetting) -> TunableState:
    line = setting("tuned", "override")
    return TUNED.check(host, line, profile(line, *settings))


def text_of(state: TunableState) -> str:
    return next(str(change.wanted) for change in state.changes if isinstance(change, FileChange))


def based(text: FileText, **files: FileText) -> HostFacts:
    return with_files(rhel7(), **{BASE: text}, **files)


def test_a_profile_that_contradicts_is_overridden_and_the_switch_comes_last() -> None:
    state = check(rhel7(), THP)
    assert state.verdict is Verdict.DRIFT
    assert [type(change) for change in state.changes] == [FileChange, TunedChange]
    assert state.changes[1] == TunedChange(found="throughput-performance", wanted="orchestrate")
    assert "include=throughput-performance\n\n[vm]\ntransparent_hugepages=never\n" in text_of(state)
    assert "transparent_hugepages: always instead of never" in state.detail


def test_what_it_does_not_contradict_it_is_left_for() -> None:
    state = check(rhel7(), setting("vm.zone_reclaim_mode", "0"))
    assert (state.verdict, state.changes) == (Verdict.OK, ())


def test_tuned_comes_before_what_it_would_undo() -> None:
    wanted = profile(THP, setting("tuned", "override"))
    states = registry.standing(rhel7(), wanted).states
    assert [state.tunable for state in states] == ["tuned", "transparent_hugepage.enabled"]


def test_huge_pages_on_the_command_line_are_out_of_tuned_s_hands() -> None:
    host = replace(rhel7(), command_line=("transparent_hugepage=never",))
    assert check(host, THP).changes == ()
    assert check(host, THP, setting("vm.swappiness", "1")).changes != ()


@pytest.mark.parametrize(
    "changes",
    [
        {"tuned": None},
        {"services": {"tuned": ServiceFacts(present=True, running=False, enabled=False)}},
    ],
)
def test_no_active_profile_is_nothing_to_do(changes: dict[str, object]) -> None:
    assert check(replace(rhel7(), **changes), THP).verdict is Verdict.NOT_APPLICABLE  # type: ignore[arg-type]


def test_a_stopped_tuned_that_starts_at_boot_is_overridden() -> None:
    services = {"tuned": ServiceFacts(present=True, running=False, enabled=True)}
    assert check(replace(rhel7(), services=services), THP).verdict is Verdict.DRIFT


@pytest.mark.parametrize("text", [None, Unknown(reason="denied")])
def test_a_profile_that_is_not_known_is_never_taken_for_harmless(text: FileText) -> None:
    state = check(based(text), THP)
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert check(replace(rhel7(), tuned=Unknown(reason="no bus")), THP).verdict is Verdict.UNKNOWN


def test_included_profiles_count_and_the_later_one_wins() -> None:
    included = "[vm]\ntransparent_hugepages=always\n[sysctl]\nvm.swappiness=5\n"
    host = based(
        "[main]\ninclude=balanced\n[vm]\ntransparent_hugepages=never\n",
        **{"/usr/lib/tuned/balanced/tuned.conf": included},
    )
    assert check(host, THP).changes == ()
    assert "vm.swappiness: 5 instead of 1" in check(host, setting("vm.swappiness", "1")).detail


def test_profiles_are_read_as_tuned_reads_them() -> None:
    host = based(
        "[main]\ninclude=-absent, looped\n"
        "[a]\ntype=vm\ntransparent_hugepage=madvise # why\n"
        "[b]\ntype=sysctl\nreplace=true\nvm.swappiness=3\n"
        "[off]\ntype=vm\nenabled=false\ntransparent_hugepages=always\n",
        **{
            "/usr/lib/tuned/looped/tuned.conf": "[main]\ninclude=throughput-performance\n"
            "[b]\ntype=sysctl\nvm.zone_reclaim_mode=1\n",
            "/etc/tuned/looped/tuned.conf": "[main]\ninclude=throughput-performance\n"
            "[b]\ntype=sysctl\nvm.zone_reclaim_mode=2\n",
        },
    )
    active = tuned_profiles.active(host)
    assert isinstance(active, Profile)
    assert active.huge_pages() == "madvise"
    assert active.sysctl("vm.swappiness") == "3"
    assert active.sysctl("vm.zone_reclaim_mode") is None


def test_several_active_profiles_are_included_in_their_order() -> None:
    host = replace(
        with_files(rhel7(), **{"/etc/tuned/mine/tuned.conf": "[sysctl]\nvm.swappiness=1\n"}),
        tuned="throughput-performance mine",
    )
    state = check(host, THP, setting("vm.swappiness", "1"))
    assert "include=throughput-performance,mine\n" in text_of(state)
    assert "swappiness" not in text_of(state)


def test_our_disks_leave_its_section_with_all_its_other_choices() -> None:
    base = "[big]\ntype=disk\ndevices=sd*\nreadahead=>4096\napm=255\n[sysctl]\nvm.swappiness=1\n"
    state = check(based(base), setting("read_ahead_kb", "128"))
    assert text_of(state).split("\n\n")[1:] == [
        "[big]\ntype=disk\ndevices=sd*,!sdb",
        "[orchestrate_big_sdb]\ntype=disk\ndevices=sdb\nreadahead=128\napm=255\n",
    ]


def test_a_path_that_it_writes_itself_is_overridden_as_such() -> None:
    defrag = "/sys/kernel/mm/transparent_hugepage/defrag"
    state = check(based(f"[sysfs]\n{defrag}=always\n"), setting("transparent_hugepage.defrag", "never"))
    assert f"[sysfs]\n{defrag}=never\n" in text_of(state)


def test_at_least_is_no_contradiction_to_more() -> None:
    host = based("[sysctl]\nvm.max_map_count=9999999\n")
    assert check(host, setting("vm.max_map_count", "262144")).changes == ()
    assert check(based("[sysctl]\nvm.max_map_count=9\n"), setting("vm.max_map_count", "262144")).changes != ()


def test_the_new_layout_has_our_profile_where_tuned_looks_for_it() -> None:
    text = str(rhel7().files[BASE])
    host = with_files(
        rhel7(), **{BASE: None, "/usr/lib/tuned/profiles/throughput-performance/tuned.conf": text}
    )
    host = replace(host, files={path: value for path, value in host.files.items() if path != BASE})
    change = check(host, THP).changes[0]
    assert isinstance(change, FileChange)
    assert change.path == "/etc/tuned/profiles/orchestrate/tuned.conf"


def test_our_own_profile_is_written_anew_from_the_one_that_it_includes() -> None:
    first = check(rhel7(), THP)
    ours = replace(with_files(rhel7(), **{OWN: text_of(first)}), tuned="orchestrate")
    assert check(ours, THP).verdict is Verdict.OK
    second = check(ours, THP, setting("vm.swappiness", "1"))
    assert "include=throughput-performance\n" in text_of(second)
    assert "transparent_hugepages=never" in text_of(second)
    assert "vm.swappiness=1" in text_of(second)


def test_nothing_is_switched_where_nothing_is_to_last() -> None:
    line = setting("tuned", "override")
    assert TUNED.check(rhel7(), line, profile(line, THP, persist=False)).changes == ()


def test_ktune_of_rhel_6_hands_over_to_what_comes_after_it() -> None:
    state = check(rhel6(), THP)
    assert (state.verdict, state.changes) == (Verdict.OK, ())
    assert "before rc.local" in state.detail
    odd = with_files(rhel6(), **{"/etc/sysconfig/ktune": '#SYSCTL_POST="/etc/sysctl.conf"\n'})
    assert check(odd, THP).verdict is Verdict.UNKNOWN
    assert check(current(), THP).verdict is Verdict.NOT_APPLICABLE


def test_words_of_a_profile() -> None:
    assert TUNED.valid(setting("tuned", "off")) == "must be override"
