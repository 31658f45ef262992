"""Each tunable against the facts of hosts: its verdict, what it would write, its words and its boot line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.choices import parse
from orchestrator.hosts.tunables.disks import chosen
from orchestrator.hosts.tunables.erlang import schedulers
from orchestrator.hosts.tunables.kernel_parameters import PARAMETERS
from orchestrator.hosts.tunables.numbers import is_number
from orchestrator.hosts.tunables.registry import RULES, TUNABLES
from orchestrator.model.host_facts import BlockDevice, FileText, HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BlockChange,
    FileChange,
    HostTuning,
    Reload,
    ServiceChange,
    TunableState,
    ValueChange,
    Verdict,
    Wanted,
)
from tests.fakes.tuned_hosts import THP, THP_RHEL6, current, profile, rhel6, rhel7, setting, with_files

DENIED = Unknown(reason="denied")
OK, DRIFT, UNKNOWN, NONE = Verdict.OK, Verdict.DRIFT, Verdict.UNKNOWN, Verdict.NOT_APPLICABLE
Files = Mapping[str, FileText]


def check(
    name: str,
    wanted: Wanted,
    host: HostFacts,
    *,
    files: Files | None = None,
    devices: dict[str, str] | None = None,
    persist: bool = True,
    disks: object = None,
    **facts: object,
) -> TunableState:
    """The state of one tunable on a host with other facts and files; `devices` is the profile's."""
    line = setting(name, wanted)
    if disks is not None:
        facts["devices"] = disks
    changed = replace(with_files(host, **(files or {})), **facts)
    return TUNABLES[name].check(changed, line, profile(line, devices=devices, persist=persist))


def written(state: TunableState) -> dict[str, str | None]:
    """The values, lines and texts (without their first line) that it would write, by path."""
    found: dict[str, str | None] = {}
    for change in state.changes:
        match change:
            case ValueChange(path=path, wanted=value):
                found[path] = value
            case FileChange(path=path, wanted=text):
                found[path] = None if text is None else text.partition("\n")[2]
            case BlockChange(path=path, wanted=lines):
                found[path] = lines
    return found


def verdict_and_changes(subtests: pytest.Subtests, rows: list[tuple[TunableState, Verdict, object]]) -> None:
    """Each state has this verdict. A text is part of its detail, and nothing is written; else this is."""
    for number, (state, verdict, expected) in enumerate(rows):
        with subtests.test(number=number, tunable=state.tunable, expected=expected):
            assert state.verdict is verdict, state
            if isinstance(expected, str):
                assert state.changes == ()
                assert expected in state.detail
            else:
                assert written(state) == expected


# Disks.

SSD_OR_NOT = {"ssd": "none", "rotational": "mq-deadline"}


def queue(*names: str, file: str = "scheduler") -> list[str]:
    return [f"/sys/block/{name}/queue/{file}" for name in names]


def test_the_scheduler_is_chosen_from_what_the_disk_offers(subtests: pytest.Subtests) -> None:
    for wanted, offered, choice in [
        ("none", "none mq-deadline kyber bfq", "none"),
        ("none", "noop deadline cfq", "noop"),
        ("noop", "none mq-deadline", "none"),
        ("noop", "noop deadline cfq", "noop"),
        ("deadline", "none mq-deadline", "mq-deadline"),
        ("mq-deadline", "noop deadline cfq", "deadline"),
        ("cfq", "noop deadline cfq", "cfq"),
        ("cfq", "none mq-deadline kyber bfq", None),
        ("kyber", "none mq-deadline", None),
    ]:
        with subtests.test(wanted=wanted, offered=offered):
            assert chosen(wanted, tuple(offered.split())) == choice


