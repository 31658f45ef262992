"""The scripts that change a host, run for real under each shell, on a folder that stands for the host."""

from __future__ import annotations

import fcntl
import os
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from orchestrator.hosts.change_shell import TURN_SECONDS
from orchestrator.hosts.connection import CommandResult, Lost
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.settings import Connect, HostSettings, Sudo
from orchestrator.hosts.tuning_script import read_outcome, tuning_script
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    Reload,
    ServiceChange,
    ServiceMode,
    TunedChange,
    ValueChange,
)
from tests.fakes.changing_host import ChangingHost
from tests.fakes.sudoers_lines import plain_commands
from tests.tools import SHELLS, as_nobody, shell_words

PASSWORD = "open sesame"  # noqa: S105  (of a fake)
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
SWAPPINESS = "/proc/sys/vm/swappiness"
OURS = "/etc/sysctl.d/90-orchestrate.conf"
TEXT = "# ours\nvm.swappiness = 1\n"
RUNS = ServiceMode(running=True, enabled=True)
OFF = ServiceMode(running=False, enabled=False)
MASKED = ServiceMode(running=False, enabled=False, masked=True)


@pytest.fixture
def tree(tmp_path: Path) -> ChangingHost:
    return ChangingHost.make(tmp_path)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return " ".join(shell_words(request.param))


def settings_of(tree: ChangingHost, sudo: Sudo = Sudo.OFF) -> HostSettings:
    return HostSettings(
        node=NodeName("es1"),
        address="127.0.0.1",
        connect=Connect.LOCAL,
        sudo=sudo,
        sudo_password=lambda: PASSWORD,
        root=str(tree.root),
    )


def tune(
    tree: ChangingHost,
    shell: str,
    *changes: Change,
    sudo: Sudo = Sudo.OFF,
    password: str = PASSWORD,
    umask: int = 0o022,
    turn: int = TURN_SECONDS,
    renamed: Mapping[str, str] | None = None,
) -> ActionResult:
    """What comes of these changes.

    Args:
        turn: for so many seconds, changes of another program are waited for.
        renamed: other names for programs that the script runs.
    """
    settings = settings_of(tree, sudo)
    line = tuning_script(settings, changes)
    assert line.count(f"-ge {TURN_SECONDS} ]") == 1
    for old, new in ((f"-ge {TURN_SECONDS} ]", f"-ge {turn} ]"), *(renamed or {}).items()):
        line = line.replace(old, new)
    assert line.startswith("/bin/sh -c ")
    line = f"umask {umask:04o}; {shell}{line.removeprefix('/bin/sh')}"
    stdin = f"{password}\n" if sudo is Sudo.PASSWORD else None
    found = LocalConnection({"PATH": tree.path}).run(line, timeout=60.0, stdin=stdin)
    assert isinstance(found, CommandResult), found
    assert found.stderr == ""
    return read_outcome(settings, TuneHost(node=NodeName("es1"), tunable="thp", changes=changes), found)


def back(changes: Sequence[Change]) -> tuple[Change, ...]:
    return tuple(change.undone() for change in reversed(changes))


def there_and_back(tree: ChangingHost, shell: str, *changes: Change) -> None:
    """Done twice and undone twice; afterwards everything is as it was, byte for byte."""
    before = tree.snapshot()
    assert isinstance(tune(tree, shell, *changes), Done)
    after = tree.snapshot()
    assert after != before
    assert isinstance(again := tune(tree, shell, *changes), Done)
    assert again.output.startswith(f"0 changes made, {len(changes)} made before")
    assert tree.snapshot() == after
    assert isinstance(tune(tree, shell, *back(changes)), Done)
    assert tree.snapshot() == before
    assert isinstance(tune(tree, shell, *back(changes)), Done)
    assert tree.snapshot() == before


# -- values of the kernel


def test_a_choice_in_brackets_is_set_and_read_back(tree: ChangingHost, shell: str) -> None:
    tree.choices(THP, "always", "madvise", "never", now="always")
    there_and_back(tree, shell, ValueChange(path=THP, found="always", wanted="never"))


def test_a_plain_value_is_set_without_a_newline(tree: ChangingHost, shell: str) -> None:
    file = tree.write(SWAPPINESS, "60\n")
    assert tune(tree, shell, ValueChange(path=SWAPPINESS, found="60", wanted="1")) == Done(
        output=f"1 change made and read back: {SWAPPINESS}"
    )
    assert file.read_bytes() == b"1"


