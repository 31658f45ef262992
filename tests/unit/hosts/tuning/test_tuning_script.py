"""The scripts that change a host, run for real under each shell, on a folder that stands for the host."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from orchestrator.hosts.blocks import with_block
from orchestrator.hosts.change_shell import TURN_SECONDS
from orchestrator.hosts.connection import CommandResult, Lost
from orchestrator.hosts.settings import HostSettings, Sudo
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
from tests.fakes.framing import part
from tests.fakes.host_tools import TEE
from tests.fakes.host_tree import HostTree
from tests.fakes.sudoers_lines import plain_commands
from tests.tools import SHELLS, as_nobody, shell_words

PASSWORD = "open sesame"  # noqa: S105  (of a fake)
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
SWAPPINESS = "/proc/sys/vm/swappiness"
SCHEDULER = "/sys/block/sdb/queue/scheduler"
OURS = "/etc/sysctl.d/90-orchestrate.conf"
SHARED = "/etc/sysctl.conf"
TEXT = "# ours\nvm.swappiness = 1\n"
LINES = "vm.swappiness = 1\nvm.zone_reclaim_mode = 0\n"
ANY = "".join(map(chr, range(1, 256)))
RUNS = ServiceMode(running=True, enabled=True)
ENABLED = ServiceMode(running=False, enabled=True)
OFF = ServiceMode(running=False, enabled=False)
MASKED = ServiceMode(running=False, enabled=False, masked=True)
CHANGED_SINCE = "another process has changed it since"


@pytest.fixture
def tree() -> Iterator[HostTree]:
    """A host that systemd runs, in a folder that any account may enter; pytest's are the owner's."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = HostTree(Path(folder))
        made.at("/.log").chmod(0o666)
        made.systemd()
        made.write(SWAPPINESS, "60\n")
        made.write(THP, "[always] madvise never\n")
        yield made


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return " ".join(shell_words(request.param))


def value(wanted: str, path: str = SWAPPINESS, found: str = "60") -> ValueChange:
    return ValueChange(path=path, found=found, wanted=wanted)


def file(path: str = OURS, found: str | None = None, wanted: str | None = TEXT) -> FileChange:
    return FileChange(path=path, found=found, wanted=wanted)


def block(wanted: str | None = LINES, path: str = SHARED, found: str | None = None) -> BlockChange:
    return BlockChange(path=path, name="sysctl", found=found, wanted=wanted)


def tune(
    tree: HostTree,
    shell: str,
    *changes: Change,
    sudo: Sudo = Sudo.OFF,
    password: str = PASSWORD,
    umask: int = 0o022,
    renamed: tuple[str, str] = ("", ""),
) -> ActionResult:
    """What comes of these changes; `renamed`: a text of the script, and what it is there instead."""
    settings = tree.settings(sudo=sudo, sudo_password=lambda: PASSWORD)
    script = tuning_script(settings, changes).replace(*renamed)
    line = f"umask {umask:04o}; {shell} -c {shlex.quote(script)}"
    stdin = f"{password}\n" if sudo is Sudo.PASSWORD else None
    found = tree.connection().run(line, timeout=60.0, stdin=stdin)
    assert isinstance(found, CommandResult), found
    assert found.stderr == ""
    return read_outcome(settings, TuneHost(node=NodeName("es1"), tunable="thp", changes=changes), found)


def done(tree: HostTree, shell: str, *changes: Change, **how: object) -> str:
    result = tune(tree, shell, *changes, **how)
    assert isinstance(result, Done), result
    return result.output


def refused(
    tree: HostTree, shell: str, *changes: Change, kind: type[Refused | InDoubt] = Refused, **how: object
) -> str:
    """The reason; after a refusal everything is as it was."""
    before = tree.snapshot()
    result = tune(tree, shell, *changes, **how)
    assert isinstance(result, kind), result
    if kind is Refused:
        assert tree.snapshot() == before
    return result.reason


def back(changes: Sequence[Change]) -> tuple[Change, ...]:
    return tuple(change.undone() for change in reversed(changes))