def test_io_scheduler_of_disks(subtests: pytest.Subtests) -> None:
    (scheduler,) = queue("sdb")
    nvme, turning = queue("nvme0n1", "sdc")
    unknown_kind = (BlockDevice(name="sdb", data_paths=("/data",)),)
    paths = [BlockDevice(name=name, roles=("path",), rotational=True) for name in ("sdb", "sdc")]
    multipath = (BlockDevice(name="dm-0", roles=("top", "multipath"), rotational=True), *paths)
    own = {"/sys/block/dm-0/queue/scheduler": "noop [deadline] cfq\n"}
    name = "io_scheduler"
    offered = "nvme0n1: cfq is not offered: none mq-deadline kyber [bfq]"
    rows: list[tuple[TunableState, Verdict, object]] = [
        (check(name, "cfq", current()), UNKNOWN, offered),
        (check(name, "deadline", rhel7(), files={scheduler: "none\n"}), NONE, ""),
        # A multipath disk has a scheduler of its own, and its paths have none to set.
        (check(name, "noop", rhel7(), disks=multipath), NONE, ""),
        (check(name, "noop", rhel7(), files=own, disks=multipath), DRIFT, dict.fromkeys(own, "noop")),
        # The profile knows better than the kernel what a disk is.
        (check(name, SSD_OR_NOT, current()), DRIFT, {nvme: "none", turning: "mq-deadline"}),
        (check(name, SSD_OR_NOT, current(), devices={"sdc": "ssd"}), DRIFT, {nvme: "none", turning: "none"}),
        # A disk of no known kind is unknown, unless one value is for all.
        (check(name, SSD_OR_NOT, rhel7(), disks=unknown_kind), UNKNOWN, ""),
        (check(name, "noop", rhel7(), disks=unknown_kind), DRIFT, {scheduler: "noop"}),
        (
            check(name, SSD_OR_NOT, rhel7(), disks=unknown_kind, devices={"sdb": "ssd"}),
            DRIFT,
            {scheduler: "noop"},
        ),
        # A kind that the profile does not name is left alone.
        (check(name, {"ssd": "none"}, current()), DRIFT, {nvme: "none"}),
        (check(name, {"rotational": "noop"}, rhel7()), NONE, ""),
        (check(name, "noop", rhel7(), disks=Unknown(reason="no sysfs")), UNKNOWN, "no sysfs"),
        (check(name, "noop", rhel7(), disks=(), data_paths=()), UNKNOWN, "data"),
        (check(name, "noop", rhel7(), disks=(), data_paths=("/data",)), NONE, "disk"),
    ]
    verdict_and_changes(subtests, rows)
    both = check(name, {"ssd": "none", "rotational": "noop"}, rhel7(), disks=())
    assert both.wanted == "ssd: none, rotational: noop"


def test_read_ahead_kb_is_that_of_the_device_of_the_file_system() -> None:
    disks = (
        BlockDevice(name="dm-3", roles=("top",), rotational=True, data_paths=("/data",)),
        BlockDevice(name="sdb", roles=("leaf",), rotational=False, data_paths=("/data",)),
        BlockDevice(name="sdc", roles=("leaf",), rotational=True, data_paths=("/data",)),
    )
    files = dict.fromkeys(queue("sdb", "sdc", "dm-3", file="read_ahead_kb"), "4096\n")
    # The profile knows better where it names all disks of the data, as in the boot script.
    for named, value in [({}, "128"), ({"sdb": "ssd", "sdc": "ssd"}, "8"), ({"sdc": "ssd"}, "128")]:
        wanted = {"ssd": "8", "rotational": "128"}
        found = check("read_ahead_kb", wanted, rhel7(), files=files, disks=disks, devices=named)
        assert written(found) == dict.fromkeys(queue("dm-3", file="read_ahead_kb"), value)
        assert found.wanted == f"{value} (dm-3)"


def test_nr_requests_is_written_again_after_the_scheduler() -> None:
    both = profile(setting("io_scheduler", "noop"), setting("nr_requests", "128"), persist=False)
    found = TUNABLES["nr_requests"].check(rhel7(), both.settings[1], both)
    assert written(found) == dict.fromkeys(queue("sdb", file="nr_requests"), "128")
    assert check("nr_requests", "128", rhel7(), persist=False).changes == ()


# Transparent huge pages.