def test_tabs_and_blanks_of_a_value_are_the_same(tree: ChangingHost, shell: str) -> None:
    tree.write("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
    change = ValueChange(path="/proc/sys/net/ipv4/tcp_rmem", found="1", wanted="4096 131072  6291456")
    assert isinstance(found := tune(tree, shell, change), Done)
    assert "1 made before" in found.output
    assert tree.says("calls") == ["0"]


def test_a_value_that_the_kernel_does_not_take_is_refused_with_its_word(
    tree: ChangingHost, shell: str
) -> None:
    path = "/sys/block/sdb/queue/scheduler"
    tree.choices(path, "none", "mq-deadline", now="none")
    found = tune(tree, shell, ValueChange(path=path, found="none", wanted="cfq"))
    assert isinstance(found, Refused)
    assert "reads none instead of cfq" in found.reason
    assert "Invalid argument" in found.reason
    assert path in found.reason
    assert "0 changes made" in found.reason


def test_a_bare_none_is_a_value_too(tree: ChangingHost, shell: str) -> None:
    tree.write("/sys/block/loop0/queue/scheduler", "none\n")
    found = tune(
        tree, shell, ValueChange(path="/sys/block/loop0/queue/scheduler", found="none", wanted="none")
    )
    assert isinstance(found, Done)


def test_a_value_that_is_ignored_is_refused_and_a_rounded_one_is_in_doubt(
    tree: ChangingHost, shell: str
) -> None:
    tree.write(SWAPPINESS, "60\n")
    tree.deaf(SWAPPINESS)
    ignored = tune(tree, shell, ValueChange(path=SWAPPINESS, found="60", wanted="1"))
    assert isinstance(ignored, Refused)
    path = "/sys/block/sdb/queue/read_ahead_kb"
    tree.write(path, "128\n")
    tree.program("tee", 'cat >/dev/null; echo 64 >"$1"\n')
    rounded = tune(tree, shell, ValueChange(path=path, found="128", wanted="65"))
    assert isinstance(rounded, InDoubt)
    assert "reads 64 instead of 65" in rounded.reason


def test_a_path_that_is_not_there_is_refused(tree: ChangingHost, shell: str) -> None:
    found = tune(tree, shell, ValueChange(path=THP, found="always", wanted="never"))
    assert isinstance(found, Refused)
    assert f"there is no {tree.root}{THP}" in found.reason


# -- files of ours


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "",
        "no newline at the end",
        "\n\n",
        "-n %s \\n $HOME `id` $(id) \"double\" 'single' \\\n",
        'ACTION=="add|change", KERNEL=="sd[a-z]", ATTR{queue/scheduler}="none"\n',
        "größer als 5 µs\r\n\ttab\n",
        "".join(map(chr, range(1, 256))),
    ],
    ids=range(8),
)
def test_a_file_is_written_byte_for_byte_and_taken_away_again(
    tree: ChangingHost, shell: str, text: str
) -> None:
    change = FileChange(path=OURS, found=None, wanted=text)
    there_and_back(tree, shell, change)
    assert isinstance(tune(tree, shell, change), Done)
    assert tree.at(OURS).read_bytes() == text.encode()
    assert tree.at(OURS).stat().st_mode & 0o7777 == 0o644


def test_a_file_that_stood_there_keeps_its_mode_and_comes_back(tree: ChangingHost, shell: str) -> None:
    tree.write(OURS, "vm.swappiness = 10", mode=0o640)
    there_and_back(tree, shell, FileChange(path=OURS, found="vm.swappiness = 10", wanted=TEXT))


def test_a_strict_umask_does_not_hide_our_files(tree: ChangingHost, shell: str) -> None:
    tree.program(
        "tee", f'umask 077; exec /usr/bin/tee "$@"  # as `Defaults umask=0077` in a sudoers file\n# {shell}\n'
    )
    path = "/etc/systemd/system/elasticsearch.service.d/90-orchestrate.conf"
    tree.program("mkdir", 'umask 077; exec /usr/bin/mkdir "$@"\n')
    assert isinstance(tune(tree, shell, FileChange(path=path, found=None, wanted=TEXT), umask=0o077), Done)
    assert tree.at(path).stat().st_mode & 0o777 == 0o644
    assert tree.at(path).parent.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("stands", ["theirs\n", "", TEXT + "\n", TEXT[:-1]])
@pytest.mark.parametrize("found", [None, "ours of old\n"])
def test_a_file_that_somebody_else_changed_is_left_alone(
    tree: ChangingHost, shell: str, stands: str, found: str | None
) -> None:
    tree.write(OURS, stands)
    for wanted in (TEXT, None):
        before = tree.snapshot()
        result = tune(tree, shell, FileChange(path=OURS, found=found if wanted else TEXT, wanted=wanted))
        assert isinstance(result, Refused)
        assert "another process has changed it since" in result.reason
        assert tree.snapshot() == before


def test_a_link_in_the_place_of_our_file_is_left_alone(tree: ChangingHost, shell: str) -> None:
    tree.at(OURS).symlink_to("/nowhere/at/all")
    before = tree.snapshot()
    assert isinstance(tune(tree, shell, FileChange(path=OURS, found=None, wanted=TEXT)), Refused)
    assert tree.snapshot() == before


