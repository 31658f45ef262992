"""Every tunable on every kind of host: what is written where, that it is enough, that it can be undone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config.tuning import load_profile
from orchestrator.hosts.blocks import with_block
from orchestrator.hosts.tunables import registry
from orchestrator.hosts.tuning.boot import Place
from orchestrator.hosts.tuning.boot_files import NAME
from orchestrator.model.host_facts import FileText, HostFacts, ServiceFacts
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
from tests.fakes.tuned_hosts import KINDS, profile, setting

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "data" / "tuning" / "what_is_written_where.md"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"

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


PLACE = Place(part="prod+es1")


def compare(facts: HostFacts, wanted: TuningProfile) -> HostTuning:
    return registry.compare(facts, wanted, PLACE)


def asked() -> list[str]:
    reads = registry.reads(EVERYTHING)
    queues = [f"/sys/block/*/queue/{name}" for one in reads for name in one.queue]
    return [*queues, *(path for one in reads for path in one.files)]


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


def test_a_host_that_was_made_right_is_right(host: HostFacts) -> None:
    assert compare(host, EVERYTHING).drifted
    made = compare(after(host, changes(host)), EVERYTHING)
    wrong = [state for state in made.states if state.verdict not in {Verdict.OK, Verdict.NOT_APPLICABLE}]
    assert wrong == []


def test_what_was_made_can_be_undone_to_what_was_found(host: HostFacts) -> None:
    made = changes(host)
    back = after(after(host, made), tuple(change.undone() for change in reversed(made)))
    there = {path: text for path, text in back.files.items() if text is not None}
    assert _spaced(there) == _spaced(host.files)
    assert {name: one for name, one in back.services.items() if NAME not in name} == {
        name: one for name, one in host.services.items() if NAME not in name
    }
    assert not any(one.enabled for name, one in back.services.items() if NAME in name)
    assert back.tuned == host.tuned


def test_no_two_tunables_write_one_file_or_one_block(host: HostFacts) -> None:
    written = [
        (change.path, change.name if isinstance(change, BlockChange) else "")
        for change in changes(host)
        if isinstance(change, FileChange | BlockChange)
    ]
    assert len(written) == len(set(written))


def test_every_change_knows_what_was_found(host: HostFacts) -> None:
    for change in changes(host):
        if isinstance(change, ValueChange):
            text = host.files[change.path]
            assert isinstance(text, str)
            assert change.found in (text.strip(), *(word.strip("[]") for word in text.split() if "[" in word))
        if isinstance(change, FileChange):
            assert change.found == host.files.get(change.path)


def test_nothing_that_lasts_is_written_where_the_profile_does_not_persist(host: HostFacts) -> None:
    made = changes(host, replace(EVERYTHING, persist=False))
    files = {change.path for change in made if isinstance(change, FileChange | BlockChange)}
    # What counts at the node's next start stands in a file whatever the profile says: there is no other way.
    assert all(any(word in path for word in ("limits", "riak", "jvm.options.d")) for path in files), files
    assert not any(isinstance(change, TunedChange) for change in made)


def test_no_disk_without_data_is_touched(host: HostFacts) -> None:
    system = {
        "/sys/block/sda/queue/scheduler": "noop deadline [cfq]\n",
        "/sys/block/sda/queue/nr_requests": "9\n",
    }
    made = changes(replace(host, files={**host.files, **system}))
    assert not any("sda" in str(change) for change in made)


def test_everything_that_is_read_is_asked_for(host: HostFacts) -> None:
    """A tunable that looked at a file which it did not ask for would never see it on a real host."""
    seen: set[str] = set()

    class Watched(dict[str, FileText]):
        def __contains__(self, path: object) -> bool:
            seen.add(str(path))
            return super().__contains__(path)

    changes(replace(host, files=Watched(host.files)))
    patterns = [_as_regex(one.replace("{unit}", "elasticsearch")) for one in asked()]
    own = {path for path in seen if "orchestrate" in path}
    assert {path for path in seen - own if not any(one.fullmatch(path) for one in patterns)} == set()
    # Our own files are covered by the globs too: otherwise a second run would not find the first one's.
    assert {path for path in own if not any(one.fullmatch(path) for one in patterns)} == set()


def test_the_order_settles_conflicts() -> None:
    names = list(registry.TUNABLES)
    assert names[:3] == ["tuned", "ktune", "numad"]
    assert names.index("io_scheduler") < names.index("nr_requests")
    backwards = replace(EVERYTHING, settings=tuple(reversed(EVERYTHING.settings)))
    ordered = [tunable.name for tunable, _ in registry.in_order(backwards) if tunable]
    assert ordered == [name for name in names if name in ordered]
    assert compare(KINDS["current kernel"](), EVERYTHING).states[0].tunable == BOOT


def test_a_tunable_that_there_is_not_is_no_quiet_ok() -> None:
    state = compare(KINDS["current kernel"](), profile(setting("vm.swapiness", "1"))).states[-1]
    assert (state.tunable, state.verdict) == ("vm.swapiness", Verdict.UNKNOWN)


def test_an_answer_that_was_cut_off_is_unknown_and_writes_nothing(host: HostFacts) -> None:
    cut: Mapping[str, FileText] = {
        path.replace("{unit}", "elasticsearch"): Unknown(reason="cut off") for path in asked()
    }
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


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs" / "tuning").glob("*.yml")), ids=lambda path: path.stem
)
def test_every_shipped_profile_can_be_met_on_every_kind_of_host(path: Path, host: HostFacts) -> None:
    wanted = load_profile(path, rules=registry.RULES)
    made = compare(after(host, changes(host, wanted)), wanted)
    assert {state.verdict for state in made.states} <= {Verdict.OK, Verdict.NOT_APPLICABLE}


def _spaced(files: Mapping[str, FileText]) -> dict[str, object]:
    return {path: " ".join(text.split()) if isinstance(text, str) else text for path, text in files.items()}


def _as_regex(pattern: str) -> re.Pattern[str]:
    glob = re.escape(pattern).replace(r"\*", "[^/]*")
    return re.compile(glob)


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
