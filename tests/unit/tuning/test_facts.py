"""The facts of a host: one script, under every shell that is to be had, on file trees and on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.model.cluster import NodeName
from orchestrator.model.host import HostFacts, InitSystem, Manager, ServiceFacts
from orchestrator.model.host_settings import HostSettings, ServiceSettings
from orchestrator.model.reading import Unknown
from orchestrator.tuning import facts as script
from orchestrator.tuning.facts import ANSWER_BYTES, FILE_BYTES, FramedAnswer, _files, facts_script, read_facts
from orchestrator.tuning.tunable import FactReads
from tests.fakes.host_kinds import KINDS, debian, rhel6, rhel7
from tests.fakes.host_tree import THP, THP_RHEL6, HostTree
from tests.tools import SHELLS, shell_words

GOLDEN = Path(__file__).parents[2] / "data" / "tuning" / "facts"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"
TUNED = FactReads(tuned=True)
EVERYTHING = FactReads(
    tuned=True,
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


def test_every_name_that_an_answer_did_not_reach_is_unknown(subtests: pytest.Subtests) -> None:
    """An unread file is not an absent one, whichever of several names or disks it is."""
    for queue in (("scheduler", "nr_requests", "read_ahead_kb"), ("nr_requests",), ()):
        for data in ((), ("/srv",), ("/srv", "/data")):
            with subtests.test(queue=queue, data=data):
                settings = HostSettings(node=NodeName("es1"), address="es1", data=data)
                found = _files(FramedAnswer(), settings, [FactReads(queue=queue)])
                expected = {f"/sys/block/*/queue/{name}" for name in queue if data}
                assert {path for path in found if path.startswith("/sys/block/*")} == expected


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return debian(tmp_path)


def reason(value: object) -> str:
    assert isinstance(value, Unknown), value
    return value.reason


def run(
    tree: HostTree, reads: list[FactReads], words: Sequence[str] = ("/bin/sh",), **how: object
) -> HostFacts:
    """The facts by the script as another shell or user runs it."""
    ran = subprocess.run(  # noqa: S603  (the script under test)
        [*words, "-c", facts_script(tree.settings(), reads)],
        env=tree.environment,
        capture_output=True,
        check=True,
        timeout=60,
        **how,
    )
    facts = read_facts(ran.stdout.decode(), tree.settings(), reads)
    assert isinstance(facts, HostFacts), facts
    return facts


@pytest.mark.parametrize("shell", [*SHELLS, "bash --posix"])
def test_every_shell_reads_the_facts_of_every_kind_of_host(
    subtests: pytest.Subtests, tmp_path: Path, shell: str
) -> None:
    name, *options = shell.split()
    words = [*shell_words(name), *options]
    for kind, make in KINDS.items():
        with subtests.test(kind):
            tree = make(tmp_path / kind)
            tree.write("/etc/sysctl.d/a b'c$(d).conf", "x = 1\nno end")
            facts = run(tree, [EVERYTHING], words)
            text = json.dumps(asdict(facts), indent=1, sort_keys=True, default=str) + "\n"
            if os.environ.get(REWRITE):
                (GOLDEN / f"{kind}.json").write_text(text)
            assert text == (GOLDEN / f"{kind}.json").read_text()


# What files may hold, and how they may be.


def test_a_file_is_read_as_it_is_whatever_its_name(subtests: pytest.Subtests, tree: HostTree) -> None:
    texts = {
        "empty": b"",
        "line": b"\n",
        "no end": b"no end",
        "lines": b"two\nlines\n",
        "blank": b"\n\nblank\n\n",
        "dos": b"a\r\nb\r\n",
        "blanks": b"  \t ",
        "marks": b"@@orchestrate-1 2 exit\n0\n@@orchestrate-1 3 end\n",
        "open mark": b"\n@@orchestrate-12345678-abcd-ef00 9 exit\n0",
        "an earlier answer": tree.answer([EVERYTHING]).encode(),
        "words": b"%s %d \\n $(id)",
        "utf-8": "gr\u00fc\u00df dich \u6570\u636e\n".encode(),
        "long": b"x" * FILE_BYTES,
        **dict.fromkeys(("a b", "$(touch x)", "'q\"", "-n", "new\nline", "[a]*"), b"x = 1\n"),
    }
    bytes_of = {"latin-1": b"# gr\xfc\xdfe\nx = 1\n", "nul": b"a\0b\nx = 1\n", "utf-16": b"\xff\xfe\0"}
    for name, text in (texts | bytes_of).items():
        tree.write(f"/etc/sysctl.d/{name}.conf", text)
    tree.at("/etc/sysctl.d/masked.conf").symlink_to("/dev/null")
    before = tree.files()
    facts = tree.known_facts([EVERYTHING])
    assert tree.files() == before
    for name, text in texts.items():
        with subtests.test(name):
            path = f"/etc/sysctl.d/{name}.conf"
            assert (facts.text(path), facts.exact(path)) == (text.decode(), text.decode())
    for name, text in bytes_of.items():
        with subtests.test(name):
            path = f"/etc/sysctl.d/{name}.conf"
            assert facts.text(path) == text.decode(errors="replace"), "it can be looked through"
            assert "no text in UTF-8" in reason(facts.exact(path)), "and not put back"
    assert facts.text("/etc/sysctl.d/masked.conf") == ""
    assert facts.exact("/etc/nothing") is None
    assert facts.services["numad"] == RUNS


def test_a_file_that_cannot_be_read_is_unknown(subtests: pytest.Subtests, tree: HostTree) -> None:
    folder = tree.at("/etc/sysctl.d")
    (folder / "folder.conf").mkdir()
    os.mkfifo(folder / "pipe.conf")
    for name, target in (("memory", "/proc/self/mem"), ("nothing", "nothing"), ("zeros", "/dev/zero")):
        (folder / f"{name}.conf").symlink_to(target)
    with (folder / "huge.conf").open("wb") as file:
        file.truncate(100 << 20)
    assert len(tree.answer([EVERYTHING])) < 2 * FILE_BYTES
    facts = tree.known_facts([EVERYTHING])
    for name, why in {
        "memory": "Input/output error",
        "folder": "a folder, not a file",
        "pipe": "no regular file",
        "nothing": "a link to nothing",
        "zeros": "no regular file",
        "huge": f"longer than {FILE_BYTES} bytes",
    }.items():
        with subtests.test(name):
            assert reason(facts.text(f"/etc/sysctl.d/{name}.conf")).endswith(why)
    assert facts.text(f"{THP}/enabled") == "[always] madvise never\n"
    assert isinstance(facts.devices, tuple)


def test_a_tool_that_prints_without_end_is_cut_off(tree: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "TOOL_SECONDS", 1)
    tree.program("systemctl", "while :; do printf '%65536s' x; done\n")
    facts = tree.known_facts([EVERYTHING])
    assert "too long" in reason(facts.services["numad"])
    assert facts.tuned is None
    assert isinstance(facts.devices, tuple)


def test_the_answer_is_bounded_and_what_did_not_fit_is_unknown(tree: HostTree) -> None:
    for number in range(40):
        tree.write(f"/etc/sysctl.d/{number:02}.conf", "x" * FILE_BYTES)
    answer = tree.answer([EVERYTHING])
    assert len(answer.encode()) <= ANSWER_BYTES
    facts = read_facts(answer, tree.settings(), [EVERYTHING])
    assert isinstance(facts, HostFacts)
    assert facts.text("/etc/sysctl.d/00.conf") == "x" * FILE_BYTES
    paths = ("/etc/sysctl.d/39.conf", "/sys/block/sda/queue/scheduler")
    for lost in (*map(facts.text, paths), facts.services["numad"], facts.tuned, facts.devices):
        assert "cut off" in reason(lost)


@pytest.fixture
def shut() -> Iterator[HostTree]:
    """A host in a folder that another user may enter: the usual ones of pytest are the owner's alone."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        tree = debian(Path(folder))
        tree.at("/.log").chmod(0o666)
        yield tree
        for path in ("/etc/sysctl.d", "/sys/dev/block", "/etc/private"):
            tree.at(path).chmod(0o755)