@pytest.mark.parametrize(
    "path",
    [
        "/etc/systemd/system/elasticsearch.service.d/90-orchestrate.conf",
        "/etc/tuned/orchestrate/tuned.conf",
        "/etc/tuned/profiles/orchestrate/tuned.conf",
        "/etc/tune-profiles/orchestrate/ktune.sh",
    ],
)
def test_a_folder_of_ours_is_made_and_taken_away_empty(tree: ChangingHost, shell: str, path: str) -> None:
    tree.at(path).parent.parent.mkdir(parents=True, exist_ok=True)
    there_and_back(tree, shell, FileChange(path=path, found=None, wanted=TEXT))


def test_a_folder_with_somebody_elses_file_stays(tree: ChangingHost, shell: str) -> None:
    folder = "/etc/systemd/system/elasticsearch.service.d"
    tree.write(f"{folder}/limits.conf", "theirs\n")
    there_and_back(tree, shell, FileChange(path=f"{folder}/90-orchestrate.conf", found=None, wanted=TEXT))


def test_a_folder_of_the_system_is_not_made(tree: ChangingHost, shell: str) -> None:
    found = tune(
        tree, shell, FileChange(path="/etc/udev/rules.d/90-orchestrate.rules", found=None, wanted=TEXT)
    )
    assert isinstance(found, Refused)
    assert "there is no folder" in found.reason
    assert not tree.at("/etc/udev").exists()


def test_those_who_read_a_file_are_told_where_they_run(tree: ChangingHost, shell: str) -> None:
    unit = FileChange(path="/etc/systemd/system/thp.service", found=None, wanted=TEXT, reload=Reload.SYSTEMD)
    rule = FileChange(path="/etc/sysctl.d/as-a.rules", found=None, wanted=TEXT, reload=Reload.UDEV)
    assert isinstance(tune(tree, shell, unit, rule), Done)
    assert tree.says("log") == []
    tree.systemd()
    tree.udev()
    # Also when the file is there already: a crash may have come between the two.
    assert isinstance(tune(tree, shell, unit, rule), Done)
    assert isinstance(tune(tree, shell, *back((unit, rule))), Done)
    assert tree.says("log") == [
        "systemctl daemon-reload",
        "udevadm control --reload",
        "udevadm control --reload",
        "systemctl daemon-reload",
    ]


def test_a_reload_that_fails_is_in_doubt(tree: ChangingHost, shell: str) -> None:
    tree.systemd()
    (tree.here / "broken_daemon-reload").touch()
    change = FileChange(path="/etc/systemd/system/a.service", found=None, wanted=TEXT, reload=Reload.SYSTEMD)
    found = tune(tree, shell, change)
    assert isinstance(found, InDoubt)
    assert "systemd did not read it" in found.reason


@pytest.mark.parametrize("found", [None, "of old, and longer than ten bytes\n"])
def test_a_full_disk_leaves_what_stood_there(tree: ChangingHost, shell: str, found: str | None) -> None:
    if found is not None:
        tree.write(OURS, found)
    tree.full(OURS)
    before = tree.snapshot()
    result = tune(tree, shell, FileChange(path=OURS, found=found, wanted=TEXT))
    assert isinstance(result, Refused)
    assert "No space left on device" in result.reason
    assert tree.snapshot() == before


# -- what the parts of the boot script share


PARTS = "/etc/orchestrate-tuning"
ENABLED = ServiceMode(running=False, enabled=True)
UNINSTALL = (
    ServiceChange(service="orchestrate-tuning", found=ENABLED, wanted=OFF),
    FileChange(path=f"{PARTS}/boot.sh", found=TEXT, wanted=None),
    FileChange(path=f"{PARTS}/prod+es1.part", found=TEXT, wanted=None),
)


def installed(tree: ChangingHost) -> ChangingHost:
    tree.systemd()
    tree.unit("orchestrate-tuning", "enabled")
    tree.write(f"{PARTS}/boot.sh", TEXT)
    tree.write(f"{PARTS}/prod+es1.part", TEXT)
    return tree


def test_the_last_part_goes_with_all_that_parts_share(tree: ChangingHost, shell: str) -> None:
    installed(tree)
    assert isinstance(tune(tree, shell, *UNINSTALL), Done)
    assert not tree.at(PARTS).exists()
    assert "systemctl disable orchestrate-tuning" in tree.says("log")


