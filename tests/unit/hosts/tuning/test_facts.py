"""The facts of a host: one script, under every shell that is to be had, on file trees and on this machine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.facts import read_facts
from orchestrator.hosts.facts_script import ANSWER_BYTES, FILE_BYTES, facts_script
from orchestrator.hosts.settings import Connect, HostSettings, Manager, ServiceSettings
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_facts import BlockDevice, HostFacts, InitSystem, ServiceFacts
from orchestrator.model.reading import Unknown
from tests.fakes.asking import answer_of, facts_of, known_facts_of
from tests.fakes.host_kinds import KINDS, debian, rhel6, rhel7
from tests.fakes.host_tree import THP, THP_RHEL6, HostTree
from tests.tools import SHELLS, shell_words

EVERYTHING = Reads(
    files=(
        f"{THP}/enabled",
        f"{THP}/hugepages-*kB/enabled",
        f"{THP_RHEL6}/enabled",
        "/proc/sys/vm/swappiness",
        "/etc/sysctl.d/*.conf",
        "/etc/sysctl.conf",
        "/etc/systemd/system/{unit}.service.d/*.conf",
        "/usr/lib/systemd/system/{unit}.service",
        "/nowhere/at/all",
        "/etc/tmpfiles.d/",
        "/etc/no-such-folder/",
    ),
    services=("numad", "tuned", "ksmtuned"),
    queue=("scheduler",),
)
RUNS = ServiceFacts(present=True, running=True, enabled=True)


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return debian(tmp_path)


def reason(value: object) -> str:
    assert isinstance(value, Unknown), value
    return value.reason


def test_rhel6(tmp_path: Path) -> None:
    facts = known_facts_of(rhel6(tmp_path), [EVERYTHING])
    assert facts.init is InitSystem.SYSV
    assert (facts.cpus, facts.memory) == (24, 128 << 30)
    assert facts.text(f"{THP_RHEL6}/enabled") == "[always] madvise never\n"
    assert facts.text(f"{THP}/enabled") is None
    assert facts.text("/sys/block/sdb/queue/scheduler") == "noop deadline [cfq]\n"
    assert facts.services == {"numad": RUNS, "tuned": RUNS, "ksmtuned": ServiceFacts(present=False)}
    assert facts.tuned == "enterprise-storage"
    assert facts.unit == "elasticsearch"
    assert facts.devices == (
        BlockDevice(name="sdb", roles=("top", "leaf"), rotational=True, data_paths=("/data/es",)),
    )


def test_rhel7(tmp_path: Path) -> None:
    facts = known_facts_of(rhel7(tmp_path), [EVERYTHING])
    assert facts.init is InitSystem.SYSTEMD
    assert facts.text(f"{THP}/enabled") == "[always] madvise never\n"
    assert facts.text(f"{THP_RHEL6}/enabled") is None
    assert facts.text("/etc/tmpfiles.d/") == ""
    assert facts.text("/etc/no-such-folder/") is None
    assert facts.text("/usr/lib/systemd/system/elasticsearch.service") == "[Service]\n"
    assert facts.services == {"numad": RUNS, "tuned": RUNS, "ksmtuned": ServiceFacts(present=False)}
    assert facts.tuned == "throughput-performance"


def test_debian(tree: HostTree) -> None:
    facts = known_facts_of(tree, [EVERYTHING])
    assert facts.matching(f"{THP}/hugepages-", "/enabled") == tuple(
        f"{THP}/hugepages-{size}kB/enabled" for size in (1024, 2048, 64)
    )
    assert facts.tuned is None
    assert isinstance(facts.devices, tuple)
    assert [device.name for device in facts.devices] == ["nvme0n1"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shell", [*SHELLS, "bash --posix"])
def test_every_shell_reads_the_same(tmp_path: Path, kind: str, shell: str) -> None:
    name, *options = shell.split()
    tree = KINDS[kind](tmp_path)
    tree.write("/etc/sysctl.d/a b'c$(d).conf", "x = 1\nno end")
    usual = known_facts_of(tree, [EVERYTHING])
    words = shlex.split(facts_script(tree.settings(), [EVERYTHING]))
    ran = subprocess.run(  # noqa: S603  (the script under test)
        [*shell_words(name), *options, *words[1:]],
        env=tree.environment,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert read_facts(ran.stdout.decode(), tree.settings(), [EVERYTHING]) == usual


def test_this_machine() -> None:
    settings = HostSettings(
        node=NodeName("es1"), address="localhost", connect=Connect.LOCAL, data=("/dev/shm",)
    )
    result = LocalConnection().run(facts_script(settings, [EVERYTHING]), timeout=60, keep=ANSWER_BYTES)
    assert isinstance(result, CommandResult)
    assert result.exit == 0
    assert result.stderr == ""
    facts = read_facts(result.stdout, settings, [EVERYTHING])
    assert isinstance(facts, HostFacts), facts
    assert facts.cpus == os.cpu_count()
    assert facts.memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts.text("/proc/sys/vm/swappiness") == Path("/proc/sys/vm/swappiness").read_text()
    assert facts.text("/nowhere/at/all") is None
    assert facts.devices == ()  # memory


# What files may hold, and how they may be.


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\n", b"no end", b"two\nlines\n", b"\n\nblank\n\n", b"a\r\nb\r\n", b"  \t "),
        *(
            b"@facts-1 2 exit\n0\n@facts-1 3 end\n",
            b"\n@facts-12345678-abcd-ef00 9 exit\n0",
            b"%s %d \\n $(id)",
        ),
        *("gr\u00fc\u00df dich \u6570\u636e\n".encode(), b"x" * FILE_BYTES),
    ],
)
def test_a_file_is_read_as_it_is(tree: HostTree, content: bytes) -> None:
    tree.write("/etc/sysctl.conf", content)
    tree.write("/etc/sysctl.d/z.conf", "after\n")
    facts = known_facts_of(tree, [EVERYTHING])
    assert facts.text("/etc/sysctl.conf") == content.decode()
    assert facts.exact("/etc/sysctl.conf") == content.decode()
    assert facts.text("/etc/sysctl.d/z.conf") == "after\n"


@pytest.mark.parametrize("content", [b"# gr\xfc\xdfe\nx = 1\n", b"a\0b\nx = 1\n", b"\xff\xfe\0"])
def test_bytes_that_are_no_text_can_be_looked_through_but_not_put_back(
    tree: HostTree, content: bytes
) -> None:
    tree.write("/etc/sysctl.conf", content)
    facts = known_facts_of(tree, [EVERYTHING])
    assert facts.text("/etc/sysctl.conf") == content.decode(errors="replace")
    assert "no text in UTF-8" in reason(facts.exact("/etc/sysctl.conf"))
    assert facts.exact("/etc/nothing") is None


def test_a_mark_of_an_earlier_answer_ends_nothing(tree: HostTree) -> None:
    tree.write("/etc/sysctl.conf", answer_of(tree, [EVERYTHING]))
    facts = known_facts_of(tree, [EVERYTHING])
    assert facts.text("/etc/sysctl.conf") == tree.read("/etc/sysctl.conf")
    assert facts.services["numad"] == RUNS


@pytest.mark.parametrize(
    "name", ["a b.conf", "$(touch x).conf", "'q\".conf", "-n.conf", "new\nline.conf", "[a]*.conf"]
)
def test_a_file_may_be_called_anything(tree: HostTree, name: str) -> None:
    tree.write(f"/etc/sysctl.d/{name}", "x = 1\n")
    before = tree.files()
    facts = known_facts_of(tree, [EVERYTHING])
    assert facts.text(f"/etc/sysctl.d/{name}") == "x = 1\n"
    assert tree.files() == before


def test_a_hundred_megabytes_are_cut_off_and_cost_nothing_else(tree: HostTree) -> None:
    tree.write("/proc/sys/vm/swappiness", b"")
    with tree.at("/proc/sys/vm/swappiness").open("wb") as file:
        file.truncate(100 << 20)
    began = time.monotonic()
    answer = answer_of(tree, [EVERYTHING])
    assert len(answer) < 2 * FILE_BYTES
    facts = known_facts_of(tree, [EVERYTHING])
    assert f"longer than {FILE_BYTES} bytes" in reason(facts.text("/proc/sys/vm/swappiness"))
    assert facts.text(f"{THP}/enabled") == "[always] madvise never\n"
    assert isinstance(facts.devices, tuple)
    assert time.monotonic() - began < 30


def test_a_tool_that_prints_without_end_is_cut_off_and_costs_nothing_else(tree: HostTree) -> None:
    tree.program("systemctl", "while :; do printf '%65536s' x; done\n")
    facts = known_facts_of(tree, [EVERYTHING])
    assert "too long" in reason(facts.services["numad"])
    assert facts.tuned is None
    assert isinstance(facts.devices, tuple)


def test_the_whole_answer_is_bounded_and_what_did_not_fit_is_unknown(tree: HostTree) -> None:
    for number in range(40):
        tree.write(f"/etc/sysctl.d/{number:02}.conf", "x" * FILE_BYTES)
    answer = answer_of(tree, [EVERYTHING])
    assert len(answer.encode()) <= ANSWER_BYTES
    facts = read_facts(answer, tree.settings(), [EVERYTHING])
    assert isinstance(facts, HostFacts)
    assert facts.text("/etc/sysctl.d/00.conf") == "x" * FILE_BYTES
    assert "cut off" in reason(facts.text("/etc/sysctl.d/39.conf"))
    assert "cut off" in reason(facts.text("/sys/block/sda/queue/scheduler"))
    assert "cut off" in reason(facts.services["numad"])
    assert "cut off" in reason(facts.tuned)
    assert "cut off" in reason(facts.devices)


@pytest.mark.parametrize(
    ("path", "make", "why"),
    [
        ("/proc/sys/vm/swappiness", lambda at: at.symlink_to("/proc/self/mem"), "Input/output error"),
        ("/etc/sysctl.conf", lambda at: at.mkdir(), "a folder, not a file"),
        ("/etc/sysctl.conf", os.mkfifo, "no regular file"),
        ("/etc/sysctl.conf", lambda at: at.symlink_to("nothing"), "a link to nothing"),
        ("/etc/sysctl.conf", lambda at: at.symlink_to("/dev/zero"), "no regular file"),
    ],
)
def test_a_file_that_cannot_be_read_is_unknown(
    tree: HostTree, path: str, make: Callable[[Path], None], why: str
) -> None:
    tree.at(path).unlink(missing_ok=True)
    make(tree.at(path))
    facts = known_facts_of(tree, [EVERYTHING])
    assert reason(facts.text(path)).endswith(why)
    assert isinstance(facts.devices, tuple)


def test_a_file_masked_by_dev_null_is_an_empty_file(tree: HostTree) -> None:
    tree.at("/etc/sysctl.d/masked.conf").symlink_to("/dev/null")
    assert known_facts_of(tree, [EVERYTHING]).text("/etc/sysctl.d/masked.conf") == ""


@pytest.fixture
def shut() -> Iterator[Path]:
    """A folder that another user may enter: the usual ones of pytest are the owner's alone."""
    path = Path(mkdtemp())
    path.chmod(0o755)
    yield path
    for folder in ("etc/sysctl.d", "sys/dev/block", "etc/private"):
        if (path / folder).exists():
            (path / folder).chmod(0o755)
    shutil.rmtree(path)