def test_what_this_account_may_not_read_is_never_absent(shut: HostTree) -> None:
    """As an account without rights, whoever runs the tests."""
    drop = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    shut.write("/etc/sysctl.d/x.conf", "vm.swappiness = 1\n")
    shut.write("/etc/private/deep/er.conf", "x\n")
    for path, mode in ((f"{THP}/enabled", 0), ("/etc/sysctl.d", 0o311), ("/etc/private", 0)):
        shut.at(path).chmod(mode)
    shut.at("/sys/dev/block").chmod(0)
    private = ("/etc/private/es.conf", "/etc/private/deep/er.conf", "/etc/private/x/")
    facts = run(shut, [EVERYTHING, FactReads(files=private)], **drop)
    assert reason(facts.text(f"{THP}/enabled")).endswith("Permission denied")
    assert "may not be listed" in reason(facts.text("/etc/sysctl.d/x.conf"))
    assert facts.matching("/etc/sysctl.d/", ".conf") == ("/etc/sysctl.d/*.conf",)
    for path in private:
        assert "may not be searched" in reason(facts.text(path.rstrip("/"))), path
    assert facts.text("/nowhere/at/all") is None
    assert facts.text("/proc/sys/vm/swappiness") == "60\n"
    assert "which /sys/dev/block does not show" in reason(facts.devices)