def test_choices_of_a_file_of_the_kernel(subtests: pytest.Subtests) -> None:
    for text, word, offered, bracketed in [
        ("always [madvise] never\n", "madvise", "always madvise never", True),
        ("always defer [defer+madvise] never", "defer+madvise", "always defer defer+madvise never", True),
        ("[yes] no\n", "yes", "yes no", True),
        ("noop deadline [cfq] \n", "cfq", "noop deadline cfq", True),
        ("none\n", "none", "none", False),
        ("[none]", "none", "none", True),
        ("[none] mq-deadline kyber bfq", "none", "none mq-deadline kyber bfq", True),
        ("1\n", "1", "1", False),
        ("a b\n", None, "a b", False),
        ("\n", None, "", False),
    ]:
        with subtests.test(text=text):
            choices = parse(text)
            found = (choices.current, choices.offered, choices.bracketed)
            assert found == (word, tuple(offered.split()), bracketed)


def test_transparent_hugepage(subtests: pytest.Subtests) -> None:
    enabled, defrag, khugepaged = (
        f"transparent_hugepage.{name}" for name in ("enabled", "defrag", "khugepaged_defrag")
    )
    wrong = "[always] madvise never\n"
    both = {f"{folder}/enabled": "never" for folder in (THP, THP_RHEL6)}
    verdict_and_changes(
        subtests,
        [
            (check(enabled, "never", rhel6(), files={f"{THP}/enabled": wrong}), DRIFT, both),
            (check(defrag, "defer+madvise", rhel7()), UNKNOWN, "defer+madvise is not offered"),
            (check(enabled, "never", replace(current(), files={})), NONE, ""),
            (check(enabled, "never", current(), files={f"{THP}/enabled": DENIED}), UNKNOWN, "denied"),
            *(
                (check(khugepaged, wanted, host), DRIFT, {f"{folder}/khugepaged/defrag": word})
                for wanted in ("0", "no")
                for host, folder, word in ((rhel6(), THP_RHEL6, "no"), (current(), THP, "0"))
            ),
        ],
    )


def test_a_size_of_huge_pages_may_follow_or_be_as_wanted(subtests: pytest.Subtests) -> None:
    path = f"{THP}/hugepages-64kB/enabled"
    for word, wanted, value in [
        ("inherit", "never", None),
        ("never", "never", None),
        ("always", "never", "never"),
        ("madvise", "never", "never"),
        ("never", "always", None),
        ("always", "madvise", "madvise"),
    ]:
        with subtests.test(word=word, wanted=wanted):
            text = "always inherit madvise never".replace(word, f"[{word}]")
            state = check("transparent_hugepage.enabled", wanted, current(), files={path: text})
            assert written(state).get(path) == value


# Parameters of the kernel.


def test_kernel_parameters(subtests: pytest.Subtests) -> None:
    def swappiness(files: Files | None = None) -> TunableState:
        return check("vm.swappiness", "1", current(), files=files)

    def map_count(found: str) -> TunableState:
        return check("vm.max_map_count", "262144", current(), files={maps: found})

    def kept_free(memory: int) -> TunableState:
        return check("vm.min_free_kbytes", "1048576", current(), memory=memory)

    path, maps, free = (f"/proc/sys/vm/{name}" for name in ("swappiness", "max_map_count", "min_free_kbytes"))
    reclaim = {"/proc/sys/vm/zone_reclaim_mode": None}
    # On cgroup v1 a running service has a value of its own.
    folder = "/sys/fs/cgroup/memory/system.slice"
    own = [f"{folder}/memory.swappiness", f"{folder}/elasticsearch.service/memory.swappiness"]
    verdict_and_changes(
        subtests,
        [
            (swappiness(), DRIFT, {path: "1"}),
            (swappiness({path: "1\n", **dict.fromkeys(own, "60\n")}), DRIFT, dict.fromkeys(own, "1")),
            (swappiness(dict.fromkeys((path, *own), "1\n")), OK, ""),
            (swappiness({path: "1 2 3\n"}), UNKNOWN, "could not be read"),
            (swappiness({path: ""}), UNKNOWN, "could not be read"),
            (swappiness({path: DENIED}), UNKNOWN, "could not be read"),
            (check("vm.zone_reclaim_mode", "0", rhel7(), files=reclaim), NONE, ""),
            # At least so much is never lowered.
            (map_count("65530"), DRIFT, {maps: "262144"}),
            *((map_count(found), OK, "") for found in ("262144", "1048576", "2147483642")),
            (kept_free(8 << 30), DRIFT, {free: "419430"}),
            (kept_free(0), UNKNOWN, ""),
        ],
    )
    assert "held to 5% of this host's memory" in kept_free(8 << 30).detail


