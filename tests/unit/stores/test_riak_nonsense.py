"""Nonsense from the nodes, put together to a reading: each part is what the nodes meant, or Unknown.

The commands are those of the double, true and then spoilt on their way: cut, with words of a login before
them, coloured, in another language, of another command, with an exit code that lies, far too long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import pytest

from orchestrator.model.cluster import Incarnation, NodeName
from orchestrator.model.observation import ClusterView, Look, SettingsView
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import RiakView, SignsOfLife
from orchestrator.ports import ClusterReadings
from orchestrator.stores.riak.output import CommandOutput
from orchestrator.stores.riak.parse_members import parse_cluster_status
from orchestrator.stores.riak.parse_pace import parse_timer
from orchestrator.stores.riak.parse_ring import parse_ring_status, parse_ringready
from orchestrator.stores.riak.parse_stats import parse_stats
from orchestrator.stores.riak.parse_transfers import parse_transfers
from tests.doubles.riak_double.stats import stats
from tests.fakes.riak_meanings import DIALECT
from tests.fakes.scripted_http import reply
from tests.riak_nodes import RiakCommand
from tests.unit.stores.cases import known, why
from tests.unit.stores.riak_cluster import DEV1, DEV2, DEV3, NAMES, Staged, staged

EVERYTHING = frozenset({Look.CLUSTER, Look.HEALTH, Look.ACTIVITY, Look.SETTINGS})
Spoiling = Callable[[str], str]
LOGIN = "Last login: Sun Nov 22 20:35:32 2026 from 10.0.0.9\n"
FRENCH = "Le nœud ne répond pas aux requêtes\n"

SPOILT: Mapping[str, Spoiling] = {
    "empty": lambda _: "",
    "the return term alone": lambda _: "ok\n",
    "blank lines": lambda _: "\n \n\t\n",
    "a login before it": lambda text: LOGIN + text,
    "a login behind it": lambda text: text + LOGIN,
    "coloured": lambda text: "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines()),
    "a colour behind it": lambda text: f"{text}\x1b[0m",
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
    "a mark of byte order": lambda text: f"\ufeff{text}",
    "zero bytes": lambda text: text.replace(" ", "\0"),
    "in another language": lambda _: FRENCH,
    "half": lambda text: text[: len(text) // 2],
    "without its last line": lambda text: "".join(text.splitlines(keepends=True)[:-1]),
    "twice": lambda text: text * 2,
    "a page of a proxy": lambda _: "<html><body>502 Bad Gateway</body></html>\n",
    "nothing of Erlang's": lambda _: "undefined\n",
    "shouted": str.upper,
    "the news of another command": lambda text: (
        "TRUE All nodes agree on the ring ['dev1@127.0.0.1']\nok\n"
        if "Transfers" in text
        else "No transfers active\n\nActive Transfers:\n\n\nok\n"
    ),
}
COMMANDS: Mapping[str, Look] = {
    "admin cluster status": Look.CLUSTER,
    "admin member-status": Look.ACTIVITY,
    "admin ring-status": Look.ACTIVITY,
    "admin ringready": Look.HEALTH,
    "rpc riak_core_node_watcher": Look.HEALTH,
    "admin wait-for-service": Look.HEALTH,
    "admin transfers": Look.ACTIVITY,
    "admin cluster partitions": Look.ACTIVITY,
    "admin bucket-type list": Look.ACTIVITY,
    "admin bucket-type status": Look.ACTIVITY,
    "admin transfer-limit": Look.SETTINGS,
    "pid": Look.CLUSTER,
    "/proc/sys": Look.CLUSTER,
}
"""Each with a look that asks it."""
LOST_FROM_A_NUMBER = {("pid", "half")}
"""A number that lost its end is another number: nobody can tell."""


@pytest.fixture(scope="module")
def whole() -> Iterator[Staged]:
    """All nodes up, and a peer was asked after DEV3."""
    with staged(RiakCommand.RELEASE) as each:
        each.cluster.avoid({DEV3})
        yield each


@pytest.fixture(scope="module")
def broken() -> Iterator[Staged]:
    """DEV2 is down and DEV3 has just come up; whatever fails, the packaged command exits 0."""
    with staged(RiakCommand.PACKAGED) as each:
        each.cluster.observe(EVERYTHING)
        each.cluster.avoid({DEV3})
        each.world.stop(DEV2)
        each.world.stop(DEV3)
        each.world.start(DEV3)
        each.world.run(12)
        yield each


def same_or_unknown(found: Any, meant: Any) -> bool:
    """Whether nothing is told that was not meant."""
    if isinstance(found, Unknown) or found == meant:
        return True
    if isinstance(found, (RiakView, SignsOfLife)) and type(found) is type(meant):
        names = [field.name for field in fields(found) if field.name != "unidentified"]
        return all(same_or_unknown(getattr(found, name), getattr(meant, name)) for name in names)
    if isinstance(found, Mapping) and isinstance(meant, Mapping):
        return found.keys() == meant.keys() and all(same_or_unknown(found[key], meant[key]) for key in found)
    return False


def assert_no_lie(found: ClusterReadings, meant: ClusterReadings) -> None:
    told, view = found.cluster, meant.cluster
    if isinstance(told, ClusterView):
        assert isinstance(view, ClusterView)
        assert same_or_unknown(told.riak, view.riak), (told.riak, view.riak)
        assert [node.name for node in told.nodes] == [node.name for node in view.nodes]
        for node, other in zip(told.nodes, view.nodes, strict=True):
            assert node.incarnation in (Incarnation(), other.incarnation)
    limits = found.settings
    if not isinstance(limits, Unknown):
        assert isinstance(meant.settings, SettingsView)
        assert limits.transient.items() <= meant.settings.transient.items()


def of_text(spoil: Spoiling) -> Callable[[CommandOutput], CommandOutput]:
    return lambda output: replace(output, stdout=spoil(output.stdout))


@contextmanager
def spoiling(
    stage: Staged, command: str, spoil: Callable[[CommandOutput], CommandOutput]
) -> Iterator[list[str]]:
    """Spoil the output of a command; yields the command lines that were spoilt."""
    met: list[str] = []

    def spoilt(_node: NodeName, line: str, output: CommandOutput) -> CommandOutput:
        if not line.startswith(command):
            return output
        met.append(line)
        return spoil(output)

    stage.runner.spoil = spoilt
    try:
        yield met
    finally:
        stage.runner.spoil = None


@pytest.mark.parametrize("state", ["whole", "broken"])
def test_what_is_spoilt_on_its_way_is_no_other_news(
    subtests: pytest.Subtests, state: str, request: pytest.FixtureRequest
) -> None:
    stage: Staged = request.getfixturevalue(state)
    for command, part in COMMANDS.items():
        stage.runner.refused = ("rpc",) if "wait-for" in command else ()
        stage.later(100)
        meant = stage.cluster.observe({part})
        asked = 0
        for name, spoil in SPOILT.items():
            if (command, name) in LOST_FROM_A_NUMBER:
                continue
            with subtests.test(command=command, name=name):
                with spoiling(stage, command, of_text(spoil)) as met:
                    found = stage.cluster.observe({part})
                asked += len(met)
                assert_no_lie(found, meant)
        assert asked, f"nobody asked {command}"


def test_good_words_with_a_bad_exit_code_are_unknown(subtests: pytest.Subtests, whole: Staged) -> None:
    for command, part in COMMANDS.items():
        with subtests.test(command=command):
            whole.runner.refused = ("rpc",) if "wait-for" in command else ()
            whole.later(100)
            meant = whole.cluster.observe({part})
            with spoiling(whole, command, lambda output: replace(output, exit=1)):
                found = whole.cluster.observe({part})
            assert_no_lie(found, meant)
            assert found != meant or command.startswith("rpc"), "wait-for-service answers in its place"


def _other(name: str, **more: object) -> Callable[[Staged], bytes]:
    def body(stage: Staged) -> bytes:
        return json.dumps({**stats(stage.world.view(NodeName(name))), **more}).encode()

    return body


PAGES: Mapping[str, Callable[[Staged], bytes]] = {
    "nothing": lambda _: b"",
    "a list": lambda _: b"[]",
    "a text": lambda _: b'"OK"',
    "an empty object": lambda _: b"{}",
    "null": lambda _: b"null",
    "not a number": lambda _: b'{"riak_kv_vnodes_running": NaN}',
    "a page of a proxy": lambda _: b"<html>OK</html>",
    "that of another node": _other(DEV1),
    "no vnodes, but a number in quotes": _other(DEV3, riak_kv_vnodes_running="64"),
    "so many vnodes and a half": _other(DEV3, riak_kv_vnodes_running=64.5),
    "true vnodes": _other(DEV3, riak_kv_vnodes_running=True),
    "endless vnodes": _other(DEV3, riak_kv_vnodes_running=float("inf")),
    "vnodes that are not a number": _other(DEV3, riak_kv_vnodes_running=float("nan")),
    "fewer than no vnodes": _other(DEV3, riak_kv_vnodes_running=-1),
    "peers in one text": _other(DEV3, connected_nodes=", ".join(NAMES)),
    "a node without a host": _other(DEV3, nodename="dev3"),
}


@contextmanager
def paged(stage: Staged, node: NodeName, body: bytes) -> Iterator[None]:
    """The node's `/stats` is another page."""
    before = stage.ports[node].answers["/stats"][-1]
    stage.ports[node].on("/stats", reply(body, headers={"Connection": "close"}))
    try:
        yield
    finally:
        stage.ports[node].on("/stats", before)