def _as_nobody(tree: HostTree, reads: list[Reads]) -> HostFacts:
    """As an account without rights, whoever runs the tests."""
    drop = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    tree.at("/.log").chmod(0o666)
    ran = subprocess.run(  # noqa: S603  (the script under test)
        shlex.split(facts_script(tree.settings(), reads)),
        env=tree.environment,
        capture_output=True,
        check=True,
        timeout=60,
        **drop,  # type: ignore[call-overload]  # by keyword
    )
    facts = read_facts(ran.stdout.decode(), tree.settings(), reads)
    assert isinstance(facts, HostFacts), facts
    return facts


def test_what_this_account_may_not_read_is_unknown_and_never_absent(shut: Path) -> None:
    tree = debian(shut)
    tree.write("/etc/sysctl.d/x.conf", "vm.swappiness = 1\n")
    tree.write("/etc/private/es.conf", "x\n")
    tree.write("/etc/private/deep/er.conf", "x\n")
    tree.at(f"{THP}/enabled").chmod(0)
    tree.at("/etc/sysctl.d").chmod(0o311)
    tree.at("/etc/private").chmod(0)
    private = Reads(files=("/etc/private/es.conf", "/etc/private/deep/er.conf", "/etc/private/x/"))
    facts = _as_nobody(tree, [EVERYTHING, private])
    assert reason(facts.text(f"{THP}/enabled")).endswith("Permission denied")
    assert "may not be listed" in reason(facts.text("/etc/sysctl.d/x.conf"))
    assert facts.matching("/etc/sysctl.d/", ".conf") == ("/etc/sysctl.d/*.conf",)
    for path in ("/etc/private/es.conf", "/etc/private/deep/er.conf", "/etc/private/x"):
        assert "may not be searched" in reason(facts.text(path)), path
    assert facts.text("/nowhere/at/all") is None
    assert facts.text("/proc/sys/vm/swappiness") == "60\n"


