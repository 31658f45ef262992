"""The next boot as a state of a host: script, part and units. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.model.host import (
    HostFacts,
    InitSystem,
    ServiceFacts,
)
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BOOT,
    FileChange,
    HostTuning,
    ServiceChange,
    ServiceMode,
    TunableState,
    TunedChange,
    TuningProfile,
    ValueChange,
    Verdict,
)
from orchestrator.tuning import boot, tuner
from orchestrator.tuning.boot import BootPlace
from orchestrator.tuning.undoing import Back, Ours, rank, reads_for, standing
from tests.fakes.tuned_hosts import current, profile, rhel6, setting, with_files

PLACE, OTHER = BootPlace(part="prod+es1"), BootPlace(part="other+es9")
PART, OTHER_PART = (boot.part_path(place.part) for place in (PLACE, OTHER))
ORDER = f"{boot.UNIT}.d/prod+es1.conf"
SHARED = (boot.SCRIPT, boot.UNIT, boot.PATH_UNIT)
DISKS = setting("io_scheduler", {"ssd": "none", "rotational": "bfq"})
WANTED = profile(setting("vm.swappiness", "1"), DISKS)
BRIEF = replace(WANTED, persist=False)
DENIED = Unknown(reason="denied")
OFF, ON = (ServiceMode(running=False, enabled=enabled) for enabled in (False, True))
UNIT_OFF = {boot.NAME: ServiceFacts(present=True)}


def compare(host: HostFacts, wanted: TuningProfile = WANTED, place: BootPlace = PLACE) -> HostTuning:
    return tuner.compare(host, wanted, place)


def state(host: HostFacts, place: BootPlace = PLACE, wanted: TuningProfile = WANTED) -> TunableState:
    found = compare(host, wanted, place).states[0]
    assert found.tunable == BOOT
    return found


def files_of(found: TunableState) -> dict[str, FileChange]:
    return {one.path: one for one in found.changes if isinstance(one, FileChange)}


def services_of(found: TunableState) -> list[ServiceChange]:
    return [one for one in found.changes if isinstance(one, ServiceChange)]


def installed(host: HostFacts, place: BootPlace = PLACE, wanted: TuningProfile = WANTED) -> HostFacts:
    """The host once the boot's own changes are made."""
    found = state(host, place, wanted)
    files = {**host.files, **{path: change.wanted for path, change in files_of(found).items()}}
    services = dict(host.services)
    for change in services_of(found):
        mode = change.wanted
        services[change.service] = ServiceFacts(present=True, running=mode.running, enabled=mode.enabled)
    kept = {path: text for path, text in files.items() if text is not None}
    return replace(host, files=kept, services=services)


def serving(host: HostFacts, **services: ServiceFacts | Unknown) -> HostFacts:
    return replace(host, services={**host.services, **services})


def moved(host: HostFacts) -> HostFacts:
    """A disk of its data is not mounted: the path is on the system's disk now."""
    assert isinstance(host.mounts, Mapping)
    return replace(host, mounts={**host.mounts, "/data/slow": "/"})


def unread(host: HostFacts, *paths: str) -> list[HostFacts]:
    """The host with one of these files, or the state of one of our units, unread."""
    services = [serving(host, **{name: DENIED}) for name in boot.SERVICES]
    return [*(with_files(host, **{path: DENIED}) for path in paths), *services]


def test_the_unit_is_bounded_ordered_and_started_with_tuned() -> None:
    lines = boot.SERVICE_UNIT.splitlines()
    after = "After=tuned.service systemd-sysctl.service systemd-tmpfiles-setup.service local-fs.target"
    assert {after, "PartOf=tuned.service", "Type=oneshot", "TimeoutStartSec=30"} <= set(lines)
    assert "WantedBy=multi-user.target tuned.service" in lines
    assert "StartLimitInterval=0" in lines, "it may be started again and again"
    # An active unit would not be started again by tuned's start; a requirement would delay or fail the node.
    assert not any(word in boot.SERVICE_UNIT for word in ("RemainAfterExit", "RequiredBy", "Requires="))
    # tuned writes the values that it found at its stop; its last act is to remove this file.
    assert "PathChanged=/run/tuned/tuned.pid\n" in boot.PATH_UNIT_TEXT
    order = boot.order_text("elasticsearch", {"/data/es": "/data"})
    assert order.splitlines()[1:] == ["[Unit]", "After=data.mount", "Before=elasticsearch.service"]
    assert "sleep 30; kill -KILL" in boot.INIT_TEXT, "an init script is bounded too"
    assert list(files_of(state(rhel6()))) == [PART, boot.SCRIPT, boot.INIT]