def riak_of(readings: ClusterReadings) -> RiakView:
    view = known(readings.cluster).riak
    assert view is not None
    return view


def test_a_stats_page_of_another_shape_is_unknown(subtests: pytest.Subtests, whole: Staged) -> None:
    for name, page in PAGES.items():
        with subtests.test(name), paged(whole, DEV3, page(whole)):
            signs = riak_of(whole.cluster.observe({Look.HEALTH})).signs
            assert isinstance(signs[DEV3].stats, Unknown)
            assert not isinstance(signs[DEV1].stats, Unknown)


def test_the_ring_is_not_held_against_the_page_of_another_node(whole: Staged) -> None:
    with paged(whole, DEV1, _other(DEV2)(whole)):
        assert DEV2 in why(riak_of(whole.cluster.observe({Look.ACTIVITY})).ring)


# Too much --------------------------------------------------------------------------------------------

MANY = 10**5
DIGITS = "1" * 5000
"""More than Python turns into a number."""
BORDER = f"+{'-' * 20_000}+------+-------+-----+-------+"
STATUS = (
    f"---- Cluster Status ----\nRing ready: true\n{BORDER}\n"
    f"|{'node'.ljust(20_000)}|status| avail |ring |pending|\n{BORDER}\n"
    f"|{' ' * 20_000}|valid |  up   |100.0|  --   |\n{BORDER}"
    "\nKey: (C) = Claimant; availability marked with '!' is unexpected\nok\n"
)
AGREED = f"TRUE All nodes agree on the ring [{chr(10).join(['x@y,'] * MANY)}"
WAITING = f"'a@b' waiting to handoff {DIGITS} partitions\n\nActive Transfers:\n\n\nok\n"
LONG: Mapping[str, tuple[Callable[..., Any], str]] = {
    "a list of a hundred thousand lines": (parse_ringready, AGREED),
    "a bracket that is never closed": (parse_ringready, "[\n" + "a,\n" * MANY + "ok\n"),
    "a cell of nothing but blanks": (parse_cluster_status, STATUS),
    "a heading that goes on and on": (parse_ring_status, "= " * MANY + "\nok\n"),
    "a number of five thousand digits": (parse_transfers, WAITING),
    "another one": (parse_stats, f'{{"ring_num_partitions": {DIGITS}}}'),
    "a text where a number should be": (parse_stats, json.dumps({"ring_num_partitions": "x" * 3_000_000})),
    "brackets in brackets": (parse_timer, "[" * MANY),
}


def test_too_much_is_unknown_soon_and_in_few_words(subtests: pytest.Subtests) -> None:
    for what, (parse, text) in LONG.items():
        with subtests.test(what):
            began = time.process_time()
            output = CommandOutput(exit=0, stdout=text)
            given = (
                (text,) if parse is parse_stats else (output,) if parse is parse_timer else (output, DIALECT)
            )
            found = parse(*given)
            assert isinstance(found, Unknown)
            assert len(found.reason) < 1000
            assert time.process_time() - began < 20, "where it took time by the square, it took minutes"