def test_devices_that_may_not_be_looked_at_are_unknown(shut: Path) -> None:
    tree = debian(shut)
    tree.at("/sys/dev/block").chmod(0)
    facts = _as_nobody(tree, [EVERYTHING])
    assert "which /sys/dev/block does not show" in reason(facts.devices)


# Services and tuned.


@pytest.mark.parametrize(
    ("running", "enabled", "masked"),
    [
        (True, True, False),
        (False, True, False),
        (True, False, False),
        (False, False, False),
        (False, True, True),
    ],
)
def test_services_under_systemd(tree: HostTree, *, running: bool, enabled: bool, masked: bool) -> None:
    tree.service("ksmtuned", running=running, enabled=enabled, masked=masked)
    assert known_facts_of(tree, [EVERYTHING]).services["ksmtuned"] == ServiceFacts(
        present=True, running=running, enabled=enabled and not masked, masked=masked
    )


@pytest.mark.parametrize(("running", "enabled"), [(True, True), (False, True), (True, False), (False, False)])
def test_services_of_init_scripts(tmp_path: Path, *, running: bool, enabled: bool) -> None:
    tree = rhel6(tmp_path)
    tree.service("ksmtuned", running=running, enabled=enabled)
    found = known_facts_of(tree, [EVERYTHING]).services["ksmtuned"]
    assert found == ServiceFacts(present=True, running=running, enabled=enabled)