@pytest.mark.parametrize("change", UNINSTALL[:2], ids=["unit", "script"])
def test_a_part_installed_since_the_reading_keeps_what_is_shared(
    tree: ChangingHost, shell: str, change: Change
) -> None:
    """Another cluster installs its own part while this one removes the last part that it has read."""
    installed(tree).write(f"{PARTS}/other+es9.part", TEXT)
    before = tree.snapshot()
    for changes in (UNINSTALL, (change,)):
        result = tune(tree, shell, *changes)
        assert isinstance(result, Refused), result
        assert f"it stays for {PARTS}/other+es9.part" in result.reason
        assert tree.snapshot() == before


def test_an_installation_beside_another_part_is_made(tree: ChangingHost, shell: str) -> None:
    installed(tree).write(f"{PARTS}/other+es9.part", TEXT)
    assert isinstance(tune(tree, shell, *back(UNINSTALL)), Done)


def test_parts_that_cannot_be_listed_keep_what_is_shared(tree: ChangingHost, shell: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("changing the user needs root")
    installed(tree).at(PARTS).chmod(0o711)
    for folder in (tree.root, *tree.root.parents):
        if folder.stat().st_uid == 0 and folder.stat().st_mode & 0o055 != 0o055:
            folder.chmod(folder.stat().st_mode | 0o055)
    result = tune(tree, f"exec {shlex.join(as_nobody())} {shell}", UNINSTALL[1])
    assert isinstance(result, Refused)
    assert f"{PARTS} cannot be read" in result.reason


# -- our lines in files of others


SHARED = "/etc/sysctl.conf"
LINES = "vm.swappiness = 1\nvm.zone_reclaim_mode = 0\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = 1\n", "a = 1\n{block}\n"),
        ("a = 1", "a = 1\n{block}"),
        ("", "{block}\n"),
        ("\n\n", "\n\n{block}\n"),
        ("#!/bin/sh\ntouch /a\nexit 0\n", "#!/bin/sh\ntouch /a\n{block}\nexit 0\n"),
        ("#!/bin/sh\nexit 0", "#!/bin/sh\n{block}\nexit 0"),
        ("exit 0\n", "{block}\nexit 0\n"),
        ("a\nexit 0  \n\n \n", "a\n{block}\nexit 0  \n\n \n"),
        ("if b; then\n  exit 0\nfi\n", "if b; then\n  exit 0\nfi\n{block}\n"),
        ("exit 0\nelse\n", "exit 0\nelse\n{block}\n"),
        ("a\r\nb\r\n", "a\r\nb\r\n{block}\n"),
        ("# BEGIN orchestrate other\nb\n# END orchestrate other\n",) * 2,
        ("% \\n $HOME `id` '\" -n\n", "% \\n $HOME `id` '\" -n\n{block}\n"),
        ("".join(map(chr, range(1, 256))), "".join(map(chr, range(1, 256))) + "\n{block}"),
    ],
    ids=range(14),
)
def test_our_lines_come_and_go_and_every_other_byte_stays(
    tree: ChangingHost, shell: str, before: str, after: str
) -> None:
    lines = LINES
    if before == after:
        after = before + "{block}\n"
    tree.write(SHARED, before, mode=0o600)
    change = BlockChange(path=SHARED, name="sysctl", found=None, wanted=lines)
    there_and_back(tree, shell, change)
    assert isinstance(tune(tree, shell, change), Done)
    block = f"# BEGIN orchestrate sysctl\n{lines}# END orchestrate sysctl"
    assert tree.at(SHARED).read_bytes() == after.replace("{block}", block).encode()
    there_and_back(tree, shell, BlockChange(path=SHARED, name="sysctl", found=lines, wanted="c = 3"))


@pytest.mark.parametrize("lines", [LINES[:-1], "", "\n", "one"])
def test_lines_of_any_kind_come_and_go(tree: ChangingHost, shell: str, lines: str) -> None:
    tree.write(SHARED, "a = 1")
    there_and_back(tree, shell, BlockChange(path=SHARED, name="sysctl", found=None, wanted=lines))