# Services and their limits.


def numad(host: HostFacts, *, persist: bool = True, **mode: bool) -> TunableState:
    services = {"numad": ServiceFacts(present=True, **mode)}
    return check("numad", "off", host, persist=persist, services=services)


def test_numad_is_stopped_disabled_and_masked(subtests: pytest.Subtests) -> None:
    masked, comes = "off (stopped, masked)", "another unit can start it"
    for host, mode, persist, steps, wanted, detail in [
        (current(), "running enabled", True, ["enabled", "masked"], masked, ""),
        (current(), "enabled", True, ["masked"], masked, ""),
        (current(), "running masked", True, ["masked"], masked, ""),
        (current(), "running", True, ["", "masked"], masked, comes),
        (current(), "", True, ["masked"], masked, comes),
        (current(), "masked", True, [], masked, ""),
        # Where nothing is to last, it is only stopped; it may come back.
        (current(), "running enabled", False, ["enabled"], "off (stopped)", ""),
        (current(), "running", False, [""], "off (stopped)", ""),
        # An init script cannot be masked.
        (rhel6(), "running enabled", True, ["enabled", ""], "off (stopped, disabled)", ""),
        (rhel6(), "enabled", True, [""], "off (stopped, disabled)", ""),
        (rhel6(), "", True, [], "off (stopped, disabled)", ""),
    ]:
        with subtests.test(init=host.init, mode=mode, persist=persist):
            state = numad(host, persist=persist, **dict.fromkeys(mode.split(), True))
            modes = [change.wanted for change in state.changes if isinstance(change, ServiceChange)]
            names = ("running", "enabled", "masked")
            assert [" ".join(name for name in names if getattr(one, name)) for one in modes] == steps
            assert state.verdict is (DRIFT if steps else OK)
            assert state.wanted == wanted
            assert detail in state.detail
            assert bool(state.detail) is bool(detail)


def test_services_that_are_absent_unknown_or_tuned(subtests: pytest.Subtests) -> None:
    absent = {"numad": ServiceFacts(present=False)}
    verdict_and_changes(
        subtests,
        [
            (check("numad", "off", current(), services=absent), NONE, ""),
            (check("numad", "off", current(), services={}), UNKNOWN, ""),
            (check("numad", "off", current(), services={"numad": DENIED}), UNKNOWN, "denied"),
            (check("tuned", "override", current()), NONE, ""),  # of an old profile
        ],
    )


OPEN, LOCKED = "Max open files", "Max locked memory"
DROP_IN = "/etc/systemd/system/elasticsearch.service.d/zz-orchestrate-limits.nofile.conf"


