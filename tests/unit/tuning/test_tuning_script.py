"""The scripts that change a host, run for real under each shell, on a folder that stands for the host."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from orchestrator.hosts.connection import CommandResult, Lost, Outcome
from orchestrator.model.action import ActionResult, Done, InDoubt, Refused, TuneHost
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings, Sudo
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
from orchestrator.tuning.blocks import with_block
from orchestrator.tuning.tuning_script import TURN_SECONDS, read_outcome, tuning_script
from tests.fakes.cases import rows
from tests.fakes.framing import part
from tests.fakes.host_tools import TEE
from tests.fakes.host_tree import HostTree
from tests.fakes.sudoers_lines import plain_commands
from tests.tools import SHELLS, as_nobody, shell_words

PASSWORD = "open sesame"  # noqa: S105  (of a fake)
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
SWAPPINESS = "/proc/sys/vm/swappiness"
OURS = "/etc/sysctl.d/90-orchestrate.conf"
SHARED = "/etc/sysctl.conf"
TEXT = "# ours\nvm.swappiness = 1\n"
LINES = "vm.swappiness = 1\nvm.zone_reclaim_mode = 0\n"
ROWS = rows("tuning/changes.yml")
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


def back(*changes: Change) -> tuple[Change, ...]:
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
        done(tree, shell, *back(*changes))
        assert tree.snapshot() == before


def sent(tree: HostTree, shell: str, *changes: Change, tee: str = TEE, home: str = "") -> Outcome:
    """What comes of the script under another `tee`, which may be killed with it."""
    tree.program("tee", tee)
    line = f"{shell} -c {shlex.quote(tuning_script(tree.settings(), changes))}"
    found = tree.connection().run(f"HOME={home or '$HOME'}; export HOME; {line}", timeout=60.0)
    tree.program("tee", TEE)
    return found


# -- made, and undone


FOLDERS = (
    *("/etc/systemd/system/es.service.d", "/etc/tuned/orchestrate", "/etc/tuned/profiles/orchestrate"),
    "/etc/tune-profiles/orchestrate",
)
DROP_IN = f"{FOLDERS[0]}/90-orchestrate.conf"
THEIRS = "/etc/systemd/system/theirs.service.d/limits.conf"
MARKED = "# BEGIN orchestrate sysctl\n{}# END orchestrate sysctl\n"


@pytest.fixture
def several(tree: HostTree) -> tuple[Change, ...]:
    """One of each kind, on a host where everything is wrong."""
    tree.write(SHARED, "a = 1")
    tree.service("numad")
    tree.tuned("balanced")
    return (
        file("/etc/tuned/orchestrate/tuned.conf", None, "[main]\ninclude=balanced\n"),
        TunedChange(found="balanced", wanted="orchestrate"),
        value("never", THP, "always"),
        value("1"),
        ServiceChange(service="numad", found=RUNS, wanted=MASKED),
        FileChange(path=DROP_IN, found=None, wanted=TEXT, reload=Reload.SYSTEMD),
        block(),
    )


def test_changes_of_every_kind_are_made_and_undone(
    tree: HostTree, several: tuple[Change, ...], shell: str
) -> None:
    """Every other byte of a file of others stays, and a file of ours keeps its mode."""
    texts = {f"/etc/sysctl.d/{number}.conf": text for number, text in enumerate((*ROWS["texts"], ANY))}
    blocks = (*ROWS["blocks"], (ANY, ANY + "\n{block}"))
    files = {f"/etc/rc/{number}": around for number, around in enumerate(blocks)}
    kinds = {f"/etc/kind/{number}": lines for number, lines in enumerate((LINES[:-1], "", "\n", "one"))}
    for path, text in ((THEIRS, "theirs\n"), (OURS, "vm.swappiness = 10"), *kinds.items()):
        tree.write(path, text)
    for path, (text, _) in files.items():
        tree.write(path, text)
        tree.at(path).chmod(0o600)
    for folder in FOLDERS:
        tree.at(folder).parent.mkdir(parents=True, exist_ok=True)
    tree.at(OURS).chmod(0o640)
    changes = (
        *several,
        *(file(path, None, text) for path, text in texts.items()),
        *(file(f"{folder}/a.conf") for folder in (*FOLDERS, THEIRS.rpartition("/")[0])),
        file(OURS, "vm.swappiness = 10"),
        *(block(LINES, path) for path in files),
        *(block(lines, path) for path, lines in kinds.items()),
    )
    there_and_back(tree, shell, *changes)
    done(tree, shell, *changes)
    for path, text in texts.items():
        assert tree.at(path).read_bytes() == text.encode()
        assert tree.at(path).stat().st_mode & 0o7777 == 0o644
    assert tree.at(OURS).stat().st_mode & 0o7777 == 0o640
    for path, (_, after) in files.items():
        assert tree.at(path).read_bytes() == after.replace("{block}", MARKED.format(LINES)[:-1]).encode()
    there_and_back(tree, shell, *(block("c = 3", path, LINES) for path in files))


def test_value_change_says_what_it_made_and_read_back(tree: HostTree, shell: str) -> None:
    assert done(tree, shell, value("1")) == f"1 change made and read back: {SWAPPINESS}"
    tcp, bare = "/proc/sys/net/ipv4/tcp_rmem", "/sys/block/loop0/queue/scheduler"
    tree.write(tcp, "4096\t131072\t6291456\n")
    tree.write(bare, "none\n")
    written = len(tree.calls("tee"))
    same = (value("4096 131072  6291456", tcp), value("none", bare))
    assert done(tree, shell, *same).startswith("0 changes made, 2 made before")
    assert len(tree.calls("tee")) == written, "tabs and blanks of a value are the same"


def test_a_strict_umask_does_not_hide_our_files(tree: HostTree, shell: str) -> None:
    tree.first("tee", "umask 077")  # as `Defaults umask=0077` in a sudoers file
    tree.program("mkdir", 'umask 077; exec "$root/toolbox/mkdir" "$@"\n')
    done(tree, shell, file(DROP_IN), umask=0o077)
    assert tree.at(DROP_IN).stat().st_mode & 0o777 == 0o644
    assert tree.at(DROP_IN).parent.stat().st_mode & 0o777 == 0o755


def test_reload_of_those_who_read_a_file(tree: HostTree, shell: str) -> None:
    unit = FileChange(path="/etc/systemd/system/thp.service", found=None, wanted=TEXT, reload=Reload.SYSTEMD)
    tree.at("/run/systemd/system").rmdir()
    done(tree, shell, unit)
    assert tree.calls("systemctl") == ()
    tree.folder("/run/systemd/system")
    # Also when the file is there already: a crash may have come between the two.
    done(tree, shell, unit)
    done(tree, shell, *back(unit))
    assert tree.calls("systemctl") == ("systemctl daemon-reload",) * 2
    tree.program("systemctl", "exit 1\n")
    assert "systemd did not read it" in refused(tree, shell, unit, kind=InDoubt)


def test_lines_of_two_tunables_go_in_any_order(tree: HostTree, shell: str) -> None:
    made: list[Change] = []
    removed: list[Change] = []
    for number, before in enumerate(("a = 1\n", "a = 1", "", "\n") * 2):
        tree.write(path := f"/etc/two/{number}", before)
        both = [
            BlockChange(path=path, name=name, found=None, wanted=f"{name} = 1") for name in ("one", "two")
        ]
        made += both
        removed += back(*both) if number < 4 else [change.undone() for change in both]
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


def test_a_service_of_systemd(tree: HostTree, shell: str) -> None:
    changes = []
    for number, (found, wanted, _) in enumerate(ROWS["services"]):
        tree.service(f"s{number}", **asdict(mode(found)))
        changes.append(ServiceChange(service=f"s{number}", found=mode(found), wanted=mode(wanted)))
    there_and_back(tree, shell, *changes)
    calls = [line.split() for line in tree.calls("systemctl") if " is-" not in line]
    for number, (*_, verbs) in enumerate(ROWS["services"]):
        assert [verb for _, verb, name in calls if name == f"s{number}"] == verbs.split()
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
    # Under a name that no machine has: this one may have tuned.
    other = ("tuned-adm", "no-such-adm")
    said = refused(tree, shell, TunedChange(found=found, wanted="orchestrate"), renamed=other)
    assert "there is no no-such-adm" in said
    tree.program("tuned-adm", '[ "$1" = active ] || head -c 3000000 /dev/zero | tr "\\0" x >&2; exit 1\n')
    said = refused(tree, shell, TunedChange(found=None, wanted="orchestrate"))
    assert "the profile is off instead of orchestrate" in said
    assert len(said) < 3000, "a flood of megabytes is a short refusal"


# -- refused, and everything as it was


def mode(words: str) -> ServiceMode:
    """`running`, `enabled`, `masked`, as far as they hold."""
    return ServiceMode(**{name: name in words.split() for name in ("running", "enabled", "masked")})


def change_of(row: dict[str, Any]) -> Change:
    """The change of a row, by its kind and the values in order."""
    kinds: dict[str, Callable[..., Change]] = {
        "value": lambda path, found, wanted: value(wanted, path, found),
        "file": file,
        "block": lambda path, found, wanted: block(wanted, path, found),
        "tuned": lambda found, wanted: TunedChange(found=found, wanted=wanted),
    }
    ((kind, values),) = ((name, row[name]) for name in kinds if name in row)
    return kinds[kind](*values)


def test_refused_changes_leave_everything_as_it_was(tree: HostTree, shell: str) -> None:
    tree.tuned("balanced")
    tree.at("/etc/a-link-to-nothing").symlink_to("/nowhere/at/all")
    for row in ROWS["refused"]:
        change = change_of(row)
        if "is" in row and isinstance(change, ValueChange | FileChange | BlockChange):
            tree.write(change.path, row["is"])
        assert row["says"] in refused(tree, shell, change), row
    tree.stuck(SWAPPINESS)
    assert "reads 60 instead of 1" in refused(tree, shell, value("1"))
    tree.write("/sys/block/sdb/queue/read_ahead_kb", "128\n")
    tree.program("tee", 'cat >/dev/null; echo 64 >"$1"\n')
    rounded = value("65", "/sys/block/sdb/queue/read_ahead_kb", "128")
    assert "reads 64 instead of 65" in refused(tree, shell, rounded, kind=InDoubt)


def test_a_full_disk_leaves_what_was_there(tree: HostTree, shell: str) -> None:
    tree.first(
        "tee",
        '[ -e "$root/tmp/room" ] || { head -c 10 >"$1"; : >"$root/tmp/room"\n'
        '    echo "tee: $1: No space left on device" >&2; exit 1; }',
    )
    old = "of old, and longer than ten bytes\n"
    tree.write(SHARED, "more than ten bytes = 1\n")
    tree.write(f"{OURS}.old", old)
    for change in (file(), file(DROP_IN), file(f"{OURS}.old", old), block()):
        tree.at("/tmp/room").unlink(missing_ok=True)
        assert "No space left on device" in refused(tree, shell, change)


def test_behind_the_first_that_fails_nothing_is_done(tree: HostTree, shell: str) -> None:
    wrong, right = value("inherit", THP, "always"), value("1")
    refused(tree, shell, wrong, right)
    said = refused(tree, shell, right, wrong, file(), kind=InDoubt)
    assert f"change 2 of 3 ({THP})" in said
    assert "1 change made" in said
    assert not tree.at(OURS).exists()
    # Of what was there already somebody made a part: nothing may say that the host is as before.
    refused(tree, shell, right, wrong, kind=InDoubt)


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


def test_what_parts_share_goes_with_the_last_part_alone(installed: HostTree, shell: str) -> None:
    """Another cluster installs its own part while this one removes the last part that it has read."""
    installed.write(f"{PARTS}/other+es9.part", TEXT)
    for changes in (UNINSTALL, UNINSTALL[:1], UNINSTALL[1:2]):
        assert f"it stays for {PARTS}/other+es9.part" in refused(installed, shell, *changes)
    done(installed, shell, *back(*UNINSTALL))  # an installation beside it is made
    installed.remove(f"{PARTS}/other+es9.part")
    done(installed, shell, *UNINSTALL)
    assert not installed.at(PARTS).exists()
    assert "systemctl disable orchestrate-tuning" in installed.calls("systemctl")


def test_parts_that_cannot_be_listed_keep_what_is_shared(installed: HostTree, shell: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("changing the user needs root")
    installed.at(PARTS).chmod(0o711)
    said = refused(installed, f"exec {shlex.join(as_nobody())} {shell}", UNINSTALL[1])
    assert f"{PARTS} cannot be read" in said


# -- killed

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
    action = TuneHost(node=NodeName("es1"), tunable="thp", changes=several)
    found = tree.snapshot()
    for moment in [f"{when}_{call}" for call in range(1, 6) for when in ("before", "after")]:
        tree.write("/tmp/calls", "0")
        tree.write(f"/tmp/{moment}", "")
        killed = sent(tree, shell, *several, tee=KILLED_TEE)
        assert isinstance(killed, Lost), moment
        assert not killed.timed_out
        cut_off = read_outcome(tree.settings(), action, CommandResult(exit=137, stdout=killed.output))
        assert isinstance(cut_off, InDoubt)
        assert tree.snapshot() != found or moment == "before_1"
        if moment.startswith("before"):
            done(tree, shell, *several)
        # What was not made is found undone, as whoever undoes only what was written sees it.
        done(tree, shell, *back(*several))
        assert tree.snapshot() == found, moment
        tree.remove(f"/tmp/{moment}")


CUT_TEE = """head -c "$(cat "$root/tmp/bytes")" >"$1"
kill -9 0
"""
CONF = "# Riak\nnodename = riak@riak1\nring_size = 64\n"


def test_a_file_that_a_kill_cuts_is_whole_again(
    tree: HostTree, shell: str, subtests: pytest.Subtests
) -> None:
    """`tee` empties a file and then writes it: cut above our lines, in them or below; also when undone."""
    around = CONF + "# BEGIN orchestrate sysctl\nold = 1\n# END orchestrate sysctl\nlisten = 1\n"
    old = block("old = 1"), block("old = 2\n", found="old = 1"), block(None, found="old = 1")
    home = tree.at("/home")
    home.mkdir()
    blocks = [(CONF, block()), (CONF, old[0]), (around, old[1]), (around, old[2])]
    rows: list[tuple[str | None, BlockChange | FileChange]] = [*blocks, (None, file())]
    for (text, change), size in itertools.product(rows, (0, 9, 50, 75)):
        with subtests.test(text=text, change=change, size=size):
            path = change.path
            tree.write(path, text or "")
            if text is None:
                tree.remove(path)
            tree.write("/tmp/bytes", str(size))
            assert isinstance(sent(tree, shell, change, tee=CUT_TEE, home=str(home)), Lost)
            for _ in range(2):
                done(tree, f"HOME={home} {shell}", change)
            whole = TEXT if text is None else with_block(text, "sysctl", change.wanted)
            assert tree.at(path).read_text() == whole
            assert text is None or [each for each in home.rglob("*") if each.is_file()] == []
    tree.write(SHARED, CONF)
    sent(tree, shell, block(), tee=CUT_TEE, home=str(home))
    tree.write(SHARED, "repaired = 1\n")
    sent(tree, shell, block(), home=str(home))
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
    """A password reaches sudo alone, also where one command needs none: its input begins with the text."""
    if sudo is Sudo.PASSWORD:
        tree.write("/.state/password", PASSWORD)
        tree.write("/.state/sudo-without-password", f"tee {tree.at(DROP_IN)}\n")
    done(tree, shell, *several, sudo=sudo)
    assert tree.read(DROP_IN) == TEXT
    done(tree, shell, *back(*several), sudo=sudo)
    asked = {re.sub(r"^sudo (-[nkS] |-p  )*", "", line) for line in tree.calls("sudo")} - {"-v"}
    allowed = {command for change in several for command in plain_commands(change)}
    assert {line.replace(str(tree.path), "") for line in asked} == allowed
    assert tree.said("leaks") == []
    assert {name for name, text in tree.files().items() if PASSWORD in text} <= {"/.state/password"}


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
    assert "`orchestrate explain least-rights` (host tuning)" in only
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
    action = TuneHost(node=NodeName("es1"), tunable="thp", changes=(value("never", THP, "always"),) * 2)
    for row in ROWS["answers"]:
        with subtests.test(row=row):
            codes = row.get("codes", {}).items()
            begun = part("tuning", "") if row.get("begun") else ""
            text = row.get("text", "") + begun + "".join(part(f"change-{n}", "hm", code) for n, code in codes)
            result = CommandResult(exit=1, stdout=text, truncated=row.get("truncated", 0))
            found = read_outcome(HostSettings(node=NodeName("es1"), address="es1"), action, result)
            assert type(found).__name__ == row["is"]


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
    turn = (f"turn={TURN_SECONDS}", "turn=1")
    assert "another program is tuning this host" in refused(tree, shell, value("1"), renamed=turn)
    assert tree.calls("tee") == ()


def test_what_is_started_does_not_keep_the_turn(tree: HostTree, shell: str) -> None:
    """A daemon of an init script inherits what its starter has open, and lives on."""
    tree.first("tee", 'ls -l /proc/self/fd >"$root/tmp/open"')
    done(tree, shell, value("1"))
    assert str(tree.at("/etc")) not in tree.at("/tmp/open").read_text()
