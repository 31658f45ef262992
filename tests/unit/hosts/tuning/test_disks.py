from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.devices import QueueTunable
from orchestrator.hosts.tunables.io_scheduler import IO_SCHEDULER, chosen
from orchestrator.hosts.tunables.queues import READ_AHEAD, REQUESTS
from orchestrator.model.host_facts import BlockDevice, HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import FileChange, Reload, TunableState, ValueChange, Verdict, Wanted
from tests.fakes.tuned_hosts import current, profile, rhel6, rhel7, setting, with_files

SCHEDULER = "/sys/block/sdb/queue/scheduler"
OURS = "/etc/udev/rules.d/90-orchestrate-io_scheduler.rules"
RULE = 'ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="sd*", ATTR{queue/scheduler}="noop"\n'


def check(
    tunable: QueueTunable, facts: HostFacts, wanted: Wanted, devices: dict[str, str] | None = None
) -> TunableState:
    line = setting(tunable.name, wanted)
    return tunable.check(facts, line, profile(line, devices=devices))


def bare7() -> HostFacts:
    return replace(rhel7(), tuned=None)


@pytest.mark.parametrize(
    ("wanted", "offered", "choice"),
    [
        ("none", "none mq-deadline kyber bfq", "none"),
        ("none", "noop deadline cfq", "noop"),
        ("noop", "none mq-deadline", "none"),
        ("noop", "noop deadline cfq", "noop"),
        ("deadline", "none mq-deadline", "mq-deadline"),
        ("mq-deadline", "noop deadline cfq", "deadline"),
        ("cfq", "noop deadline cfq", "cfq"),
        ("cfq", "none mq-deadline kyber bfq", None),
        ("kyber", "none mq-deadline", None),
    ],
)
def test_the_scheduler_is_chosen_from_what_the_disk_offers(
    wanted: str, offered: str, choice: str | None
) -> None:
    assert chosen(wanted, tuple(offered.split())) == choice


def test_what_is_not_offered_is_unknown_with_the_list() -> None:
    state = check(IO_SCHEDULER, current(), "cfq")
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert "nvme0n1: cfq is not offered: none mq-deadline kyber [bfq]" in state.detail


def test_a_bare_none_is_not_to_be_set() -> None:
    host = with_files(bare7(), **{SCHEDULER: "none\n"})
    state = check(IO_SCHEDULER, host, "deadline")
    assert (state.verdict, state.changes) == (Verdict.NOT_APPLICABLE, ())


def test_a_path_of_multipath_is_left_alone_but_not_its_read_ahead() -> None:
    host = replace(bare7(), devices=(BlockDevice(name="sdb", rotational=True, multipath="dm-0"),))
    assert check(IO_SCHEDULER, host, "noop").verdict is Verdict.NOT_APPLICABLE
    assert check(READ_AHEAD, host, "128").verdict is Verdict.DRIFT


KINDS = {"ssd": "none", "rotational": "mq-deadline"}


def test_what_a_disk_is_the_profile_knows_better_than_the_kernel() -> None:
    written = {
        change.path.split("/")[3]: change.wanted
        for change in check(IO_SCHEDULER, current(), KINDS, {"sdc": "ssd"}).changes
        if isinstance(change, ValueChange)
    }
    assert written == {"nvme0n1": "none", "sdc": "none"}


def test_a_disk_of_no_known_kind_is_unknown_unless_one_value_is_for_all() -> None:
    host = replace(bare7(), devices=(BlockDevice(name="sdb", data_paths=("/data",)),))
    assert check(IO_SCHEDULER, host, KINDS).verdict is Verdict.UNKNOWN
    assert check(IO_SCHEDULER, host, "noop").verdict is Verdict.DRIFT
    assert check(IO_SCHEDULER, host, KINDS, {"sdb": "ssd"}).verdict is Verdict.DRIFT