def test_an_init_script_counts_for_the_run_level_that_is_booted(tmp_path: Path) -> None:
    tree = rhel6(tmp_path)
    tree.service("ksmtuned", enabled=False)
    tree.link("/etc/rc5.d/S90ksmtuned", "/etc/init.d/ksmtuned")
    found = known_facts_of(tree, [EVERYTHING]).services["ksmtuned"]
    assert found == ServiceFacts(present=True, running=True, enabled=False)


SHOWN = "LoadState=loaded\\nActiveState=active\\nUnitFileState="


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (f"Id=a.service\\nNames=a.service\\n{SHOWN}enabled", RUNS),
        (f"Id=real.service\\nNames=real.service a.service\\n{SHOWN}enabled", RUNS),
        (f"Id=real.service\\n{SHOWN}enabled", RUNS),
        (f"Id=a.service\\n{SHOWN}enabled-runtime", replace(RUNS, enabled=False)),
        (f"Id=a.service\\n{SHOWN}static", replace(RUNS, enabled=False)),
        (f"Id=a.service\\n{SHOWN}generated", RUNS),  # from an init script: its links say
        (f"Id=a.service\\n{SHOWN}", RUNS),
        (f"Id=a.service\\n{SHOWN}masked", replace(RUNS, enabled=False, masked=True)),
    ],
)
def test_words_of_systemd(tree: HostTree, words: str, expected: ServiceFacts) -> None:
    tree.program("systemctl", f"printf '{words}\\n'\n")
    tree.link("/etc/rc3.d/S20a", "/etc/init.d/a")
    assert known_facts_of(tree, [Reads(services=("a",))]).services == {"a": expected}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo 'Failed to connect to bus: No such file' >&2; exit 1\n", "Failed to connect to bus"),
        ("exit 0\n", "exit 0"),
        ("printf 'Id=a.service\\nLoadState=error\\nActiveState=inactive\\n'\n", "error"),
        ("kill -9 $$\n", "no answer in time"),
    ],
)
def test_a_service_manager_that_gives_no_answer_is_unknown(tree: HostTree, body: str, why: str) -> None:
    tree.program("systemctl", body)
    assert why in reason(known_facts_of(tree, [Reads(services=("a",))]).services["a"])