@pytest.mark.parametrize("before", ["a = 1\n", "a = 1", "", "b\nexit 0\n"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_lines_of_two_tunables_go_in_any_order(
    tree: ChangingHost, shell: str, before: str, order: tuple[int, int]
) -> None:
    tree.write(SHARED, before)
    changes = [
        BlockChange(path=SHARED, name=name, found=None, wanted=f"{name} = 1") for name in ("one", "two")
    ]
    assert isinstance(tune(tree, shell, *changes), Done)
    assert isinstance(tune(tree, shell, *(changes[number].undone() for number in order)), Done)
    assert tree.at(SHARED).read_text() == before


def test_what_others_add_behind_our_lines_stays(tree: ChangingHost, shell: str) -> None:
    file = tree.write(SHARED, "a = 1\n")
    change = BlockChange(path=SHARED, name="sysctl", found=None, wanted=LINES)
    assert isinstance(tune(tree, shell, change), Done)
    file.write_text(file.read_text() + "z = 9")
    assert isinstance(tune(tree, shell, change.undone()), Done)
    assert file.read_text() == "a = 1\nz = 9"


MARKED = "# BEGIN orchestrate sysctl\n{}# END orchestrate sysctl\n"


@pytest.mark.parametrize(
    ("stands", "found", "said"),
    [
        (MARKED.format("theirs\n"), LINES, "another process has changed it since"),
        (MARKED.format(LINES + "theirs\n"), LINES, "another process has changed it since"),
        (MARKED.format(LINES), None, "another process has changed it since"),
        ("a = 1\n", LINES, "another process has changed it since"),
        ("# BEGIN orchestrate sysctl\na = 1\n", None, "not there once each"),
        ("a\n# END orchestrate sysctl\n", None, "not there once each"),
        (MARKED.format("") * 2, None, "not there once each"),
        ("# END orchestrate sysctl\n# BEGIN orchestrate sysctl\n", None, "is before"),
        (b"a\0b\n", None, "no text"),
    ],
)
def test_lines_that_are_not_as_we_left_them_are_left_alone(
    tree: ChangingHost, shell: str, stands: str | bytes, found: str | None, said: str
) -> None:
    tree.write(SHARED, stands)
    before = tree.snapshot()
    result = tune(tree, shell, BlockChange(path=SHARED, name="sysctl", found=found, wanted="c = 3\n"))
    assert isinstance(result, Refused)
    assert said in result.reason
    assert tree.snapshot() == before


def test_a_full_disk_leaves_the_lines_of_others(tree: ChangingHost, shell: str) -> None:
    tree.write(SHARED, "more than ten bytes = 1\n")
    tree.full(SHARED)
    before = tree.snapshot()
    result = tune(tree, shell, BlockChange(path=SHARED, name="sysctl", found=None, wanted=LINES))
    assert isinstance(result, Refused)
    assert "No space left on device" in result.reason
    assert tree.snapshot() == before


def test_lines_need_a_file(tree: ChangingHost, shell: str) -> None:
    result = tune(tree, shell, BlockChange(path=SHARED, name="sysctl", found=None, wanted=LINES))
    assert isinstance(result, Refused)
    assert "there is no file" in result.reason


# -- services and tuned


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        (RUNS, MASKED, ["stop", "disable", "mask"]),
        (RUNS, OFF, ["stop", "disable"]),
        (ServiceMode(running=False, enabled=True), MASKED, ["disable", "mask"]),
        (MASKED, RUNS, ["unmask", "enable", "start"]),
    ],
)
def test_a_service_of_systemd(
    tree: ChangingHost, shell: str, found: ServiceMode, wanted: ServiceMode, said: list[str]
) -> None:
    tree.systemd()
    tree.unit("numad", *(name for name in ("running", "enabled", "masked") if getattr(found, name)))
    there_and_back(tree, shell, ServiceChange(service="numad", found=found, wanted=wanted))
    done = [line for line in tree.says("log") if " is-" not in line]
    assert done[: len(said)] == [f"systemctl {verb} numad" for verb in said]


@pytest.mark.parametrize("tool", ["chkconfig", "update-rc.d"])
def test_a_service_of_sysv(tree: ChangingHost, shell: str, tool: str) -> None:
    if tool == "update-rc.d":
        tree.without("chkconfig")
    tree.unit("numad", "running")
    for level in range(2, 6):
        tree.at(f"/etc/rc{level}.d/S20numad").symlink_to("../init.d/numad")
    there_and_back(tree, shell, ServiceChange(service="numad", found=RUNS, wanted=OFF))
    words = ("off", "on") if tool == "chkconfig" else ("disable", "enable")
    assert tree.says("log") == [
        "service numad stop",
        f"{tool} numad {words[0]}",
        f"{tool} numad {words[1]}",
        "service numad start",
    ]


def test_a_service_that_stops_but_cannot_be_masked_is_in_doubt(tree: ChangingHost, shell: str) -> None:
    tree.systemd()
    tree.unit("numad", "running", "enabled")
    (tree.here / "broken_mask").touch()
    found = tune(tree, shell, ServiceChange(service="numad", found=RUNS, wanted=MASKED))
    assert isinstance(found, InDoubt)
    assert "masked no" in found.reason
    assert "Connection timed out" in found.reason


def test_a_profile_of_tuned(tree: ChangingHost, shell: str) -> None:
    (tree.here / "tuned").write_text("throughput-performance\n")
    there_and_back(tree, shell, TunedChange(found="throughput-performance", wanted="orchestrate"))
    there_and_back(tree, shell, TunedChange(found="throughput-performance", wanted=None))
    there_and_back(tree, shell, TunedChange(found="throughput-performance", wanted="balanced orchestrate"))
    (tree.here / "no_such_profile").touch()
    found = tune(tree, shell, TunedChange(found="throughput-performance", wanted="orchestrate"))
    assert isinstance(found, Refused)
    assert "doesn't exist" in found.reason