def test_mount_units_are_named_as_systemd_names_them() -> None:
    """`systemd-escape --path --suffix=mount` of systemd 252 prints these."""
    for point, unit in {
        "/": "-.mount",
        "/data/.es": "data-.es.mount",
        "/.data": r"\x2edata.mount",
        "/a-b/c:d_e": r"a\x2db-c:d_e.mount",
    }.items():
        order = boot.order_text("elasticsearch", {"/x": point})
        assert f"After={unit}" in order.splitlines(), point


def test_words_of_a_profile_and_of_a_host_are_quoted() -> None:
    path = "/d a$(x)"
    text = boot.part_text("a b", ["parameter x 1", "disks x y z"], {path: "/m'"}, {path: "ssd"})
    assert text.splitlines()[1:] == [
        "unit='a b.service'",
        "parameter x 1",
        """data '/d a$(x)' '/m'"'"'' ssd""",
        "disks x y z",
    ]
    told = files_of(state(current(), wanted=replace(WANTED, devices={"sdc": "ssd"})))[PART].wanted
    assert "data /data/slow /data/slow ssd\n" in str(told), "a kind that the profile names goes with the path"
    assert "data /data/fast /data/fast\n" in str(told)


def test_no_two_nodes_share_a_part() -> None:
    names = [("a", "b"), ("a-b", "c"), ("a", "b-c"), ("", "a+b"), ("a", "riak@b"), ("a", "b/c"), ("a", "b_c")]
    found = [boot.part_name(*one) for one in [*names, ("..", "x")]]
    assert len(set(found)) == len(names) + 1
    assert all(re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9_.@+-]*", name) for name in found), found


def test_at_the_next_boot_is_a_fact_of_script_part_and_unit() -> None:
    def at_boot(host: HostFacts) -> set[str]:
        return {one.at_boot for one in compare(host).states}

    assert at_boot(current()) == {boot.NOT_SET}
    made = installed(current())
    assert at_boot(made) == {boot.SET_BY_US}
    assert (state(made).verdict, state(made).detail) == (Verdict.OK, "")
    for broken in (
        serving(made, **UNIT_OFF),
        with_files(made, **{boot.SCRIPT: None}),
        with_files(made, **{PART: None}),
    ):
        assert at_boot(broken) == {boot.NOT_SET}
        assert state(broken).verdict is Verdict.DRIFT


def test_what_is_shown_of_the_boot_is_what_is_installed() -> None:
    files = files_of(state(current()))
    assert files[boot.SCRIPT].wanted == boot.script_text("")
    assert compare(current()).part == {PART: files[PART].wanted}
    assert compare(installed(current())).part == compare(current()).part
    assert compare(current(), BRIEF).part == {}


def test_what_of_an_installed_boot_script_differs_is_named(subtests: pytest.Subtests) -> None:
    made = installed(current())
    theirs = profile(setting("vm.swappiness", "10"), DISKS)
    broken = "data '/data/es /data\n"
    edited = with_files(made, **{boot.PATH_UNIT: "[Path]\n"})
    for host, detail in [
        (current(), ""),
        (edited, f"edited, or of another version: {boot.PATH_UNIT}"),
        (with_files(made, **{boot.SCRIPT: None}), f"missing: {boot.SCRIPT}"),
        (serving(made, **UNIT_OFF), f"off: {boot.NAME}"),
        # Another operator, with a state database of their own, wanted them.
        (installed(current(), wanted=theirs), f"replaces in {PART}: parameter vm.swappiness 10"),
        # A person broke it.
        (with_files(made, **{PART: broken}), f"replaces in {PART}: {broken.strip()}"),
    ]:
        with subtests.test(detail):
            assert (state(host).verdict, state(host).detail) == (Verdict.DRIFT, detail)


