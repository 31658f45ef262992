"""What is particular to a store: huge pages of a JVM, Erlang's schedulers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.hosts.tunables.erlang import ERLANG_SCHEDULERS, schedulers
from orchestrator.hosts.tunables.jvm import JVM_HUGE_PAGES
from orchestrator.model.host_facts import FileText, HostFacts
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import BlockChange, FileChange, TunableState, ValueChange, Verdict
from tests.fakes.tuned_hosts import current, profile, setting, with_files

PAGES = "/proc/sys/vm/nr_hugepages"
FOLDER = "/etc/elasticsearch/jvm.options.d/"


def jvm(host: HostFacts, wanted: str = "1000") -> TunableState:
    line = setting("jvm.huge_pages", wanted)
    return JVM_HUGE_PAGES.check(host, line, profile(line))


def test_the_pages_come_before_the_option_that_needs_them() -> None:
    state = jvm(current())
    assert [type(change) for change in state.changes] == [ValueChange, FileChange]
    assert isinstance(state.changes[1], FileChange)
    assert state.changes[1].path.startswith(FOLDER)


def test_more_pages_than_wanted_are_somebody_s_and_are_left() -> None:
    files = {
        PAGES: "2000\n",
        f"{FOLDER}mine.options": "-XX:+UseLargePages\n",
    }
    assert jvm(with_files(current(), **files)).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ({FOLDER: None}, Verdict.NOT_APPLICABLE),
        ({FOLDER: None, "/etc/opensearch/jvm.options.d/": ""}, Verdict.DRIFT),
        ({FOLDER: Unknown(reason="denied")}, Verdict.UNKNOWN),
        ({PAGES: None}, Verdict.NOT_APPLICABLE),
        ({PAGES: Unknown(reason="denied")}, Verdict.UNKNOWN),
        ({"/proc/meminfo": "nothing"}, Verdict.UNKNOWN),
    ],
)
def test_where_it_cannot_be(files: dict[str, FileText], verdict: Verdict) -> None:
    state = jvm(with_files(current(), **files))
    assert state.verdict is verdict
    assert bool(state.changes) is (verdict is Verdict.DRIFT)


def test_no_host_is_asked_for_more_than_three_quarters_of_its_memory() -> None:
    fits, too_many = (256 << 10) // 2 * 3 // 4, (256 << 10) // 2 * 3 // 4 + 1
    assert jvm(current(), str(fits)).verdict is Verdict.DRIFT
    state = jvm(current(), str(too_many))
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert "75%" in state.detail


@pytest.mark.parametrize(("cpus", "wanted"), [(1, 1), (4, 4), (6, 5), (12, 10), (16, 14), (24, 20), (32, 27)])
def test_one_scheduler_less_for_every_six_cpus(cpus: int, wanted: int) -> None:
    assert schedulers(cpus) == wanted


CONF, ARGS, APP, ADVANCED = (
    f"/etc/riak/{name}" for name in ("riak.conf", "vm.args", "app.config", "advanced.config")
)
RIGHT = "erlang.schedulers.total = 20\nerlang.schedulers.online = 20\n"


def erlang(wanted: str = "auto", **files: FileText) -> TunableState:
    line = setting("erlang.schedulers", wanted)
    host = with_files(replace(current(), cpus=24), **{CONF: None, **files})
    return ERLANG_SCHEDULERS.check(host, line, profile(line))


@pytest.mark.parametrize(
    ("files", "path", "lines"),
    [
        ({CONF: "x = 1\n"}, CONF, "erlang.schedulers.total = 20\nerlang.schedulers.online = 20"),
        ({CONF: RIGHT + "erlang.schedulers.total = 24\n"}, CONF, RIGHT.strip()),
        ({CONF: "erlang.schedulers.total = 20\n"}, CONF, RIGHT.strip()),
        ({CONF: "# " + RIGHT.replace("\n", "\n# ")}, CONF, RIGHT.strip()),
        ({ARGS: "-name riak@a\n+S 24:24\n"}, ARGS, "+S 20:20"),
        # Both old files beside the new one win over it.
        ({CONF: RIGHT, ARGS: "+K true\n", APP: "[]."}, ARGS, "+S 20:20"),
    ],
)
def test_the_lines_go_to_the_file_that_counts(files: dict[str, FileText], path: str, lines: str) -> None:
    (change,) = erlang(**files).changes
    assert change == BlockChange(path=path, name="erlang.schedulers", found=None, wanted=lines)


@pytest.mark.parametrize(
    "files",
    [
        {CONF: RIGHT},
        {ARGS: "+S 20\n"},
        {ARGS: "+S 24:24\n+S 20:20\n"},
        {CONF: "x = 1\n", ADVANCED: '[{vm_args, [{"+S", "20:20"}]}].'},
    ],
)
def test_what_is_right_is_left(files: dict[str, FileText]) -> None:
    assert erlang(**files).verdict is Verdict.OK


@pytest.mark.parametrize(
    "advanced", ['[{vm_args, [{"+S", "24:24"}]}].', Unknown(reason="denied")], ids=["otherwise", "unread"]
)
def test_advanced_config_wins_and_is_never_changed(advanced: FileText) -> None:
    state = erlang(**{CONF: RIGHT, ADVANCED: advanced})
    assert (state.verdict, state.changes) == (Verdict.UNKNOWN, ())
    assert ADVANCED in state.detail


def test_a_comment_in_advanced_config_says_nothing() -> None:
    assert erlang(**{CONF: RIGHT, ADVANCED: '%% {"+S", "24:24"}\n[].'}).verdict is Verdict.OK


def test_a_host_without_riak_and_one_whose_file_is_closed() -> None:
    assert erlang().verdict is Verdict.NOT_APPLICABLE
    assert erlang(**{CONF: Unknown(reason="denied")}).verdict is Verdict.UNKNOWN


def test_a_number_may_be_wanted_instead() -> None:
    (change,) = erlang("8", **{CONF: ""}).changes
    assert isinstance(change, BlockChange)
    assert "= 8" in str(change.wanted)


@pytest.mark.parametrize(("wanted", "fine"), [("auto", True), ("20", True), ("0", False), ("20:20", False)])
def test_words_of_a_profile(wanted: str, fine: bool) -> None:  # noqa: FBT001  (a column)
    assert (ERLANG_SCHEDULERS.valid(setting("erlang.schedulers", wanted)) is None) is fine
    assert (JVM_HUGE_PAGES.valid(setting("jvm.huge_pages", wanted)) is None) is (wanted == "20")