def test_a_tool_that_is_not_there_is_named(tree: ChangingHost, shell: str) -> None:
    """Under a name that no machine has: this one may have tuned."""
    found = tune(
        tree, shell, TunedChange(found="balanced", wanted="orchestrate"), renamed={"tuned-adm": "no-such-adm"}
    )
    assert isinstance(found, Refused), found
    assert "there is no no-such-adm" in found.reason


def test_a_flood_of_twenty_megabytes_is_a_short_refusal(tree: ChangingHost, shell: str) -> None:
    (tree.here / "flood").touch()
    found = tune(tree, shell, TunedChange(found=None, wanted="orchestrate"))
    assert isinstance(found, Refused)
    assert "the profile is off instead of orchestrate" in found.reason
    assert len(found.reason) < 3000


# -- several changes


def several(tree: ChangingHost) -> tuple[Change, ...]:
    """One of each kind, on a host where everything is wrong."""
    tree.systemd()
    tree.udev()
    tree.choices(THP, "always", "madvise", "never", now="always")
    tree.write(SWAPPINESS, "60")
    tree.write(SHARED, "a = 1")
    tree.unit("numad", "running", "enabled")
    (tree.here / "tuned").write_text("balanced\n")
    drop_in = "/etc/systemd/system/elasticsearch.service.d/90-orchestrate.conf"
    return (
        FileChange(path="/etc/tuned/orchestrate/tuned.conf", found=None, wanted="[main]\n"),
        TunedChange(found="balanced", wanted="orchestrate"),
        ValueChange(path=THP, found="always", wanted="never"),
        ValueChange(path=SWAPPINESS, found="60", wanted="1"),
        ServiceChange(service="numad", found=RUNS, wanted=MASKED),
        FileChange(path=drop_in, found=None, wanted=TEXT, reload=Reload.SYSTEMD),
        BlockChange(path=SHARED, name="sysctl", found=None, wanted=LINES),
    )


def test_changes_of_every_kind_in_order_and_back(tree: ChangingHost, shell: str) -> None:
    changes = several(tree)
    there_and_back(tree, shell, *changes)


def test_behind_the_first_that_fails_nothing_is_done(tree: ChangingHost, shell: str) -> None:
    tree.choices(THP, "always", "never", now="always")
    tree.write(SWAPPINESS, "60")
    wrong = ValueChange(path=THP, found="always", wanted="madvise")
    right = ValueChange(path=SWAPPINESS, found="60", wanted="1")
    ours = FileChange(path=OURS, found=None, wanted=TEXT)
    first = tune(tree, shell, wrong, right)
    assert isinstance(first, Refused)
    assert tree.at(SWAPPINESS).read_text() == "60"
    second = tune(tree, shell, right, wrong, ours)
    assert isinstance(second, InDoubt)
    assert f"change 2 of 3 ({THP})" in second.reason
    assert "1 change made" in second.reason
    assert not tree.at(OURS).exists()
    # Of what was there already somebody made a part: nothing may say that the host is as before.
    assert isinstance(tune(tree, shell, right, wrong), InDoubt)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])
def test_killed_anywhere_it_is_completed_and_undone_all_the_same(
    tree: ChangingHost, shell: str, moment: str, call: int
) -> None:
    changes = several(tree)
    found = tree.snapshot()
    kill = tree.here / f"kill_{moment}_{call}"
    kill.touch()
    settings = settings_of(tree)
    line = f"{shell}{tuning_script(settings, changes).removeprefix('/bin/sh')}"
    killed = LocalConnection({"PATH": tree.path}).run(line, timeout=60.0)
    assert isinstance(killed, Lost)
    assert not killed.timed_out
    cut_off = CommandResult(exit=137, stdout=killed.output)
    result = read_outcome(settings, TuneHost(node=NodeName("es1"), tunable="thp", changes=changes), cut_off)
    assert isinstance(result, InDoubt)
    half = tree.snapshot()
    assert half != found or (call, moment) == (1, "before")
    kill.unlink()
    # What was not made is found undone, as whoever undoes only what was written sees it.
    assert isinstance(tune(tree, shell, *back(changes)), Done)
    assert tree.snapshot() == found
    assert isinstance(tune(tree, shell, *changes), Done)
    assert isinstance(tune(tree, shell, *back(changes)), Done)
    assert tree.snapshot() == found


# -- rights


