"""Every tunable on every kind of host: what is written where, that it is enough, that it can be undone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from orchestrator.config.tuning import load_profile
from orchestrator.model.host import FileText, HostFacts, ServiceFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import (
    BOOT,
    BlockChange,
    Change,
    FileChange,
    HostTuning,
    Reload,
    ServiceChange,
    TunableState,
    TunedChange,
    TuningProfile,
    ValueChange,
    Verdict,
)
from orchestrator.tuning import boot, registry, tuner
from orchestrator.tuning.blocks import with_block
from orchestrator.tuning.boot import BootPlace
from tests.fakes import host_kinds
from tests.fakes.host_tree import THP, HostTree
from tests.fakes.tuned_hosts import KINDS, profile, setting

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "data" / "tuning" / "what_is_written_where.md"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"
SHIPPED = sorted((ROOT / "configs" / "tuning").glob("*.yml"))

EVERYTHING = profile(
    setting("numad", "off"),
    setting("transparent_hugepage.enabled", "never"),
    setting("transparent_hugepage.defrag", "never"),
    setting("transparent_hugepage.khugepaged_defrag", "0"),
    setting("io_scheduler", {"ssd": "none", "rotational": "mq-deadline"}),
    setting("nr_requests", "256"),
    setting("read_ahead_kb", "128"),
    setting("vm.zone_reclaim_mode", "0"),
    setting("vm.swappiness", "1"),
    setting("vm.min_free_kbytes", "1048576"),
    setting("vm.max_map_count", "1048576"),
    setting("net.ipv4.tcp_retries2", "5"),
    setting("jvm.huge_pages", "16384"),
    setting("limits.nofile", "100000"),
    setting("limits.memlock", "unlimited"),
    setting("erlang.schedulers", "auto"),
)


PLACE = BootPlace(part="prod+es1")


def compare(facts: HostFacts, wanted: TuningProfile) -> HostTuning:
    return tuner.compare(facts, wanted, PLACE)


def asked() -> list[str]:
    """Patterns of all files that a reading is asked for."""
    reads = tuner.reads(EVERYTHING)
    queues = [f"/sys/block/*/queue/{name}" for one in reads for name in one.queue]
    paths = [*queues, *(path for one in reads for path in one.files)]
    return [path.replace("{unit}", "elasticsearch") for path in paths]


def after(facts: HostFacts, changes: tuple[Change, ...]) -> HostFacts:
    """The host once the changes have been made: written here apart from the code that names them."""
    files: dict[str, FileText] = dict(facts.files)
    services = dict(facts.services)
    tuned, limits = facts.tuned, dict(facts.limits)
    for change in changes:
        match change:
            case ValueChange(path=path, wanted=wanted):
                text = files[path]
                assert isinstance(text, str)
                words = [word.strip("[]") for word in text.split()]
                files[path] = (
                    " ".join(f"[{w}]" if w == wanted else w for w in words) if "[" in text else wanted
                )
            case FileChange(path=path, wanted=wanted):
                files[path] = wanted
                if "systemd/system/elasticsearch.service.d" in path and wanted:
                    limits |= dict(re.findall(r"^(Limit\w+)=(.*)$", wanted, re.MULTILINE))
                if change.reload is Reload.INIT:
                    here = wanted is not None
                    services[path.rpartition("/")[2]] = ServiceFacts(present=here, enabled=here)
            case BlockChange(path=path, name=name, wanted=wanted):
                text = files[path]
                assert isinstance(text, str)
                files[path] = with_block(text, name, wanted)
            case ServiceChange(service=service, wanted=mode):
                services[service] = ServiceFacts(
                    present=True, running=mode.running, enabled=mode.enabled, masked=mode.masked
                )
            case TunedChange(wanted=wanted):
                tuned = wanted
    return replace(facts, files=files, services=services, tuned=tuned, limits=limits)


def changes(facts: HostFacts, wanted: TuningProfile = EVERYTHING) -> tuple[Change, ...]:
    return tuple(change for state in compare(facts, wanted).states for change in state.changes)


@pytest.fixture(params=KINDS, name="host")
def a_host(request: pytest.FixtureRequest) -> HostFacts:
    return KINDS[request.param]()


def wrong(tuning: HostTuning) -> list[TunableState]:
    return [one for one in tuning.states if one.verdict not in {Verdict.OK, Verdict.NOT_APPLICABLE}]


@pytest.mark.parametrize("path", [None, *SHIPPED], ids=lambda path: path.stem if path else "everything")
def test_a_host_that_was_made_right_is_right(path: Path | None, host: HostFacts) -> None:
    """Every shipped profile can be met on every kind of host."""
    wanted = load_profile(path, rules=registry.RULES) if path else EVERYTHING
    assert compare(host, wanted).drifted
    assert wrong(compare(after(host, changes(host, wanted)), wanted)) == []


def test_no_two_tunables_write_one_file_or_the_system_disk(host: HostFacts) -> None:
    system = {f"/sys/block/sda/queue/{name}": "9\n" for name in ("scheduler", "nr_requests")}
    made = changes(replace(host, files={**host.files, **system}))
    assert not any("sda" in str(change) for change in made)
    written = [
        (change.path, change.name if isinstance(change, BlockChange) else "")
        for change in made
        if isinstance(change, FileChange | BlockChange)
    ]
    assert len(written) == len(set(written))


def test_nothing_that_lasts_is_written_without_persist(host: HostFacts) -> None:
    made = changes(host, replace(EVERYTHING, persist=False))
    files = {change.path for change in made if isinstance(change, FileChange | BlockChange)}
    # What counts at the node's next start is in a file whatever the profile says: there is no other way.
    assert all(any(word in path for word in ("limits", "riak", "jvm.options.d")) for path in files), files
    assert not any(isinstance(change, TunedChange) for change in made)


def test_everything_that_is_read_is_asked_for(host: HostFacts) -> None:
    """A tunable that looked at a file which it did not ask for would never see it on a real host."""
    seen: set[str] = set()

    class Watched(dict[str, FileText]):
        def __contains__(self, path: object) -> bool:
            seen.add(str(path))
            return super().__contains__(path)

    changes(replace(host, files=Watched(host.files)))
    # Our own files are covered by the globs too: otherwise a second run would not find the first one's.
    assert any("orchestrate" in path for path in seen)
    assert {path for path in seen if not any(PurePosixPath(path).match(one) for one in asked())} == set()


def test_the_order_settles_conflicts() -> None:
    names = list(registry.TUNABLES)
    assert names[:3] == ["tuned", "ktune", "numad"]
    assert names.index("io_scheduler") < names.index("nr_requests")
    backwards = replace(EVERYTHING, settings=tuple(reversed(EVERYTHING.settings)))
    ordered = [tunable.name for tunable, _ in tuner.in_order(backwards) if tunable]
    assert ordered == [name for name in names if name in ordered]
    assert compare(KINDS["current kernel"](), EVERYTHING).states[0].tunable == BOOT


def test_a_cut_off_answer_is_unknown_and_writes_nothing(host: HostFacts) -> None:
    cut: Mapping[str, FileText] = dict.fromkeys(asked(), Unknown(reason="cut off"))
    states = compare(replace(host, files=cut, services={}, limits={}), EVERYTHING).states
    told = {state.tunable: state.verdict for state in states}
    assert set(told.values()) == {Verdict.UNKNOWN}, told
    assert [state.changes for state in states if state.changes] == []


def test_what_is_written_where() -> None:
    text = "".join(_table())
    if os.environ.get(REWRITE):
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.is_file(), f"no golden file; write it with {REWRITE}=1 and read it"
    assert text == GOLDEN.read_text(encoding="utf-8")


# The same tunables on hosts that are made of files, read by the script that reads real ones.

PAGES = profile(setting("transparent_hugepage.enabled", "never"))
OPEN_FILES = replace(profile(setting("limits.nofile", "100000")), persist=False)
OF_PROCESS = """\
Limit                     Soft Limit           Hard Limit           Units
Max locked memory         unlimited            unlimited            bytes
Max open files            4096                 524288               files
Max realtime timeout      unlimited            unlimited            us
"""


def read(tree: HostTree, wanted: TuningProfile) -> HostTuning:
    facts = tree.known_facts(tuner.reads(wanted))
    return tuner.compare(facts, wanted, BootPlace(part="es1", root=str(tree.path)))


@pytest.mark.parametrize("name", ["throughput-performance", "virtual-guest"])
def test_the_next_boot_is_ours_whatever_tuned_ships(name: str, tmp_path: Path) -> None:
    """The shipped profiles switch huge pages off on one kind of ARM machine; elsewhere nothing sets them."""
    tree = host_kinds.rhel7(tmp_path / "host")
    for file in (ROOT / "tests" / "data" / "tuned").glob("*/tuned.conf"):
        tree.write(f"/usr/lib/tuned/{file.parent.name}/tuned.conf", file.read_text())
    tree.write("/etc/tuned/active_profile", f"{name}\n")
    shipped = tree.read("/usr/lib/tuned/throughput-performance/tuned.conf") or ""
    assert "transparent_hugepages=never" in shipped
    of_boot, pages = read(tree, PAGES).states
    assert (pages.running, pages.at_boot) == ("always", boot.NOT_SET)
    for change in of_boot.changes:
        if isinstance(change, FileChange) and change.wanted is not None:
            tree.write(change.path, change.wanted)
        elif isinstance(change, ServiceChange):
            tree.service(change.service)
    assert [state.at_boot for state in read(tree, PAGES).states] == [boot.SET_BY_US, boot.SET_BY_US]
    assert tree.shell(tree.read(boot.SCRIPT) or "").returncode == 0
    assert "never" in (tree.read(f"{THP}/enabled") or "")
    assert read(tree, PAGES).states[1].verdict is Verdict.OK


@pytest.mark.parametrize(
    ("unit", "pid", "limit", "shows"),
    [
        # The template's value, or that of a drop-in which lowers it: systemd has read both.
        ("elasticsearch@a", "0", "1048576", ("1048576, from the next start on", Verdict.OK)),
        ("elasticsearch@a", "0", "65535", ("65535, from the next start on", Verdict.DRIFT)),
        ("elasticsearch", "17", "100000", ("4096, from the next start on 100000", Verdict.OK)),
        # It has ended since systemd named it.
        ("elasticsearch", "18", "100000", ("100000, from the next start on", Verdict.OK)),
    ],
)
def test_limits_of_a_unit_and_of_its_process(
    tmp_path: Path, unit: str, pid: str, limit: str, shows: tuple[str, Verdict]
) -> None:
    tree = host_kinds.debian(tmp_path / "host")
    tree.unit = unit
    tree.write("/proc/17/limits", OF_PROCESS)
    shown = f"echo LoadState=loaded; echo LimitNOFILE={limit}; echo LimitNOFILESoft={limit}"
    words = (
        f'*MainPID*" -- {unit}.service") echo MainPID={pid} ;; *LimitNOFILE*" -- {unit}.service") {shown} ;;'
    )
    tree.program("systemctl", f'case "$*" in {words} esac\n')
    (state,) = read(tree, OPEN_FILES).states
    assert (state.running, state.verdict, state.at_boot) == (*shows, limit)


def test_an_init_script_names_the_process(tmp_path: Path) -> None:
    tree = host_kinds.rhel6(tmp_path / "host")
    tree.write("/proc/2310/limits", OF_PROCESS)
    tree.program("service", '[ "$1" = elasticsearch ] && echo "elasticsearch (pid  2310) is running..."\n')
    (state,) = read(tree, OPEN_FILES).states
    assert state.running == "4096, from the next start on not set"
    assert state.verdict is Verdict.DRIFT


def _table() -> Iterator[str]:
    yield "# What is written where\n\nBy kind of host and tunable, for a profile that wants all of them.\n"
    for kind, build in KINDS.items():
        yield f"\n## {kind}\n"
        for state in compare(build(), EVERYTHING).states:
            yield from _state(state)


def _state(state: TunableState) -> Iterator[str]:
    yield f"\n### {state.tunable}: {state.verdict.value}\n\n"
    yield f"wanted: {state.wanted}\n" if state.wanted else ""
    yield f"running: {state.running}\n" if state.running else ""
    yield f"at boot: {state.at_boot}\n" if state.at_boot else ""
    yield f"detail: {state.detail}\n" if state.detail else ""
    for change in state.changes:
        match change:
            case ValueChange(path=path, found=found, wanted=wanted):
                yield f"- {path}: {found} -> {wanted}\n"
            case FileChange(path=path, wanted=wanted, reload=reload):
                yield f"- file {path}, then tell {reload.value}\n" + _quoted(wanted)
            case BlockChange(path=path, name=name, wanted=wanted):
                yield f"- lines `{name}` in {path}\n" + _quoted(wanted)
            case ServiceChange(service=service, found=found_mode, wanted=mode):
                yield f"- service {service}: {_mode(found_mode)} -> {_mode(mode)}\n"
            case TunedChange(found=found_profile, wanted=wanted_profile):
                yield f"- tuned's profile: {found_profile} -> {wanted_profile}\n"


def _mode(mode: object) -> str:
    return (
        ", ".join(word for word in ("running", "enabled", "masked") if getattr(mode, word))
        or "stopped, disabled"
    )


def _quoted(text: str | None) -> str:
    return "".join(f"  | {line}\n" for line in (text or "").splitlines())