def there_and_back(tree: HostTree, shell: str, *changes: Change) -> None:
    """Done twice and undone twice; afterwards everything is as it was, byte for byte."""
    before = tree.snapshot()
    done(tree, shell, *changes)
    after = tree.snapshot()
    assert after != before
    assert done(tree, shell, *changes).startswith(f"0 changes made, {len(changes)} made before")
    assert tree.snapshot() == after
    for _ in range(2):
        done(tree, shell, *back(changes))
        assert tree.snapshot() == before


# -- values of the kernel


def test_values_of_the_kernel_are_set_and_read_back(tree: HostTree, shell: str) -> None:
    there_and_back(tree, shell, value("never", THP, "always"), value("1"))
    assert done(tree, shell, value("1")) == f"1 change made and read back: {SWAPPINESS}"
    tcp, bare = "/proc/sys/net/ipv4/tcp_rmem", "/sys/block/loop0/queue/scheduler"
    tree.write(tcp, "4096\t131072\t6291456\n")
    tree.write(bare, "none\n")
    written = len(tree.calls("tee"))
    same = (value("4096 131072  6291456", tcp), value("none", bare))
    assert done(tree, shell, *same).startswith("0 changes made, 2 made before")
    assert len(tree.calls("tee")) == written, "tabs and blanks of a value are the same"


def test_a_value_that_does_not_become_so_is_told(tree: HostTree, shell: str) -> None:
    tree.write(SCHEDULER, "[none] mq-deadline\n")
    said = refused(tree, shell, value("cfq", SCHEDULER, "none"))
    for words in ("reads none instead of cfq", "Invalid argument", SCHEDULER, "0 changes made"):
        assert words in said
    tree.stuck(SWAPPINESS)
    assert "reads 60 instead of 1" in refused(tree, shell, value("1"))
    assert f"there is no {tree.path}/proc/none" in refused(tree, shell, value("1", "/proc/none"))
    tree.write("/sys/block/sdb/queue/read_ahead_kb", "128\n")
    tree.program("tee", 'cat >/dev/null; echo 64 >"$1"\n')
    rounded = value("65", "/sys/block/sdb/queue/read_ahead_kb", "128")
    assert "reads 64 instead of 65" in refused(tree, shell, rounded, kind=InDoubt)


# -- files of ours

TEXTS = (
    TEXT,
    "",
    "no newline at the end",
    "\n\n",
    "-n %s \\n $HOME `id` $(id) \"double\" 'single' \\\n",
    'ACTION=="add|change", KERNEL=="sd[a-z]", ATTR{queue/scheduler}="none"\n',
    "gr\u00f6\u00dfer als 5 \u00b5s\r\n\ttab\n",
    ANY,
)
FOLDERS = ("/etc/systemd/system/es.service.d", "/etc/tuned/orchestrate", "/etc/tuned/profiles/orchestrate")
THEIRS = "/etc/systemd/system/theirs.service.d"


def test_files_and_folders_of_ours_come_and_go(tree: HostTree, shell: str) -> None:
    texts = {f"/etc/sysctl.d/{number}.conf": text for number, text in enumerate(TEXTS)}
    folders = (*FOLDERS, "/etc/tune-profiles/orchestrate")
    for folder in folders:
        tree.at(folder).parent.mkdir(parents=True, exist_ok=True)
    tree.write(f"{THEIRS}/limits.conf", "theirs\n")
    tree.write(OURS, "vm.swappiness = 10")
    tree.at(OURS).chmod(0o640)
    changes = [
        *(file(path, None, text) for path, text in texts.items()),
        *(file(f"{folder}/90-orchestrate.conf") for folder in (*folders, THEIRS)),
        file(OURS, "vm.swappiness = 10"),
    ]
    there_and_back(tree, shell, *changes)
    done(tree, shell, *changes)
    for path, text in texts.items():
        assert tree.at(path).read_bytes() == text.encode()
        assert tree.at(path).stat().st_mode & 0o7777 == 0o644
    assert tree.at(OURS).stat().st_mode & 0o7777 == 0o640, "it keeps its mode"


def test_a_strict_umask_does_not_hide_our_files(tree: HostTree, shell: str) -> None:
    tree.first("tee", "umask 077")  # as `Defaults umask=0077` in a sudoers file
    tree.program("mkdir", 'umask 077; exec "$root/toolbox/mkdir" "$@"\n')
    path = f"{FOLDERS[0]}/90-orchestrate.conf"
    done(tree, shell, file(path), umask=0o077)
    assert tree.at(path).stat().st_mode & 0o777 == 0o644
    assert tree.at(path).parent.stat().st_mode & 0o777 == 0o755


