from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.disks import IO_SCHEDULER, READ_AHEAD, REQUESTS, QueueTunable, chosen
from orchestrator.model.host_facts import BlockDevice, HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import TunableState, ValueChange, Verdict, Wanted
from tests.fakes.tuned_hosts import current, profile, rhel7, setting, with_files

SCHEDULER = "/sys/block/sdb/queue/scheduler"


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


def paths(state: TunableState) -> list[str]:
    return [change.path for change in state.changes if isinstance(change, ValueChange)]


def test_multipath_has_a_scheduler_of_its_own_and_its_paths_have_none_to_set() -> None:
    paths_of_it = (BlockDevice(name=name, roles=("path",), rotational=True) for name in ("sdb", "sdc"))
    above = BlockDevice(name="dm-0", roles=("top", "multipath"), rotational=True)
    host = replace(bare7(), devices=(above, *paths_of_it))
    assert check(IO_SCHEDULER, host, "noop").verdict is Verdict.NOT_APPLICABLE
    own = with_files(host, **{"/sys/block/dm-0/queue/scheduler": "noop [deadline] cfq\n"})
    assert paths(check(IO_SCHEDULER, own, "noop")) == ["/sys/block/dm-0/queue/scheduler"]


def test_the_device_under_the_file_system_decides_what_is_read_ahead() -> None:
    disks = (
        BlockDevice(name="dm-3", roles=("top",), rotational=True, data_paths=("/data",)),
        BlockDevice(name="sdb", roles=("leaf",), rotational=False, data_paths=("/data",)),
        BlockDevice(name="sdc", roles=("leaf",), rotational=True, data_paths=("/data",)),
    )
    files = {f"/sys/block/{name}/queue/read_ahead_kb": "4096\n" for name in ("sdb", "sdc", "dm-3")}
    host = with_files(replace(bare7(), devices=disks), **files)
    found = check(READ_AHEAD, host, {"ssd": "8", "rotational": "128"})
    assert paths(found) == ["/sys/block/dm-3/queue/read_ahead_kb"]
    assert found.wanted == "128 (dm-3)"
    # The profile knows better where it names all disks of the data, as in the boot script.
    named = check(READ_AHEAD, host, {"ssd": "8", "rotational": "128"}, {"sdb": "ssd", "sdc": "ssd"})
    assert named.wanted == "8 (dm-3)"
    one = check(READ_AHEAD, host, {"ssd": "8", "rotational": "128"}, {"sdc": "ssd"})
    assert one.wanted == "128 (dm-3)"


def test_its_line_of_the_boot_script_has_a_word_for_each_kind() -> None:
    assert IO_SCHEDULER.line(setting("io_scheduler", "noop")) == "disks scheduler noop noop"
    assert READ_AHEAD.line(setting("read_ahead_kb", {"rotational": "64"})) == "disks read_ahead_kb - 64"


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
    both = check(IO_SCHEDULER, host, {"ssd": "none", "rotational": "noop"})
    assert both.wanted == "ssd: none, rotational: noop"


def test_queue_depth_is_written_again_where_the_scheduler_s_change_resets_it() -> None:
    both = profile(setting("io_scheduler", "noop"), setting("nr_requests", "128"), persist=False)
    found = REQUESTS.check(bare7(), both.settings[1], both)
    assert [change.path for change in found.changes if isinstance(change, ValueChange)] == [
        "/sys/block/sdb/queue/nr_requests"
    ]
    alone = profile(setting("nr_requests", "128"), persist=False)
    assert REQUESTS.check(bare7(), alone.settings[0], alone).changes == ()


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