def test_limits_of_the_unit(subtests: pytest.Subtests) -> None:
    def nofile(limits: dict[str, str], wanted: str = "65536", files: Files | None = None) -> TunableState:
        return check("limits.nofile", wanted, current(), files=files, limits=limits)

    def of_pam(text: str) -> TunableState:
        return check("limits.nofile", "65536", rhel6(), files={"/etc/security/limits.conf": text})

    low = {"LimitNOFILE": "9"}
    (made,) = nofile(low).changes
    assert isinstance(made, FileChange)
    assert made.reload is Reload.SYSTEMD, "a drop-in counts after a reload"
    text = {DROP_IN: "[Service]\nLimitNOFILE=65536\n"}
    endless = {DROP_IN.replace("nofile", "memlock"): "[Service]\nLimitMEMLOCK=infinity\n"}
    ours = "/etc/security/limits.d/90-orchestrate-limits"
    verdict_and_changes(
        subtests,
        [
            (nofile({"LimitNOFILE": "65535"}, "65535"), OK, ""),
            (nofile({"LimitNOFILE": "65535"}), DRIFT, text),
            (nofile({"LimitNOFILE": "infinity"}), OK, ""),
            (nofile({"LimitNOFILE": "18446744073709551615"}), OK, ""),
            (
                check("limits.memlock", "unlimited", current(), limits={"LimitMEMLOCK": str(2**64 - 1)}),
                OK,
                "",
            ),
            # The soft limit is the one that a process starts with.
            (nofile({"LimitNOFILE": "524288", "LimitNOFILESoft": "1024"}), DRIFT, text),
            (nofile({}), UNKNOWN, "systemd shows no limits"),
            # A drop-in after ours is named, and nothing is written again.
            (nofile(low, files={DROP_IN: made.wanted}), UNKNOWN, "a file after it sets another limit"),
            (check("limits.memlock", "unlimited", current()), DRIFT, endless),
            (check("limits.nofile", "65536", current(), unit=""), NONE, ""),
            (check("limits.nofile", "65536", current(), init=InitSystem.OTHER), NONE, ""),
            # RHEL 6 has a file of PAM; what comes after it is named.
            (of_pam("elasticsearch - nofile unlimited\n"), OK, "/etc/sysconfig/elasticsearch comes after it"),
            (
                of_pam("* - nofile 9\nriak - nofile unlimited\n"),
                DRIFT,
                {f"{ours}.nofile.conf": "elasticsearch - nofile 65536\n"},
            ),
            (
                check("limits.memlock", "1048576", rhel6()),
                DRIFT,
                {f"{ours}.memlock.conf": "elasticsearch - memlock 1024\n"},
            ),
        ],
    )


def test_limits_of_the_running_process_count_until_its_restart(subtests: pytest.Subtests) -> None:
    for process, unit, verdict, shown in [
        ("4096", "65535", OK, "4096, from the next start on 65535"),
        ("65535", "65535", OK, "65535"),
        ("65535", "1024", DRIFT, "65535, from the next start on 1024"),
        ("1024", "1024", DRIFT, "1024"),
        ("unlimited", "infinity", OK, "unlimited"),
    ]:
        with subtests.test(process=process, unit=unit):
            limits = {"limits": {"LimitNOFILE": unit}, "process_limits": {OPEN: process}}
            state = check("limits.nofile", "65535", current(), **limits)
            assert (state.verdict, state.running, state.at_boot) == (verdict, shown, unit)
            assert bool(state.changes) is (unit == "1024")
            assert ("until its service restarts" in state.detail) is (process in {"4096", "1024"})
    for name, option, process in [
        ("nofile", "NOFILE", {OPEN: "1024"}),
        ("memlock", "MEMLOCK", {LOCKED: "65536"}),
    ]:
        limits = {"limits": {f"Limit{option}": "infinity"}, "process_limits": process}
        state = check(f"limits.{name}", "131072", current(), **limits)
        tuning = HostTuning(states=(state,))
        assert (tuning.drifted, tuning.restart_needed, tuning.unread) == ((), (state,), ()), name
    state = check("limits.nofile", "65535", current(), process_limits=DENIED)
    assert (state.verdict, state.running) == (OK, "65535, from the next start on")
    assert state.detail == "limits of the running process: denied"


# What is particular to a store: huge pages of a JVM, Erlang's schedulers.

PAGES = "/proc/sys/vm/nr_hugepages"
OPTIONS = "/etc/elasticsearch/jvm.options.d/"