def test_a_file_that_somebody_else_changed_is_left_alone(tree: HostTree, shell: str) -> None:
    for stands in ("theirs\n", "", TEXT + "\n", TEXT[:-1]):
        tree.write(OURS, stands)
        for change in (file(), file(found="ours of old\n"), file(found=TEXT, wanted=None)):
            assert CHANGED_SINCE in refused(tree, shell, change)
    tree.remove(OURS)
    tree.at(OURS).symlink_to("/nowhere/at/all")
    assert CHANGED_SINCE in refused(tree, shell, file())
    assert "there is no folder" in refused(tree, shell, file("/etc/nobodys/90-orchestrate.rules"))


def test_those_who_read_a_file_are_told_where_they_run(tree: HostTree, shell: str) -> None:
    unit = FileChange(path="/etc/systemd/system/thp.service", found=None, wanted=TEXT, reload=Reload.SYSTEMD)
    rule = FileChange(path="/etc/udev/rules.d/a.rules", found=None, wanted=TEXT, reload=Reload.UDEV)
    tree.at("/run/systemd/system").rmdir()
    done(tree, shell, unit, rule)
    assert tree.calls("systemctl", "udevadm") == ()
    tree.folder("/run/systemd/system")
    tree.write("/run/udev/control", "")
    # Also when the file is there already: a crash may have come between the two.
    done(tree, shell, unit, rule)
    done(tree, shell, *back((unit, rule)))
    reloads = ("systemctl daemon-reload", "udevadm control --reload")
    assert tree.calls("systemctl", "udevadm") == (*reloads, *reversed(reloads))
    tree.program("systemctl", "exit 1\n")
    assert "systemd did not read it" in refused(tree, shell, unit, kind=InDoubt)


def test_a_full_disk_leaves_what_was_there(tree: HostTree, shell: str) -> None:
    tree.first(
        "tee",
        '[ -e "$root/tmp/room" ] || { head -c 10 >"$1"; : >"$root/tmp/room"\n'
        '    echo "tee: $1: No space left on device" >&2; exit 1; }',
    )
    old = "of old, and longer than ten bytes\n"
    tree.write(SHARED, "more than ten bytes = 1\n")
    tree.write(f"{OURS}.old", old)
    for change in (file(), file(f"{OURS}.old", old), block()):
        tree.at("/tmp/room").unlink(missing_ok=True)
        assert "No space left on device" in refused(tree, shell, change)


# -- what the parts of the boot script share

PARTS = "/etc/orchestrate-tuning"
UNINSTALL = (
    ServiceChange(service="orchestrate-tuning", found=ENABLED, wanted=OFF),
    file(f"{PARTS}/boot.sh", TEXT, None),
    file(f"{PARTS}/prod+es1.part", TEXT, None),
)


@pytest.fixture
def installed(tree: HostTree) -> HostTree:
    tree.write("/etc/systemd/system/orchestrate-tuning.service", "[Service]\n")
    tree.service("orchestrate-tuning", running=False)
    tree.write(f"{PARTS}/boot.sh", TEXT)
    tree.write(f"{PARTS}/prod+es1.part", TEXT)
    return tree


def test_the_last_part_goes_with_all_that_parts_share(installed: HostTree, shell: str) -> None:
    done(installed, shell, *UNINSTALL)
    assert not installed.at(PARTS).exists()
    assert "systemctl disable orchestrate-tuning" in installed.calls("systemctl")


def test_a_part_installed_since_the_reading_keeps_what_is_shared(installed: HostTree, shell: str) -> None:
    """Another cluster installs its own part while this one removes the last part that it has read."""
    installed.write(f"{PARTS}/other+es9.part", TEXT)
    for changes in (UNINSTALL, UNINSTALL[:1], UNINSTALL[1:2]):
        assert f"it stays for {PARTS}/other+es9.part" in refused(installed, shell, *changes)
    done(installed, shell, *back(UNINSTALL))  # an installation beside it is made