def test_an_init_script_that_gives_no_answer_is_unknown(tmp_path: Path) -> None:
    tree = rhel6(tmp_path)
    tree.program("service", "echo 'you must be root' >&2; exit 4\n")
    assert "status exits 4: you must be root" in reason(known_facts_of(tree, [EVERYTHING]).services["numad"])


def test_services_of_a_host_with_neither_are_unknown(tree: HostTree) -> None:
    tree.at("/run/systemd/system").rmdir()
    facts = known_facts_of(tree, [EVERYTHING])
    assert facts.init is InitSystem.OTHER
    assert "neither systemd nor init scripts" in reason(facts.services["numad"])


@pytest.mark.parametrize(
    ("said", "code", "expected"),
    [
        ("Current active profile: virtual-guest", 0, "virtual-guest"),
        ("No current active profile.", 1, None),
        (
            "It seems that tuned daemon is not running, preset profile is not activated.\nPreset profile: x",
            1,
            None,
        ),
        (
            "Current active profile: off\nService tuned: enabled, running\nService ktune: enabled, running",
            0,
            None,
        ),
        (
            "Current active profile: x\nService tuned: disabled, stopped\nService ktune: disabled, stopped",
            0,
            None,
        ),
        (
            "Current active profile: x\nService tuned: disabled, stopped\nService ktune: enabled, running",
            0,
            "x",
        ),
    ],
)
def test_words_of_tuned(tree: HostTree, said: str, code: int, expected: str | None) -> None:
    tree.program("tuned-adm", f"cat <<'END'\n{said}\nEND\nexit {code}\n")
    assert known_facts_of(tree).tuned == expected


def test_tuned_that_gives_no_answer_is_unknown(tree: HostTree) -> None:
    tree.program("tuned-adm", "echo 'DBus call to Tuned daemon failed' >&2; exit 1\n")
    assert "DBus call" in reason(known_facts_of(tree).tuned)


def test_ktune_without_its_tool_is_told_by_its_file(tmp_path: Path) -> None:
    tree = rhel6(tmp_path)
    tree.without("tuned-adm")
    assert known_facts_of(tree).tuned == "enterprise-storage"


@pytest.mark.parametrize(
    ("manager", "unit", "expected"),
    [
        (Manager.SYSTEMD, "es-{node}.service", "es-es1"),
        (Manager.SYSV, "elasticsearch", "elasticsearch"),
        (Manager.DOCKER, "es1", ""),
    ],
)
def test_the_nodes_own_service(tree: HostTree, manager: Manager, unit: str, expected: str) -> None:
    tree.write("/etc/systemd/system/es-es1.service.d/a.conf", "x\n")
    settings = tree.settings(service=ServiceSettings(manager=manager, unit=unit))
    facts = known_facts_of(tree, [EVERYTHING], settings)
    assert facts.unit == expected
    found = facts.text("/etc/systemd/system/es-es1.service.d/a.conf")
    assert found == ("x\n" if expected == "es-es1" else None)


# Odd hosts.