def test_jvm_huge_pages(subtests: pytest.Subtests) -> None:
    def jvm(files: Files | None = None, wanted: str = "1000") -> TunableState:
        return check("jvm.huge_pages", wanted, current(), files=files)

    made = jvm()
    value, option = made.changes
    # The pages come before the option that needs them.
    assert isinstance(value, ValueChange)
    assert isinstance(option, FileChange)
    assert option.path.startswith(OPTIONS)
    other = {path.replace("elasticsearch", "opensearch"): text for path, text in written(made).items()}
    enough, three_quarters = f"{OPTIONS}mine.options", (256 << 10) // 2 * 3 // 4
    verdict_and_changes(
        subtests,
        [
            # More pages than wanted are somebody's.
            (jvm({PAGES: "2000\n", enough: "-XX:+UseLargePages\n"}), OK, ""),
            (jvm({OPTIONS: None}), NONE, ""),
            (jvm({OPTIONS: None, "/etc/opensearch/jvm.options.d/": ""}), DRIFT, other),
            (jvm({OPTIONS: DENIED}), UNKNOWN, "could not be read"),
            (jvm({PAGES: None}), NONE, ""),
            (jvm({PAGES: DENIED}), UNKNOWN, ""),
            (jvm({"/proc/meminfo": "nothing"}), UNKNOWN, ""),
            (jvm(wanted=str(three_quarters)), DRIFT, {**written(made), PAGES: str(three_quarters)}),
            (jvm(wanted=str(three_quarters + 1)), UNKNOWN, "75%"),
        ],
    )


def test_one_scheduler_less_for_every_six_cpus() -> None:
    counts = {1: 1, 4: 4, 6: 5, 12: 10, 16: 14, 24: 20, 32: 27}
    assert {cpus: schedulers(cpus) for cpus in counts} == counts


def test_erlang_schedulers_go_to_the_file_that_counts(subtests: pytest.Subtests) -> None:
    conf, args, app, advanced = (
        f"/etc/riak/{name}" for name in ("riak.conf", "vm.args", "app.config", "advanced.config")
    )
    right = "erlang.schedulers.total = 20\nerlang.schedulers.online = 20"
    plus_s = '[{{vm_args, [{{"+S", "{}"}}]}}].'.format

    def erlang(files: Files, wanted: str = "auto") -> TunableState:
        return check("erlang.schedulers", wanted, replace(current(), cpus=24), files={conf: None, **files})

    eight = right.replace("20", "8")
    verdict_and_changes(
        subtests,
        [
            (erlang({conf: "x = 1\n"}), DRIFT, {conf: right}),
            (erlang({conf: f"{right}\nerlang.schedulers.total = 24\n"}), DRIFT, {conf: right}),
            (erlang({conf: "erlang.schedulers.total = 20\n"}), DRIFT, {conf: right}),
            (erlang({conf: "# " + right.replace("\n", "\n# ")}), DRIFT, {conf: right}),
            (erlang({args: "-name riak@a\n+S 24:24\n"}), DRIFT, {args: "+S 20:20"}),
            # Both old files beside the new one win over it.
            (erlang({conf: right, args: "+K true\n", app: "[]."}), DRIFT, {args: "+S 20:20"}),
            (erlang({conf: ""}, "8"), DRIFT, {conf: eight}),
            (erlang({conf: right}), OK, ""),
            (erlang({args: "+S 20\n"}), OK, ""),
            (erlang({args: "+S 24:24\n+S 20:20\n"}), OK, ""),
            (erlang({conf: "x = 1\n", advanced: plus_s("20:20")}), OK, ""),
            (erlang({conf: right, advanced: '%% {"+S", "24:24"}\n[].'}), OK, ""),
            # It wins, and is never changed.
            (erlang({conf: right, advanced: plus_s("24:24")}), UNKNOWN, advanced),
            (erlang({conf: right, advanced: DENIED}), UNKNOWN, advanced),
            (erlang({}), NONE, ""),
            (erlang({conf: DENIED}), UNKNOWN, f"{conf} could not be read"),
        ],
    )


# Words of a profile, and lines of the boot script.