def test_parts_that_cannot_be_listed_keep_what_is_shared(installed: HostTree, shell: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("changing the user needs root")
    installed.at(PARTS).chmod(0o711)
    said = refused(installed, f"exec {shlex.join(as_nobody())} {shell}", UNINSTALL[1])
    assert f"{PARTS} cannot be read" in said


# -- our lines in files of others

AROUND = [
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
    (
        "# BEGIN orchestrate other\nb\n# END orchestrate other\n",
        "# BEGIN orchestrate other\nb\n# END orchestrate other\n{block}\n",
    ),
    ("% \\n $HOME `id` '\" -n\n", "% \\n $HOME `id` '\" -n\n{block}\n"),
    (ANY, ANY + "\n{block}"),
]
"""Files of others, and where our lines are put."""
MARKED = "# BEGIN orchestrate sysctl\n{}# END orchestrate sysctl\n"


def test_our_lines_come_and_go_and_every_other_byte_stays(tree: HostTree, shell: str) -> None:
    files = {f"/etc/rc/{number}": around for number, around in enumerate(AROUND)}
    for path, (before, _) in files.items():
        tree.write(path, before)
        tree.at(path).chmod(0o600)
    changes = [block(LINES, path) for path in files]
    there_and_back(tree, shell, *changes)
    done(tree, shell, *changes)
    for path, (_, after) in files.items():
        ours = MARKED.format(LINES).removesuffix("\n")
        assert tree.at(path).read_bytes() == after.replace("{block}", ours).encode()
    others = [block("c = 3", path, LINES) for path in files]
    before = tree.snapshot()
    done(tree, shell, *others)
    done(tree, shell, *back(others))
    assert tree.snapshot() == before


def test_lines_of_any_kind_and_of_two_tunables(tree: HostTree, shell: str) -> None:
    kinds = {f"/etc/kind/{number}": lines for number, lines in enumerate((LINES[:-1], "", "\n", "one"))}
    tree.folder("/etc/kind")
    for path in kinds:
        tree.write(path, "a = 1")
    there_and_back(tree, shell, *(block(lines, path) for path, lines in kinds.items()))
    made: list[Change] = []
    removed: list[Change] = []
    for number, before in enumerate(("a = 1\n", "a = 1", "", "b\nexit 0\n") * 2):
        tree.write(path := f"/etc/two/{number}", before)
        both = [
            BlockChange(path=path, name=name, found=None, wanted=f"{name} = 1") for name in ("one", "two")
        ]
        made += both
        removed += back(both) if number < 4 else [change.undone() for change in both]
    before = tree.snapshot()
    done(tree, shell, *made)
    done(tree, shell, *removed)
    assert tree.snapshot() == before
    # What others add behind our lines stays.
    tree.write(SHARED, "a = 1\n")
    done(tree, shell, block())
    tree.at(SHARED).write_text(f"{tree.read(SHARED)}z = 9")
    done(tree, shell, block().undone())
    assert tree.read(SHARED) == "a = 1\nz = 9"


def test_lines_that_are_not_as_we_left_them_are_left_alone(tree: HostTree, shell: str) -> None:
    tree.at(SHARED).unlink(missing_ok=True)
    assert "there is no file" in refused(tree, shell, block())
    for stands, found, said in [
        (MARKED.format("theirs\n"), LINES, CHANGED_SINCE),
        (MARKED.format(LINES + "theirs\n"), LINES, CHANGED_SINCE),
        (MARKED.format(LINES), None, CHANGED_SINCE),
        ("a = 1\n", LINES, CHANGED_SINCE),
        ("# BEGIN orchestrate sysctl\na = 1\n", None, "not there once each"),
        ("a\n# END orchestrate sysctl\n", None, "not there once each"),
        (MARKED.format("") * 2, None, "not there once each"),
        ("# END orchestrate sysctl\n# BEGIN orchestrate sysctl\n", None, "is before"),
        ("a\0b\n", None, "no text"),
    ]:
        tree.write(SHARED, stands)
        assert said in refused(tree, shell, block("c = 3\n", found=found)), stands


# -- services and tuned


def test_a_service_of_systemd(tree: HostTree, shell: str) -> None:
    for number, (found, wanted, steps) in enumerate(
        [
            (RUNS, MASKED, "stop disable mask"),
            (RUNS, OFF, "stop disable"),
            (ENABLED, MASKED, "disable mask"),
            (MASKED, RUNS, "unmask enable start"),
        ]
    ):
        name = f"numad{number}"
        tree.service(name, running=found.running, enabled=found.enabled, masked=found.masked)
        there_and_back(tree, shell, ServiceChange(service=name, found=found, wanted=wanted))
        calls = [line.split()[1] for line in tree.calls("systemctl") if line.endswith(f" {name}")]
        made = [verb for verb in calls if not verb.startswith("is-")]
        assert made[: len(steps.split())] == steps.split()
    tree.service("numad")
    tree.first("systemctl", '[ "$1" != mask ] || { echo "Connection timed out" >&2; exit 1; }')
    change = ServiceChange(service="numad", found=RUNS, wanted=MASKED)
    said = refused(tree, shell, change, kind=InDoubt)
    assert "masked no" in said
    assert "Connection timed out" in said


@pytest.mark.parametrize("tool", ["chkconfig", "update-rc.d"])
def test_a_service_of_sysv(tmp_path: Path, shell: str, tool: str) -> None:
    tree = HostTree(tmp_path / "host")
    tree.sysv()
    if tool == "update-rc.d":
        tree.without("chkconfig")
    tree.service("numad")
    there_and_back(tree, shell, ServiceChange(service="numad", found=RUNS, wanted=OFF))
    off, on = ("off", "on") if tool == "chkconfig" else ("disable", "enable")
    calls = tree.calls("service", "chkconfig", "update-rc.d")
    assert [line for line in calls if not line.endswith("status")] == [
        "service numad stop",
        f"{tool} numad {off}",
        f"{tool} numad {on}",
        "service numad start",
    ]


def test_a_profile_of_tuned(tree: HostTree, shell: str) -> None:
    found = "throughput-performance"
    tree.tuned(found, {"balanced": {}, "orchestrate": {}})
    for wanted in ("orchestrate", None, "balanced orchestrate"):
        there_and_back(tree, shell, TunedChange(found=found, wanted=wanted))
    assert "doesn't exist" in refused(tree, shell, TunedChange(found=found, wanted="nope"))
    # Under a name that no machine has: this one may have tuned.
    other = ("tuned-adm", "no-such-adm")
    said = refused(tree, shell, TunedChange(found=found, wanted="orchestrate"), renamed=other)
    assert "there is no no-such-adm" in said
    tree.program("tuned-adm", '[ "$1" = active ] || head -c 3000000 /dev/zero | tr "\\0" x >&2; exit 1\n')
    said = refused(tree, shell, TunedChange(found=None, wanted="orchestrate"))
    assert "the profile is off instead of orchestrate" in said
    assert len(said) < 3000, "a flood of megabytes is a short refusal"


# -- several changes


@pytest.fixture
def several(tree: HostTree) -> tuple[Change, ...]:
    """One of each kind, on a host where everything is wrong."""
    tree.write("/run/udev/control", "")
    tree.write(SHARED, "a = 1")
    tree.service("numad")
    tree.tuned("balanced")
    drop_in = f"{FOLDERS[0]}/90-orchestrate.conf"
    return (
        file("/etc/tuned/orchestrate/tuned.conf", None, "[main]\ninclude=balanced\n"),
        TunedChange(found="balanced", wanted="orchestrate"),
        value("never", THP, "always"),
        value("1"),
        ServiceChange(service="numad", found=RUNS, wanted=MASKED),
        FileChange(path=drop_in, found=None, wanted=TEXT, reload=Reload.SYSTEMD),
        block(),
    )


def test_changes_of_every_kind_in_order_and_back(
    tree: HostTree, several: tuple[Change, ...], shell: str
) -> None:
    there_and_back(tree, shell, *several)


def test_behind_the_first_that_fails_nothing_is_done(tree: HostTree, shell: str) -> None:
    wrong, right = value("inherit", THP, "always"), value("1")
    refused(tree, shell, wrong, right)
    said = refused(tree, shell, right, wrong, file(), kind=InDoubt)
    assert f"change 2 of 3 ({THP})" in said
    assert "1 change made" in said
    assert not tree.at(OURS).exists()
    # Of what was there already somebody made a part: nothing may say that the host is as before.
    refused(tree, shell, right, wrong, kind=InDoubt)


KILLED_TEE = """calls=$(($(cat "$root/tmp/calls" 2>/dev/null || echo 0) + 1)); echo $calls >"$root/tmp/calls"
[ ! -e "$root/tmp/before_$calls" ] || kill -9 0
"$root/bin/plain-tee" "$@"; code=$?
[ ! -e "$root/tmp/after_$calls" ] || kill -9 0
exit $code
"""


def test_killed_anywhere_it_is_completed_and_undone(
    tree: HostTree, several: tuple[Change, ...], shell: str
) -> None:
    tree.program("plain-tee", TEE)
    tree.program("tee", KILLED_TEE)
    settings, action = tree.settings(), TuneHost(node=NodeName("es1"), tunable="thp", changes=several)
    line = f"{shell} -c {shlex.quote(tuning_script(settings, several))}"
    found = tree.snapshot()
    for moment in [f"{when}_{call}" for call in range(1, 6) for when in ("before", "after")]:
        tree.write("/tmp/calls", "0")
        tree.write(f"/tmp/{moment}", "")
        killed = tree.connection().run(line, timeout=60.0)
        assert isinstance(killed, Lost), moment
        assert not killed.timed_out
        cut_off = read_outcome(settings, action, CommandResult(exit=137, stdout=killed.output))
        assert isinstance(cut_off, InDoubt)
        assert tree.snapshot() != found or moment == "before_1"
        tree.remove(f"/tmp/{moment}")
        if moment.startswith("before"):
            done(tree, shell, *several)
        # What was not made is found undone, as whoever undoes only what was written sees it.
        done(tree, shell, *back(several))
        assert tree.snapshot() == found, moment


CUT_TEE = """head -c "$(cat "$root/tmp/bytes")" >"$1"
kill -9 0
"""
CONF = "# Riak\nnodename = riak@riak1\nring_size = 64\n"


def test_a_file_that_a_kill_cuts_is_whole_again(
    tree: HostTree, shell: str, subtests: pytest.Subtests
) -> None:
    """`tee` empties a file and then writes it: cut above our lines, in them or below; also when undone."""
    around = CONF + "# BEGIN orchestrate sysctl\nold = 1\n# END orchestrate sysctl\nlisten = 1\n"
    old = block("old = 1", found=None), block("old = 2\n", found="old = 1"), block(None, found="old = 1")
    home = tree.at("/home")
    home.mkdir()
    rows: list[tuple[str | None, BlockChange | FileChange]] = [(CONF, block()), (CONF, old[0])]
    for text, change in [*rows, (around, old[1]), (around, old[2]), (None, file())]:
        for size in (0, 9, 50, 75, 85):
            with subtests.test(text=text, change=change, size=size):
                path = change.path
                tree.write(path, text or "")
                if text is None:
                    tree.remove(path)
                line = tuning_script(tree.settings(), [change])
                sent = f"HOME={home}; export HOME; {shell} -c {shlex.quote(line)}"
                tree.program("tee", CUT_TEE)
                tree.write("/tmp/bytes", str(size))
                assert isinstance(tree.connection().run(sent, timeout=60.0), Lost)
                tree.program("tee", TEE)
                for _ in range(2):
                    found = tree.connection().run(sent, timeout=60.0)
                    action = TuneHost(node=NodeName("es1"), tunable="sysctl", changes=(change,))
                    assert isinstance(found, CommandResult)
                    assert isinstance(read_outcome(tree.settings(), action, found), Done), found.stdout
                now = tree.at(path).read_text()
                if isinstance(change, BlockChange):
                    assert text is not None
                    assert now == with_block(text, "sysctl", change.wanted)
                    assert [each for each in home.rglob("*") if each.is_file()] == []
                else:
                    assert now == TEXT
    tree.write(SHARED, CONF)
    sent = f"HOME={home}; export HOME; {shell} -c {shlex.quote(tuning_script(tree.settings(), [block()]))}"
    tree.program("tee", CUT_TEE)
    tree.connection().run(sent, timeout=60.0)
    tree.program("tee", TEE)
    tree.write(SHARED, "repaired = 1\n")
    tree.connection().run(sent, timeout=60.0)
    assert tree.at(SHARED).read_text() == with_block("repaired = 1\n", "sysctl", LINES), "by hand"


def test_what_a_kill_left_does_not_hide_a_later_change(tree: HostTree, shell: str) -> None:
    """The kill came when the file was whole. An administrator cuts it to its first line weeks later."""
    home = tree.at("/home")
    home.mkdir()
    kept = home / ".orchestrate-kept" / Path("/proc/sys/kernel/hostname").read_text().strip() / OURS[1:]
    here = f"HOME={home} {shell}"
    for resumed in (True, False):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("")
        Path(f"{kept}.new").write_text(TEXT)
        tree.write(OURS, TEXT)
        found = "ours of old\n"
        if resumed:
            assert done(tree, here, file()).startswith("0 changes made, 1 made before")
            assert not kept.exists()
            tree.write(OURS, TEXT.splitlines(keepends=True)[0])
            found = TEXT
        changed = file(found=found, wanted="vm.swappiness = 10\n")
        assert CHANGED_SINCE in refused(tree, here, changed), "also where a whole kept text stands"


# -- rights


@pytest.mark.parametrize("sudo", [Sudo.PASSWORDLESS, Sudo.PASSWORD])
def test_exactly_the_commands_of_sudoers_go_through_sudo(
    tree: HostTree, several: tuple[Change, ...], shell: str, sudo: Sudo
) -> None:
    if sudo is Sudo.PASSWORD:
        tree.write("/.state/password", PASSWORD)
    done(tree, shell, *several, sudo=sudo)
    done(tree, shell, *back(several), sudo=sudo)
    asked = {re.sub(r"^sudo (-[nkS] |-p  )*", "", line) for line in tree.calls("sudo")} - {"-v"}
    allowed = {command for change in several for command in plain_commands(change)}
    assert {line.replace(str(tree.path), "") for line in asked} == allowed
    assert tree.said("leaks") == []


def test_a_password_reaches_sudo_alone(tree: HostTree, shell: str) -> None:
    tree.write("/.state/password", PASSWORD)
    # Of this one sudo reads no password: what comes first on its input is the file's.
    tree.write("/.state/sudo-without-password", f"tee {tree.at(OURS)}\n")
    done(tree, shell, value("never", THP, "always"), file(), sudo=Sudo.PASSWORD)
    assert tree.read(OURS) == TEXT
    assert tree.said("leaks") == []
    assert [name for name, text in tree.files().items() if PASSWORD in text] == ["/.state/password"]


def test_a_wrong_password_is_tried_once(tree: HostTree, shell: str) -> None:
    tree.write("/.state/password", PASSWORD)
    tree.service("numad")
    change = ServiceChange(service="numad", found=RUNS, wanted=MASKED)
    found = tune(tree, shell, change, sudo=Sudo.PASSWORD, password="let me in")  # noqa: S106  (a wrong one)
    assert isinstance(found, Refused)
    assert "sudo refused" in found.reason
    assert tree.said("attempts") == ["attempt"]


def test_the_fake_sudo_sees_a_password_on_a_command_line(tree: HostTree) -> None:
    # The test above is no formality. Its password is another one: that test may run at the same time.
    shown = "another sesame"
    tree.write("/.state/password", shown)
    line = f": '{shown}'; sudo -k -n true; exit 0"
    assert isinstance(tree.connection().run(line, timeout=10.0), CommandResult)
    assert tree.said("leaks") != []


def test_one_command_that_sudo_refuses_is_told_by_its_tunable(tree: HostTree, shell: str) -> None:
    tree.refuse_sudo(f"tee {tree.at(OURS)}")
    only = refused(tree, shell, file(), sudo=Sudo.PASSWORDLESS)
    assert only.startswith("thp: change 1 of 1")
    assert f"sudo refused `tee {tree.at(OURS)}`: " in only
    assert "not as written" not in only
    assert "docs/how-to/least-rights.md (Host tuning)" in only
    refused(tree, shell, value("never", THP, "always"), file(), sudo=Sudo.PASSWORDLESS, kind=InDoubt)
    assert not tree.at(OURS).exists()


def test_without_rights_nothing_is_altered(tree: HostTree, shell: str) -> None:
    tree.write(OURS, "theirs to read\n")
    tree.at(OURS).chmod(0o600)
    tree.write(SHARED, "a = 1\n")
    for change, said in (
        (value("1"), "Permission denied"),
        (file(found="theirs to read\n"), "permission denied"),
        (file(f"{OURS}.new"), "Permission denied"),
        (block(), "Permission denied"),
    ):
        assert said in refused(tree, f"{shlex.join(as_nobody())} {shell}", change)


def test_a_shell_without_a_printf_of_its_own_gets_no_password(tree: HostTree) -> None:
    tree.write("/.state/password", PASSWORD)
    settings = tree.settings(sudo=Sudo.PASSWORD, sudo_password=lambda: PASSWORD)
    script = f"enable -n printf; {tuning_script(settings, (value('1'),))}"
    line = shlex.join([*shell_words("bash"), "-c", script])
    found = tree.connection().run(line, timeout=20.0, stdin=f"{PASSWORD}\n")
    assert isinstance(found, CommandResult)
    action = TuneHost(node=NodeName("es1"), tunable="vm", changes=(value("1"),))
    result = read_outcome(settings, action, found)
    assert isinstance(result, Refused)
    assert "which this shell would show to every user" in result.reason
    assert tree.said("leaks") == tree.said("attempts") == []


# -- answers that are not whole


def test_read_outcome_of_whole_and_of_other_answers(subtests: pytest.Subtests) -> None:
    def first(code: int) -> str:
        return part("change-1", "", code)

    def second(code: int) -> str:
        return part("change-2", "hm", code)

    started = part("tuning", "")
    action = TuneHost(node=NodeName("es1"), tunable="thp", changes=(value("never", THP, "always"),) * 2)
    for answer, verdict, truncated in [
        ("Welcome to es1\n" + started + first(0) + second(0), Done, 0),
        (started + first(0), InDoubt, 0),
        (started, InDoubt, 0),
        (started + first(0) + second(1), InDoubt, 0),
        (started + second(0), InDoubt, 0),
        (started + first(1), Refused, 0),
        (started + first(2), InDoubt, 0),
        (started + first(77), InDoubt, 0),
        ("This account is currently not available.\n", Refused, 0),
        ("", Refused, 0),
        ("x" * 60_000, InDoubt, 100_000_000),
    ]:
        with subtests.test(answer=answer[:300]):
            result = CommandResult(exit=1, stdout=answer, truncated=truncated)
            settings = HostSettings(node=NodeName("es1"), address="es1")
            assert isinstance(read_outcome(settings, action, result), verdict)


# -- two programs at once


@pytest.fixture
def held(tree: HostTree) -> Iterator[int]:
    """A turn that another program has on the host."""
    folder = os.open(tree.at("/etc"), os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    yield folder
    os.close(folder)


def test_a_host_is_changed_by_one_program_at_a_time(tree: HostTree, shell: str, held: int) -> None:
    """One that reads a file while the other has cut it short to write it would lose what others wrote."""
    tree.write(SHARED, "")

    def end() -> None:
        tree.write(SHARED, "a = 1\n")
        fcntl.flock(held, fcntl.LOCK_UN)

    rest = threading.Timer(1.5, end)
    rest.start()
    done(tree, shell, block("b = 2"))
    rest.join()
    assert str(tree.read(SHARED)).startswith("a = 1\n# BEGIN orchestrate sysctl\n")


@pytest.mark.usefixtures("held")
def test_a_host_that_another_program_keeps_is_left(tree: HostTree, shell: str) -> None:
    turn = (f"-ge {TURN_SECONDS} ]", "-ge 1 ]")
    assert "another program is tuning this host" in refused(tree, shell, value("1"), renamed=turn)
    assert tree.calls("tee") == ()


def test_what_is_started_does_not_keep_the_turn(tree: HostTree, shell: str) -> None:
    """A daemon of an init script inherits what its starter has open, and lives on."""
    tree.first("tee", 'ls -l /proc/self/fd >"$root/tmp/open"')
    done(tree, shell, value("1"))
    assert str(tree.at("/etc")) not in tree.at("/tmp/open").read_text()