# Services and tuned.

MODES = {
    "on": {},
    "stopped": {"running": False},
    "disabled": {"enabled": False},
    "off": {"running": False, "enabled": False},
}


def test_services_under_systemd_and_of_init_scripts(tmp_path: Path) -> None:
    for make in (rhel7, rhel6):
        tree = make(tmp_path / make.__name__)
        expected = {"missing": ServiceFacts(present=False)}
        for name, mode in MODES.items():
            tree.service(name, **mode)
            expected[name] = replace(RUNS, **mode)
        if make is rhel7:
            tree.service("masked", running=False, masked=True)
            expected["masked"] = ServiceFacts(present=True, masked=True)
        else:
            # An init script counts for the run level that is booted.
            tree.service("other-level", enabled=False)
            tree.link("/etc/rc5.d/S90other-level", "/etc/init.d/other-level")
            expected["other-level"] = replace(RUNS, enabled=False)
        assert tree.known_facts([FactReads(services=tuple(expected))]).services == expected


def test_words_of_systemd(subtests: pytest.Subtests, tree: HostTree) -> None:
    shown = "LoadState=loaded\nActiveState=active\nUnitFileState="
    rows = {
        "a": (f"Id=a.service\nNames=a.service\n{shown}enabled", RUNS),
        "b": (f"Id=real.service\nNames=real.service b.service\n{shown}enabled", RUNS),
        "c": (f"Id=c.service\n{shown}enabled-runtime", replace(RUNS, enabled=False)),
        "d": (f"Id=d.service\n{shown}static", replace(RUNS, enabled=False)),
        "e": (f"Id=e.service\n{shown}generated", RUNS),  # from an init script: its links say
        "f": (f"Id=f.service\n{shown}", RUNS),
        "g": (f"Id=g.service\n{shown}masked", replace(RUNS, enabled=False, masked=True)),
    }
    answer = "\n\n".join(words for words, _ in rows.values())
    tree.program("systemctl", f"cat <<'END'\n{answer}\nEND\n")
    for name in rows:
        tree.link(f"/etc/rc3.d/S20{name}", f"/etc/init.d/{name}")
    found = tree.known_facts([FactReads(services=tuple(rows))]).services
    for name, (words, expected) in rows.items():
        with subtests.test(words):
            assert found[name] == expected
    # A single unit may be answered under the name that it really has.
    tree.program("systemctl", f"cat <<'END'\nId=real.service\n{shown}enabled\nEND\n")
    assert tree.known_facts([FactReads(services=("a",))]).services == {"a": RUNS}