@pytest.mark.parametrize("sudo", [Sudo.PASSWORDLESS, Sudo.PASSWORD])
def test_exactly_the_commands_of_a_sudoers_file_go_through_sudo(
    tree: ChangingHost, shell: str, sudo: Sudo
) -> None:
    if sudo is Sudo.PASSWORD:
        (tree.here / "password").write_text(PASSWORD)
    changes = several(tree)
    assert isinstance(tune(tree, shell, *changes, sudo=sudo), Done)
    assert isinstance(tune(tree, shell, *back(changes), sudo=sudo), Done)
    asked = {line.replace(str(tree.root), "") for line in tree.says("asked")}
    allowed = {command for change in changes for command in plain_commands(change)}
    assert asked == allowed
    assert tree.says("leaks") == []


def test_a_password_reaches_sudo_alone(tree: ChangingHost, shell: str) -> None:
    (tree.here / "password").write_text(PASSWORD)
    tree.choices(THP, "always", "never", now="always")
    ours = tree.root / OURS.lstrip("/")
    # Of this one sudo reads no password: what comes first on its input is the file's.
    (tree.here / "free").write_text(f"tee {ours}\n")
    changes = (
        ValueChange(path=THP, found="always", wanted="never"),
        FileChange(path=OURS, found=None, wanted=TEXT),
    )
    assert isinstance(tune(tree, shell, *changes, sudo=Sudo.PASSWORD), Done)
    assert ours.read_text() == TEXT
    assert tree.says("leaks") == []
    assert not any(PASSWORD.encode() in path.read_bytes() for path in tree.root.rglob("*") if path.is_file())


def test_the_fake_sudo_sees_a_password_on_a_command_line(tree: ChangingHost) -> None:
    # The test above is no formality. Its password is another one: that test may run at the same time.
    shown = "another sesame"
    (tree.here / "password").write_text(shown)
    line = f": '{shown}'; sudo -k -n true; exit 0"
    assert isinstance(LocalConnection({"PATH": tree.path}).run(line, timeout=10.0), CommandResult)
    assert tree.says("leaks") != []


def test_a_wrong_password_is_tried_once(tree: ChangingHost, shell: str) -> None:
    (tree.here / "password").write_text(PASSWORD)
    tree.write(SWAPPINESS, "60\n")
    change = ServiceChange(service="numad", found=RUNS, wanted=MASKED)
    tree.systemd()
    tree.unit("numad", "running", "enabled")
    found = tune(tree, shell, change, sudo=Sudo.PASSWORD, password="let me in")  # noqa: S106  (a wrong one)
    assert isinstance(found, Refused)
    assert "sudo refused" in found.reason
    assert tree.says("attempts") == ["attempt"]


def test_one_command_that_sudo_refuses_is_told_by_its_tunable(tree: ChangingHost, shell: str) -> None:
    tree.choices(THP, "always", "never", now="always")
    (tree.here / "denied").write_text(f"tee {tree.root}{OURS}\n")
    changes = (
        ValueChange(path=THP, found="always", wanted="never"),
        FileChange(path=OURS, found=None, wanted=TEXT),
    )
    only = tune(tree, shell, changes[1], sudo=Sudo.PASSWORDLESS)
    assert isinstance(only, Refused)
    assert only.reason.startswith("thp: change 1 of 1")
    assert f"sudo refused `tee {tree.root}{OURS}`: " in only.reason
    assert "not as written" not in only.reason
    assert "docs/how-to/least-rights.md (Host tuning)" in only.reason
    both = tune(tree, shell, *changes, sudo=Sudo.PASSWORDLESS)
    assert isinstance(both, InDoubt)
    assert not tree.at(OURS).exists()


# -- answers that are not whole


def outcome_of(stdout: str, *, exit_code: int = 0, truncated: int = 0) -> ActionResult:
    changes = (ValueChange(path=THP, found="always", wanted="never"),) * 2
    settings = HostSettings(node=NodeName("es1"), address="es1")
    result = CommandResult(exit=exit_code, stdout=stdout, truncated=truncated)
    return read_outcome(settings, TuneHost(node=NodeName("es1"), tunable="thp", changes=changes), result)


STARTED = "@@orchestrate-00000000-0000-4000 begin tuning\n\n@@orchestrate-00000000-0000-4000 end tuning 0\n"
FIRST = "@@orchestrate-00000000-0000-4000 begin change-1\n\n@@orchestrate-00000000-0000-4000 end change-1 0\n"
SECOND = (
    "@@orchestrate-00000000-0000-4000 begin change-2\nhm\n@@orchestrate-00000000-0000-4000 end change-2 {}\n"
)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("Welcome to es1\n" + STARTED + FIRST + SECOND.format(0), Done),
        (STARTED + FIRST, InDoubt),
        (STARTED, InDoubt),
        (STARTED + FIRST + SECOND.format(1), InDoubt),
        (STARTED + SECOND.format(0), InDoubt),
        (STARTED + FIRST.replace(" 0\n", " 1\n"), Refused),
        (STARTED + FIRST.replace(" 0\n", " 2\n"), InDoubt),
        (STARTED + FIRST.replace(" 0\n", " 77\n"), InDoubt),
        ("This account is currently not available.\n", Refused),
        ("", Refused),
    ],
)
def test_only_a_whole_answer_is_done_and_only_an_untouched_host_is_refused(
    answer: str, verdict: type[ActionResult]
) -> None:
    assert isinstance(outcome_of(answer, exit_code=1), verdict)