def test_a_kind_that_the_profile_says_nothing_of_is_left_alone() -> None:
    state = check(IO_SCHEDULER, current(), {"ssd": "none"})
    assert not any("sdc" in str(change) for change in state.changes)
    assert check(IO_SCHEDULER, bare7(), {"rotational": "noop"}).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"devices": Unknown(reason="no sysfs")}, Verdict.UNKNOWN),
        ({"devices": (), "data_paths": ()}, Verdict.UNKNOWN),
        ({"devices": (), "data_paths": ("/data",)}, Verdict.NOT_APPLICABLE),
    ],
)
def test_without_disks(changes: dict[str, object], verdict: Verdict) -> None:
    host = replace(bare7(), **changes)  # type: ignore[arg-type]
    state = check(IO_SCHEDULER, host, "noop")
    assert (state.verdict, state.changes) == (verdict, ())
    assert state.detail


def right(**files: str) -> HostFacts:
    return with_files(bare7(), **{SCHEDULER: "[noop] deadline cfq\n"}, **files)


@pytest.mark.parametrize(
    ("files", "verdict", "told"),
    [
        ({}, Verdict.DRIFT, "not made to last"),
        ({"/etc/udev/rules.d/60-mine.rules": RULE}, Verdict.OK, "60-mine.rules"),
        ({"/usr/lib/udev/rules.d/60-io-scheduler.rules": RULE}, Verdict.OK, "60-io-scheduler.rules"),
        ({"/etc/udev/rules.d/60-mine.rules": "#" + RULE}, Verdict.DRIFT, "not made to last"),
        ({"/etc/udev/rules.d/60-mine.rules": RULE.replace("sd*", "vd*")}, Verdict.DRIFT, "not made to last"),
        (
            {"/etc/udev/rules.d/60-mine.rules": RULE.replace("KERNEL==", "KERNEL!=")},
            Verdict.DRIFT,
            "not made",
        ),
        (
            {
                "/etc/udev/rules.d/60-mine.rules": RULE.replace(
                    "KERNEL", 'ATTR{queue/rotational}=="0", KERNEL'
                )
            },
            Verdict.OK,
            "60-mine",
        ),
        (
            {
                "/etc/udev/rules.d/60-mine.rules": RULE.replace(
                    "KERNEL", 'ATTR{queue/rotational}=="1", KERNEL'
                )
            },
            Verdict.DRIFT,
            "not made",
        ),
        # What hangs on something that is not known here is no reason to rely on it.
        (
            {"/etc/udev/rules.d/60-mine.rules": RULE.replace("KERNEL", 'ENV{ID_MODEL}=="X", KERNEL')},
            Verdict.DRIFT,
            "not made",
        ),
    ],
)
def test_the_next_boot_is_told_from_udev_s_rules(files: dict[str, str], verdict: Verdict, told: str) -> None:
    state = check(IO_SCHEDULER, right(**files), "none")
    assert state.verdict is verdict
    assert told in state.at_boot


@pytest.mark.parametrize(
    "later",
    [RULE.replace("noop", "cfq"), RULE.replace("noop", "cfq").replace("KERNEL", 'ENV{X}=="1", KERNEL')],
)
def test_a_rule_of_ours_that_would_be_outvoted_gets_a_name_that_is_not(later: str) -> None:
    state = check(IO_SCHEDULER, right(**{"/etc/udev/rules.d/99-theirs.rules": later}), "none")
    (change,) = state.changes
    assert isinstance(change, FileChange)
    assert change.path == "/etc/udev/rules.d/zz-orchestrate-io_scheduler.rules"
    assert change.reload is Reload.UDEV


def test_the_rule_is_for_attaching_too_and_names_the_disk_and_nothing_else() -> None:
    (change,) = check(IO_SCHEDULER, right(), "none").changes
    assert isinstance(change, FileChange)
    assert change.path == OURS
    terms = ['ACTION=="add|change"', 'SUBSYSTEM=="block"', 'ENV{DEVTYPE}=="disk"', 'KERNEL=="sdb"']
    assert str(change.wanted).splitlines()[1:] == [", ".join([*terms, 'ATTR{queue/scheduler}="noop"'])]