def test_the_words_of_tools_are_the_untranslated_ones(tree: HostTree) -> None:
    tree.program(
        "tuned-adm",
        'case $LC_ALL in C) echo "Current active profile: x" ;; *) echo "Aktives Profil: x" ;; esac\n',
    )
    settings = tree.settings()
    line = facts_script(settings, [EVERYTHING])
    german = {**tree.environment, "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"}
    result = LocalConnection(german).run(line, timeout=60, keep=ANSWER_BYTES)
    assert isinstance(result, CommandResult)
    facts = read_facts(result.stdout, settings, [EVERYTHING])
    assert isinstance(facts, HostFacts)
    assert facts.tuned == "x"


def test_without_systemctl_services_are_unknown(tree: HostTree) -> None:
    tree.without("systemctl")
    facts = known_facts_of(tree, [EVERYTHING])
    assert "not found" in reason(facts.services["numad"]) or "No such file" in reason(facts.services["numad"])
    assert isinstance(facts.devices, tuple)


def test_without_the_newer_tools_nothing_is_lost(tree: HostTree) -> None:
    usual = known_facts_of(tree, [EVERYTHING])
    tree.without("timeout", "realpath", "readlink", "setsid", "sort")
    tree.program("readlink", "echo \"readlink: invalid option -- 'f'\" >&2; exit 1\n")
    assert known_facts_of(tree, [EVERYTHING]) == usual


@pytest.mark.parametrize("tool", ["head", "grep", "cat", "awk", "sed"])
def test_without_a_basic_tool_nothing_is_called_absent(tree: HostTree, tool: str) -> None:
    tree.without(tool)
    facts = facts_of(tree, [EVERYTHING])
    if isinstance(facts, HostFacts):
        usual_path = f"{THP}/enabled"
        assert facts.text(usual_path) == "[always] madvise never\n" or isinstance(
            facts.text(usual_path), Unknown
        )
        assert isinstance(facts.devices, Unknown) or [each.name for each in facts.devices] == ["nvme0n1"]
    else:
        assert facts.reason


@pytest.mark.parametrize("with_timeout", [True, False])
def test_a_data_path_that_hangs_costs_seconds_and_only_the_disks(
    tree: HostTree, *, with_timeout: bool
) -> None:
    tree.program(
        "readlink", 'case $2 in */slow*) echo $$ >>"$root/.hung"; exec sleep 9 ;; *) echo "$2" ;; esac\n'
    )
    if not with_timeout:
        tree.without("timeout")
    for name in ("slow1", "slow2"):
        tree.folder(f"/{name}")
    began = time.monotonic()
    facts = known_facts_of(tree, [EVERYTHING], tree.settings(data=("/slow1", "/slow2", "/data/es")))
    assert time.monotonic() - began < 20
    assert "/slow1: no answer in time" in reason(facts.devices)
    assert "/slow2: no answer in time" in reason(facts.devices)
    assert "/data/es" not in reason(facts.devices)
    assert facts.services["numad"] == RUNS
    assert facts.text("/proc/sys/vm/swappiness") == "60\n"


@pytest.mark.parametrize("with_timeout", [True, False])
def test_a_program_that_hangs_is_ended_with_its_children(
    tree: HostTree, monkeypatch: pytest.MonkeyPatch, *, with_timeout: bool
) -> None:
    """A child that is left has the answer's pipe: the reading would wait for its end."""
    tree.program("systemctl", "sleep 25 & wait\n")
    if not with_timeout:
        tree.without("timeout")
    monkeypatch.setattr("orchestrator.hosts.facts_script.TOOL_SECONDS", 1)
    began = time.monotonic()
    facts = known_facts_of(tree, [EVERYTHING])
    assert time.monotonic() - began < 20
    assert isinstance(facts.services["numad"], Unknown)
    assert facts.text("/proc/sys/vm/swappiness") == "60\n"
    assert isinstance(facts.devices, tuple)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("", "no output"),
        ("Welcome!\nThis account is currently not available.\n", "This account is currently not available."),
        ("@facts-x 1 note markers\n", "cut off"),
    ],
)
def test_an_answer_that_is_none(tree: HostTree, output: str, why: str) -> None:
    assert why in reason(read_facts(output, tree.settings(), [EVERYTHING]))