def test_a_service_manager_that_gives_no_answer_is_unknown(
    subtests: pytest.Subtests, tree: HostTree, tmp_path: Path
) -> None:
    for body, why in [
        ("echo 'Failed to connect to bus: No such file' >&2; exit 1\n", "Failed to connect to bus"),
        ("exit 0\n", "exit 0"),
        ("printf 'Id=a.service\\nLoadState=error\\nActiveState=inactive\\n'\n", "error"),
        ("kill -9 $$\n", "no answer in time"),
        ("exit 127\n", "127"),
    ]:
        with subtests.test(why):
            tree.program("systemctl", body)
            assert why in reason(tree.known_facts([FactReads(services=("a",))]).services["a"])
    tree.without("systemctl")
    facts = tree.known_facts([EVERYTHING])
    assert re.search("not found|No such file", reason(facts.services["numad"]))
    assert isinstance(facts.devices, tuple)
    tree.at("/run/systemd/system").rmdir()
    facts = tree.known_facts([EVERYTHING])
    assert facts.init is InitSystem.OTHER
    assert "neither systemd nor init scripts" in reason(facts.services["numad"])
    old = rhel6(tmp_path / "rhel6")
    old.program("service", "echo 'you must be root' >&2; exit 4\n")
    assert "status exits 4: you must be root" in reason(old.known_facts([EVERYTHING]).services["numad"])


def test_words_of_tuned(subtests: pytest.Subtests, tree: HostTree, tmp_path: Path) -> None:
    ktune = "Current active profile: {}\nService tuned: {}\nService ktune: {}".format
    off, on = "disabled, stopped", "enabled, running"
    for said, code, expected in [
        ("Current active profile: virtual-guest", 0, "virtual-guest"),
        ("No current active profile.", 1, None),
        ("It seems that tuned daemon is not running, preset profile is not activated.\nPreset: x", 1, None),
        (ktune("off", on, on), 0, None),
        (ktune("x", off, off), 0, None),
        (ktune("x", off, on), 0, "x"),
    ]:  # fmt: skip
        with subtests.test(said):
            tree.program("tuned-adm", f"cat <<'END'\n{said}\nEND\nexit {code}\n")
            assert tree.known_facts([TUNED]).tuned == expected
    tree.program("tuned-adm", "echo 'DBus call to Tuned daemon failed' >&2; exit 1\n")
    assert "DBus call" in reason(tree.known_facts([TUNED]).tuned)
    old = rhel6(tmp_path / "rhel6")
    old.without("tuned-adm")
    assert old.known_facts([TUNED]).tuned == "enterprise-storage", "ktune without its tool: by its file"


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
    facts = tree.known_facts([EVERYTHING], service=ServiceSettings(manager=manager, unit=unit))
    assert facts.unit == expected
    found = facts.text("/etc/systemd/system/es-es1.service.d/a.conf")
    assert found == ("x\n" if expected == "es-es1" else None)


# Odd hosts.


def test_the_words_of_tools_are_the_untranslated_ones(tree: HostTree) -> None:
    words = "Current active profile: x"
    tree.program("tuned-adm", f'case $LC_ALL in C) echo "{words}" ;; *) echo "Aktives Profil: x" ;; esac\n')
    german = LocalConnection({**tree.environment, "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"})
    result = german.run(facts_script(tree.settings(), [TUNED]), timeout=60, keep=ANSWER_BYTES)
    assert isinstance(result, CommandResult)
    facts = read_facts(result.stdout, tree.settings(), [TUNED])
    assert isinstance(facts, HostFacts)
    assert facts.tuned == "x"


def test_without_the_newer_tools_nothing_is_lost(tree: HostTree) -> None:
    usual = tree.known_facts([EVERYTHING])
    tree.without("timeout", "realpath", "readlink", "setsid", "sort")
    tree.program("readlink", "echo \"readlink: invalid option -- 'f'\" >&2; exit 1\n")
    assert tree.known_facts([EVERYTHING]) == usual


@pytest.mark.parametrize("tool", ["head", "grep", "cat", "awk", "sed"])
def test_without_a_basic_tool_nothing_is_called_absent(tree: HostTree, tool: str) -> None:
    tree.without(tool)
    facts = tree.facts([EVERYTHING])
    if isinstance(facts, HostFacts):
        pages = facts.text(f"{THP}/enabled")
        assert pages == "[always] madvise never\n" or isinstance(pages, Unknown)
        assert isinstance(facts.devices, Unknown) or [each.name for each in facts.devices] == ["nvme0n1"]