@pytest.mark.parametrize(("words", "verdict"), [(("elevator=noop",), Verdict.OK), ((), Verdict.DRIFT)])
def test_elevator_on_the_command_line_counts_on_single_queue_disks(
    words: tuple[str, ...], verdict: Verdict
) -> None:
    assert check(IO_SCHEDULER, replace(right(), command_line=words), "noop").verdict is verdict


def test_elevator_on_the_command_line_means_nothing_to_multi_queue_disks() -> None:
    host = replace(bare7(), command_line=("elevator=none",))
    host = with_files(host, **{SCHEDULER: "[none] mq-deadline\n"})
    assert check(IO_SCHEDULER, host, "none").at_boot == "not made to last (sdb)"


def test_tuned_comes_after_udev() -> None:
    host = replace(right(**{"/etc/udev/rules.d/60-mine.rules": RULE}), tuned="throughput-performance")
    state = check(IO_SCHEDULER, host, "none")
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert "deadline by tuned's profile throughput-performance" in state.at_boot


@pytest.mark.parametrize(
    ("wanted", "told", "right_at_boot"),
    [("4096", "4096", True), ("8192", "8192", True), ("128", "4096", False)],
)
def test_tuned_s_at_least_is_read_as_such(wanted: str, told: str, right_at_boot: bool) -> None:  # noqa: FBT001  (a column)
    host = with_files(rhel7(), **{"/sys/block/sdb/queue/read_ahead_kb": wanted})
    state = check(READ_AHEAD, host, wanted)
    assert state.at_boot.startswith(f"{told} by tuned")
    assert (state.verdict is Verdict.OK) is right_at_boot


def test_queue_depth_is_written_again_where_the_scheduler_s_change_resets_it() -> None:
    both = profile(setting("io_scheduler", "noop"), setting("nr_requests", "128"), persist=False)
    found = REQUESTS.check(bare7(), both.settings[1], both)
    assert [change.path for change in found.changes if isinstance(change, ValueChange)] == [
        "/sys/block/sdb/queue/nr_requests"
    ]
    alone = profile(setting("nr_requests", "128"), persist=False)
    assert REQUESTS.check(bare7(), alone.settings[0], alone).changes == ()


def test_rhel_6_has_its_lines_in_rc_local() -> None:
    state = check(IO_SCHEDULER, rhel6(), "noop")
    assert [type(change).__name__ for change in state.changes] == ["ValueChange", "BlockChange"]


@pytest.mark.parametrize(
    ("tunable", "wanted", "wrong"),
    [
        (IO_SCHEDULER, "none", None),
        (IO_SCHEDULER, {"ssd": "none"}, None),
        (IO_SCHEDULER, "nope", "must be one of none, noop, deadline, mq-deadline, cfq, bfq, kyber"),
        (IO_SCHEDULER, {"ssd": "nope"}, "must be one of none, noop, deadline, mq-deadline, cfq, bfq, kyber"),
        (IO_SCHEDULER, {"nvme": "none"}, "must be one value, or one for each of ssd, rotational"),
        (IO_SCHEDULER, {}, "must be one value, or one for each of ssd, rotational"),
        (READ_AHEAD, "128", None),
        (READ_AHEAD, "130", "must be a whole number from 0 to 65536, in steps of 4 (a page)"),
        (REQUESTS, "3", "must be a whole number from 4 to 2048"),
        (REQUESTS, "many", "must be a whole number from 4 to 2048"),
    ],
)
def test_words_of_a_profile(tunable: QueueTunable, wanted: Wanted, wrong: str | None) -> None:
    assert tunable.valid(setting(tunable.name, wanted)) == wrong