def test_lines_of_the_boot_script(subtests: pytest.Subtests) -> None:
    for name, wanted, line in [
        ("io_scheduler", "noop", "disks scheduler noop noop"),
        ("read_ahead_kb", {"rotational": "64"}, "disks read_ahead_kb - 64"),
        ("vm.swappiness", "1", "parameter vm.swappiness 1"),
        ("vm.max_map_count", "262144", "at_least vm.max_map_count 262144"),
        ("vm.min_free_kbytes", "1048576", "at_least vm.min_free_kbytes 1048576 5"),
    ]:
        with subtests.test(name):
            assert TUNABLES[name].line(setting(name, wanted)) == line


def test_words_of_a_profile(subtests: pytest.Subtests) -> None:
    schedulers_ = "must be one of none, noop, deadline, mq-deadline, cfq, bfq, kyber"
    kinds = "must be one value, or one for each of ssd, rotational"
    pages = "transparent_hugepage"
    for name, wanted, wrong in [
        ("io_scheduler", "none", None),
        ("io_scheduler", {"ssd": "none"}, None),
        ("io_scheduler", "nope", schedulers_),
        ("io_scheduler", {"ssd": "nope"}, schedulers_),
        ("io_scheduler", {"nvme": "none"}, kinds),
        ("io_scheduler", {}, kinds),
        ("read_ahead_kb", "128", None),
        ("read_ahead_kb", "130", "must be a whole number from 0 to 65536, in steps of 4 (a page)"),
        ("nr_requests", "3", "must be a whole number from 4 to 2048"),
        ("nr_requests", "many", "must be a whole number from 4 to 2048"),
        (f"{pages}.enabled", "madvise", None),
        (f"{pages}.enabled", "defer", "madvise"),
        (f"{pages}.enabled", {"ssd": "madvise"}, "must"),
        (f"{pages}.defrag", "defer+madvise", None),
        (f"{pages}.defrag", "0", "defer+madvise"),
        (f"{pages}.defrag", {"ssd": "never"}, "must"),
        (f"{pages}.khugepaged_defrag", "no", None),
        (f"{pages}.khugepaged_defrag", "never", "no"),
        ("numad", "off", None),
        ("numad", "on", "must be off"),
        ("tuned", "off", None),
        ("tuned", "override", "`override` is not needed"),
        ("limits.nofile", "65536", None),
        ("limits.nofile", "unlimited", "must be a whole number"),
        ("limits.nofile", "0", "must be a whole number"),
        ("limits.memlock", "unlimited", None),
        ("limits.memlock", "64G", "must be a whole number of bytes, or unlimited"),
        ("erlang.schedulers", "auto", None),
        ("erlang.schedulers", "20", None),
        ("erlang.schedulers", "0", "must"),
        ("erlang.schedulers", "20:20", "must"),
        ("jvm.huge_pages", "20", None),
        ("jvm.huge_pages", "auto", "must"),
        ("jvm.huge_pages", "0", "must"),
    ]:
        with subtests.test(name=name, wanted=wanted):
            said = RULES[name](setting(name, wanted))
            assert said is None if wrong is None else wrong in str(said)
    for parameter in PARAMETERS:
        with subtests.test(parameter.name):
            low, high = parameter.allowed.start, parameter.allowed.stop - 1
            assert parameter.valid(setting(parameter.name, str(high))) is None
            for number in (str(high + 1), "-1", "many", "1.5", ""):
                said = parameter.valid(setting(parameter.name, number))
                assert said == f"must be a whole number from {low} to {high}"


def test_what_only_python_takes_for_a_number_is_none(subtests: pytest.Subtests) -> None:
    assert is_number("0")
    assert is_number(str(2**64 - 1))
    threes = "\u0663\u0663\u0663"
    for word in ("\u00b2", threes, "1" * 5000, "+1", "1_0", " 1", "1\n", "-1", "0x10", "010", "00", ""):
        with subtests.test(word[:10]):
            assert not is_number(word)
            taken = [name for name, rule in RULES.items() if rule(setting(name, word)) is None]
            assert taken == []