def test_a_flood_in_the_place_of_an_answer_is_in_doubt() -> None:
    assert isinstance(outcome_of("x" * 60_000, truncated=100_000_000), InDoubt)


# -- without rights, and on a read-only file system


def test_without_rights_nothing_is_altered_and_the_reason_is_told(tree: ChangingHost, shell: str) -> None:
    for folder in (tree.root, *tree.root.parents):
        if str(folder).startswith("/tmp/") and os.geteuid() == 0:
            folder.chmod(0o755)
    tree.without("tee")
    tree.write(SWAPPINESS, "60\n")
    tree.write(OURS, "theirs to read\n", mode=0o600)
    tree.write(SHARED, "a = 1\n")
    before = tree.snapshot()
    for change, said in (
        (ValueChange(path=SWAPPINESS, found="60", wanted="1"), "Permission denied"),
        (FileChange(path=OURS, found="theirs to read\n", wanted=TEXT), "permission denied"),
        (FileChange(path=f"{OURS}.new", found=None, wanted=TEXT), "Permission denied"),
        (BlockChange(path=SHARED, name="sysctl", found=None, wanted=LINES), "Permission denied"),
    ):
        found = tune(tree, f"{shlex.join(as_nobody())} {shell}", change)
        assert isinstance(found, Refused), (change, found)
        assert said in found.reason
    assert tree.snapshot() == before


def test_a_shell_without_a_printf_of_its_own_gets_no_password(tree: ChangingHost) -> None:
    (tree.here / "password").write_text(PASSWORD)
    tree.write(SWAPPINESS, "60\n")
    settings = settings_of(tree, Sudo.PASSWORD)
    changes = (ValueChange(path=SWAPPINESS, found="60", wanted="1"),)
    inner = shlex.split(tuning_script(settings, changes))[2]
    line = f"bash -c {shlex.quote(f'enable -n printf; {inner}')}"
    found = LocalConnection({"PATH": tree.path}).run(line, timeout=20.0, stdin=f"{PASSWORD}\n")
    assert isinstance(found, CommandResult)
    result = read_outcome(settings, TuneHost(node=NodeName("es1"), tunable="vm", changes=changes), found)
    assert isinstance(result, Refused)
    assert "which this shell would show to every user" in result.reason
    assert tree.says("leaks") == []
    assert tree.says("attempts") == []


# -- two programs at once


@pytest.fixture
def held(tree: ChangingHost) -> Iterator[int]:
    """A turn that another program has on the host."""
    folder = os.open(tree.root / "etc", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    yield folder
    os.close(folder)


def test_a_host_is_changed_by_one_program_at_a_time(tree: ChangingHost, shell: str, held: int) -> None:
    """One that reads a file while the other has cut it short to write it would lose what others wrote."""
    shared = tree.write("/etc/sysctl.conf", "")

    def end() -> None:
        shared.write_text("a = 1\n")
        fcntl.flock(held, fcntl.LOCK_UN)

    rest = threading.Timer(1.5, end)
    rest.start()
    change = BlockChange(path="/etc/sysctl.conf", name="b", found=None, wanted="b = 2")
    assert isinstance(tune(tree, shell, change), Done)
    rest.join()
    assert shared.read_text().startswith("a = 1\n# BEGIN orchestrate b\n")


def test_a_host_that_another_program_keeps_is_left(tree: ChangingHost, shell: str, held: int) -> None:
    assert held
    tree.write(SWAPPINESS, "60\n")
    result = tune(tree, shell, ValueChange(path=SWAPPINESS, found="60", wanted="1"), turn=1)
    assert isinstance(result, Refused)
    assert "another program is tuning this host" in result.reason
    assert tree.says("calls") == ["0"]


def test_what_is_started_does_not_keep_the_turn(tree: ChangingHost, shell: str) -> None:
    """A daemon of an init script inherits what its starter has open, and lives on."""
    tree.write(SWAPPINESS, "60\n")
    tee = tree.here / "bin" / "tee"
    tee.write_text(tee.read_text().replace("\n", f"\nls -l /proc/self/fd >{tree.here}/open\n", 1))
    assert isinstance(tune(tree, shell, ValueChange(path=SWAPPINESS, found="60", wanted="1")), Done)
    assert str(tree.root / "etc") not in (tree.here / "open").read_text()