@pytest.mark.parametrize("with_timeout", [True, False])
def test_what_hangs_costs_seconds_and_nothing_else(
    tree: HostTree, monkeypatch: pytest.MonkeyPatch, *, with_timeout: bool
) -> None:
    """A child that is left has the answer's pipe: the reading would wait for its end."""
    monkeypatch.setattr(script, "TOOL_SECONDS", 1)
    monkeypatch.setattr(script, "DATA_SECONDS", 1)
    tree.program("systemctl", "sleep 90 & wait\n")  # longer than the reading may take
    tree.program("readlink", 'case $2 in */slow*) exec sleep 90 ;; *) echo "$2" ;; esac\n')
    if not with_timeout:
        tree.without("timeout")
    for name in ("slow1", "slow2"):
        tree.folder(f"/{name}")
    facts = tree.known_facts([EVERYTHING], data=("/slow1", "/slow2", "/data/es"))
    assert "/slow1: no answer in time" in reason(facts.devices)
    assert "/slow2: no answer in time" in reason(facts.devices)
    assert "/data/es" not in reason(facts.devices)
    assert isinstance(facts.services["numad"], Unknown)
    assert facts.text("/proc/sys/vm/swappiness") == "60\n"


def test_an_answer_with_words_around_it_and_one_that_is_none(tree: HostTree) -> None:
    settings = tree.settings()
    for output, why in [
        ("", "no output"),
        ("Welcome!\nThis account is currently not available.\n", "This account is currently not available."),
        ("@@orchestrate-x 1 note markers\n", "cut off"),
    ]:
        assert why in reason(read_facts(output, settings, [EVERYTHING]))
    answer = tree.answer([EVERYTHING])
    usual = read_facts(answer, settings, [EVERYTHING])
    assert read_facts(f"*** banner ***{answer}Terminated\n", settings, [EVERYTHING]) == usual


def _never_wrong(facts: object, usual: HostFacts) -> None:
    """Every part is as it would be with the whole answer, or unknown."""
    if isinstance(facts, Unknown):
        assert facts.reason
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


def _damaged(answer: str) -> Iterator[str]:
    """Cut off, or with a hole: a connection keeps the head and the tail of what is too long."""
    for end in range(0, len(answer), 7):
        yield answer[:end]
    ends = [found.end() for found in re.finditer("\n", answer)]
    holes = [(begin, size) for begin in {*ends, *range(0, len(answer), 71)} for size in (7, 700)]
    # Beside a line's end: there the words that tell of the hole have the end of a title, or of the next head.
    for end in ends:
        holes += [(end - 1, 8), (end - 5, 5), (end - 3, 7)]
    for begin, size in holes:
        yield f"{answer[:begin]}\n\u2026 {size} bytes left out \u2026\n{answer[begin + size :]}"


@pytest.mark.parametrize("make", [rhel6, rhel7])
def test_an_answer_that_is_not_whole_is_never_wrong(tmp_path: Path, make: type[HostTree]) -> None:
    tree = make(tmp_path)
    answer, settings = tree.answer([EVERYTHING]), tree.settings()
    usual = read_facts(answer, settings, [EVERYTHING])
    assert isinstance(usual, HostFacts)
    for text in _damaged(answer):
        _never_wrong(read_facts(text, settings, [EVERYTHING]), usual)


def test_programs_are_the_trees_and_on_a_host_administrators(tree: HostTree) -> None:
    """Over SSH without a terminal the path often lacks the folders of `tuned-adm` and `service`."""
    tree.program("tuned-adm", 'echo "Current active profile: $PATH"\n')
    path = tree.environment["PATH"]
    assert tree.known_facts([TUNED]).tuned == path, "no program of the real machine answers for a tree"
    assert tree.known_facts([TUNED], root="").tuned == f"{path}:/usr/local/sbin:/usr/sbin:/sbin"