def test_a_banner_before_and_words_after_the_answer_are_no_part_of_it(tree: HostTree) -> None:
    answer = answer_of(tree, [EVERYTHING])
    usual = read_facts(answer, tree.settings(), [EVERYTHING])
    assert read_facts(f"*** banner ***{answer}Terminated\n", tree.settings(), [EVERYTHING]) == usual


def _never_wrong(facts: object, usual: HostFacts) -> None:
    """Every part is as it would be with the whole answer, or unknown."""
    if isinstance(facts, Unknown):
        return
    assert isinstance(facts, HostFacts)
    for name in ("init", "cpus", "memory"):
        assert getattr(facts, name) == getattr(usual, name), name
    for path, text in usual.files.items():
        assert facts.text(path) == text or isinstance(facts.text(path), Unknown), path
    for name, service in usual.services.items():
        assert facts.services[name] == service or isinstance(facts.services[name], Unknown), name
    assert facts.tuned == usual.tuned or isinstance(facts.tuned, Unknown)
    assert facts.devices == usual.devices or isinstance(facts.devices, Unknown)


@pytest.mark.parametrize("kind", ["rhel6", "rhel7"])
def test_an_answer_that_is_cut_off_anywhere_is_never_wrong(tmp_path: Path, kind: str) -> None:
    tree = KINDS[kind](tmp_path)
    answer, settings = answer_of(tree, [EVERYTHING]), tree.settings()
    usual = read_facts(answer, settings, [EVERYTHING])
    assert isinstance(usual, HostFacts)
    for end in range(0, len(answer), 5):
        _never_wrong(read_facts(answer[:end], settings, [EVERYTHING]), usual)


@pytest.mark.parametrize("kind", ["rhel6", "rhel7"])
def test_an_answer_with_a_hole_is_never_wrong(tmp_path: Path, kind: str) -> None:
    """A connection keeps the head and the tail of what is too long."""
    tree = KINDS[kind](tmp_path)
    answer, settings = answer_of(tree, [EVERYTHING]), tree.settings()
    usual = read_facts(answer, settings, [EVERYTHING])
    assert isinstance(usual, HostFacts)
    ends = {
        place for place, letter in enumerate(answer) if letter == "\n"
    }  # the words that tell of it end lines too
    for begin in sorted(ends | set(range(0, len(answer), 53))):
        for size in (7, 700):
            hole = f"{answer[:begin]}\n\u2026 {size} bytes left out \u2026\n{answer[begin + size :]}"
            _never_wrong(read_facts(hole, settings, [EVERYTHING]), usual)


def test_a_hole_beside_a_line_s_end_is_never_wrong(tmp_path: Path) -> None:
    """There its own line's ends are taken for those of a title, or of the head that comes next."""
    tree = rhel7(tmp_path)
    answer, settings = answer_of(tree, [EVERYTHING]), tree.settings()
    usual = read_facts(answer, settings, [EVERYTHING])
    assert isinstance(usual, HostFacts)
    for end in (found.end() for found in re.finditer("\n", answer)):
        for begin, behind in ((end - 5, end), (end - 3, end + 4)):
            hole = f"{answer[:begin]}\n\u2026 7 bytes left out \u2026\n{answer[behind:]}"
            _never_wrong(read_facts(hole, settings, [EVERYTHING]), usual)


def test_no_program_of_the_real_machine_answers_for_a_tree_and_administrators_are_found_on_hosts(
    tree: HostTree,
) -> None:
    """Over SSH without a terminal the path often lacks the folders of `tuned-adm` and `service`."""
    tree.program("tuned-adm", 'echo "Current active profile: $PATH"\n')
    assert known_facts_of(tree).tuned == tree.environment["PATH"]
    real = tree.settings(root="")
    assert (
        known_facts_of(tree, settings=real).tuned
        == f"{tree.environment['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
    )