def test_a_unit_that_is_off_or_stopped_is_enabled_and_started() -> None:
    (change,) = services_of(state(serving(installed(rhel6()), **UNIT_OFF)))
    assert change == ServiceChange(service=boot.NAME, found=OFF, wanted=ON)
    # A kill between the two leaves the path unit so: a change of tuned's profile would not run the script.
    stopped = {boot.PATH_NAME: ServiceFacts(present=True, enabled=True)}
    found = state(serving(installed(current()), **stopped))
    runs = ServiceMode(running=True, enabled=True)
    assert found.verdict is Verdict.DRIFT
    assert (boot.PATH_NAME, runs) in [(one.service, one.wanted) for one in services_of(found)]


def test_nothing_is_written_where_the_boot_cannot_be_known(subtests: pytest.Subtests) -> None:
    hosts = [
        replace(current(), init=InitSystem.OTHER),
        with_files(rhel6(), **{boot.INIT: DENIED}),
        *unread(current(), boot.PARTS, *SHARED, ORDER, PART),
    ]
    for number, host in enumerate(hosts):
        with subtests.test(number=number):
            found = state(host)
            assert (found.verdict, found.changes) == (Verdict.UNKNOWN, ())
            assert found.detail


def test_unknown_disks_hold_back_the_lines_of_disks_alone() -> None:
    host = replace(current(), mounts=Unknown(reason="no mountinfo"))
    found = state(host)
    assert (found.verdict, found.detail) == (Verdict.DRIFT, "where the data is mounted: no mountinfo")
    after = installed(host)
    lines = str(after.text(PART)).splitlines()
    assert "parameter vm.swappiness 1" in lines
    assert not [line for line in lines if line.startswith(("disks", "data"))]
    assert (state(after).verdict, state(after).changes) == (Verdict.UNKNOWN, ())
    # A part that is there keeps the lines, byte for byte.
    host = moved(installed(current()))
    other = profile(setting("vm.swappiness", "2"), DISKS)
    after = installed(host, wanted=other)
    assert after.text(PART) == str(host.text(PART)).replace("vm.swappiness 1", "vm.swappiness 2")
    assert state(after, wanted=other).verdict is Verdict.UNKNOWN


def test_data_on_another_file_system_is_not_touched() -> None:
    found = compare(moved(installed(current())))
    assert found.states[0].verdict is Verdict.UNKNOWN
    assert "/data/slow is on the file system of /; it was on that of /data/slow" in found.states[0].detail
    assert not [one for each in found.states for one in each.changes if "/sys/block" in str(one)]
    # A new data path with blanks is not taken for a moved one.
    mounts = {"/data dir/a": "/m", "/data dir/b": "/n"}
    text = boot.part_text("x", ["disks scheduler none bfq"], {"/data dir/a": "/m"}, {})
    host = with_files(replace(current(), mounts=mounts), **{PART: text})
    assert boot.data_moved(host, PLACE) == ""
    assert "/data dir/a" in boot.data_moved(replace(host, mounts={**mounts, "/data dir/a": "/"}), PLACE)


def test_a_value_that_cannot_be_read_stays_in_a_part_that_is_off() -> None:
    """Its part was taken for one that nothing needs, and removed with the script."""
    for wanted in (profile(DISKS), WANTED):
        made = installed(current(), wanted=wanted)
        off = serving(replace(made, devices=Unknown(reason="no sysfs")), **UNIT_OFF)
        assert not [one for one in files_of(state(off, wanted=wanted)).values() if one.wanted is None]
        assert installed(off, wanted=wanted).text(PART) == made.text(PART)


def test_what_no_longer_has_to_last_is_removed(subtests: pytest.Subtests) -> None:
    """Its values came again at each boot: the script knew nothing of the profile."""
    made = installed(current())
    found = state(made, wanted=BRIEF)
    assert (found.verdict, found.wanted, found.at_boot) == (Verdict.DRIFT, boot.NOT_SET, boot.SET_BY_US)
    files = files_of(found)
    assert set(files) == {ORDER, PART, *SHARED}
    assert all(one.found == made.text(path) and one.wanted is None for path, one in files.items())
    # Off before their files are gone, and the part last: a removal that is killed is completed.
    assert [getattr(one, "service", "") for one in found.changes[:2]] == [
        boot.PATH_NAME,
        boot.NAME,
    ]
    assert found.changes[-1] == files[PART]
    assert compare(installed(made, wanted=BRIEF), BRIEF).states[0].tunable != BOOT
    both = installed(made, OTHER)
    assert [getattr(one, "path", "") for one in state(both, wanted=BRIEF).changes] == [ORDER, PART]
    for number, host in enumerate(unread(made, PART, ORDER, *SHARED)):
        with subtests.test(number=number):
            found = state(host, wanted=BRIEF)
            assert (found.verdict, found.changes) == (Verdict.UNKNOWN, ())


def test_another_nodes_later_part_decides_what_lasts(subtests: pytest.Subtests) -> None:
    """The script runs the parts by name, and the last value stays: ours is not the one after a boot."""
    later, earlier = (boot.part_path(name) for name in ("zz+es9", "aa+es9"))
    for path, line, stays in [
        (later, "parameter vm.swappiness 10", False),
        (earlier, "parameter vm.swappiness 10", True),
        (later, "parameter vm.swappiness 1", True),
        (later, "parameter vm.max_map_count 10", True),
    ]:
        with subtests.test(path=path, line=line):
            host = with_files(installed(current()), **{path: f"{boot.HEADER}{line}\n"})
            found = compare(host)
            (swappiness,) = (one for one in found.states if one.tunable == "vm.swappiness")
            at_boot = boot.SET_BY_US if stays else f"{later} sets another value after it"
            assert swappiness.at_boot == at_boot
            assert [one.tunable for one in found.overridden] == ([] if stays else ["vm.swappiness"])


def test_the_script_is_shared_and_stays_for_another_cluster() -> None:
    both = installed(installed(current()), OTHER)
    assert state(both).verdict is Verdict.OK
    second = state(installed(current()), OTHER)
    # Its ledger has to switch the units off, if its part is the last one.
    assert [one.service for one in services_of(second)] == list(boot.SERVICES)
    claims = {path: one for path, one in files_of(second).items() if boot.is_shared(one)}
    assert set(claims) >= {boot.SCRIPT, boot.UNIT}
    # Before this program there was no script: whoever reverts last removes it.
    assert all(one.found is None for one in claims.values())
    theirs = files_of(state(with_files(current(), **{boot.SCRIPT: "theirs\n"})))[boot.SCRIPT]
    assert theirs.undone().wanted == "theirs\n", "a file of others at our path is restored"
    script = claims[boot.SCRIPT]
    undo = (script.undone(),)
    assert standing(both, undo, parts={PART}) == Back(why=f"it stays for {OTHER_PART}")
    alone = replace(both, files={path: text for path, text in both.files.items() if path != OTHER_PART})
    assert standing(alone, undo, parts={PART}) == Ours(change=undo[0])
    assert boot.PARTS in reads_for([script]).files


def test_our_unit_is_off_before_values_are_restored() -> None:
    unit = ServiceChange(service=boot.NAME, found=OFF, wanted=ON)
    removed = ServiceChange(service=boot.NAME, found=ON, wanted=OFF)
    part = FileChange(path=PART, found="x", wanted=None)
    value = ValueChange(path="/proc/sys/vm/swappiness", found="1", wanted="60")
    tuned = TunedChange(found="a", wanted="b")
    assert sorted([removed, value, tuned, part, unit], key=rank) == [part, unit, tuned, value, removed]
    # tuned was started a moment ago: while it runs, the unit is no other program's change.
    runs = {boot.NAME: ServiceFacts(present=True, running=True, enabled=True)}
    made = serving(installed(current()), **runs)
    assert standing(made, (removed,), parts={PART}) == Ours(change=removed)
