"""Runs zone by zone on real nodes: what waves they should have, and what is watched while they go on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from types import TracebackType
from typing import Any, Self

from tests.integration.watching import Sightings, Watcher
from tests.lab.client import Access, LabClient
from tests.lab.layout import LabNode
from tests.lab.load import Load, LoadProfile, Verification

Wave = tuple[str, ...]

SIX_IN_THREE = (
    *(LabNode(name=f"es{number}", zone=zone, roles=("data",)) for number, zone in enumerate("abc", 1)),
    *(
        LabNode(name=f"es{number}", zone=zone, roles=("master", "data"))
        for number, zone in enumerate("abc", 4)
    ),
)
"""A node without a vote and one with a vote in each of three zones."""
EIGHT = tuple(
    LabNode(name=f"es{number}", zone="a", roles=("master", "data") if number > 5 else ("data",))
    for number in range(1, 9)
)
"""Without zones."""


def zones_of(nodes: Iterable[LabNode]) -> dict[str, str]:
    """The zone of each node."""
    return {node.name: node.zone for node in nodes}


def elected_master(client: LabClient) -> str:
    """The name of the elected master."""
    try:
        state = client.ask("GET", "/_cluster/state/nodes,master_node")
    finally:
        client.close()
    return str(state["nodes"][state["master_node"]]["name"])


def whole_zones(zones: Mapping[str, str], master: str) -> list[Wave]:
    """The waves where every zone can go whole: by name, the elected master's last, and it last in it.

    Args:
        zones: the zone of each node; names sort as nodes rank, those without a vote first.
        master: the elected one.
    """
    titles = sorted(set(zones.values()), key=lambda zone: (zone == zones[master], zone))
    return [
        tuple(
            sorted((name for name in zones if zones[name] == title), key=lambda name: (name == master, name))
        )
        for title in titles
    ]


def cut(waves: Iterable[Wave], zone: Wave, *parts: Wave) -> list[Wave]:
    """The same waves, but for one zone, which goes in parts."""
    return [part for wave in waves for part in (parts if wave == zone else (wave,))]


def events(output: str, name: str) -> list[dict[str, Any]]:
    """The events of one name in the output of a run with `--output json`."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def waves(output: str) -> list[Wave]:
    """The waves of a run, in their order."""
    return [tuple(line["wave"]["nodes"]) for line in events(output, "wave_started")]


def whys(output: str) -> list[str]:
    """Why each wave was what it was."""
    return [line["wave"]["why"] for line in events(output, "wave_started")]


def story(output: str) -> str:
    """Waves, holds and the end of a run, for a reader of the tests' output."""
    said = [
        f"wave {line['wave']['number']}: {', '.join(line['wave']['nodes'])}: {line['wave']['why']}"
        for line in events(output, "wave_started")
    ]
    said += [
        f"hold: {line['predicate']} ({line['subject']}): {line['evidence']}"
        for line in events(output, "hold")
    ]
    said += [f"exit {line['exit_code']}: {line.get('message')}" for line in events(output, "summary")]
    return "\n  ".join(said)


def rescued(outputs: Iterable[str], seen: Sightings) -> set[str]:
    """Nodes that were rescued for an index which nobody could know of at the last reading before the stop.

    A rollover may make an index on a node in the moment between that reading and the stop: then it is right
    to start the node at once, and to give it another turn. Each rescue must be of that kind: its shards had
    no started copy yet, by the watcher's own readings, when the program asked for its last one.

    Args:
        outputs: of the processes of one run, in their order.
        seen: what the watcher read meanwhile.
    """
    nodes: set[str] = set()
    wave, asked, told = list[str](), 0.0, 0.0
    for line in _whole_lines(outputs):
        if line["event"] == "wave_started":
            wave = line["wave"]["nodes"]
        elif line["event"] == "taken_down":
            asked = told
        elif line["event"] == "rescued":
            for shard in line["shards"]:
                started = seen.first_started.get(shard)
                early = started is not None and started <= asked
                assert not early, f"{shard} was there before the last reading"
            nodes |= set(wave)
        if "sequence" in line:
            told = datetime.fromisoformat(line["ts"]).timestamp()
    return nodes


def _whole_lines(outputs: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Every JSON line, but for one that a killed process could not finish."""
    for line in chain.from_iterable(said.splitlines() for said in outputs):
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


class Vigil:
    """A load, and a watcher of the routing table, for as long as runs go on. Use as a context manager.

    Attributes:
        watcher: what was read of the routing table.
        proof: what became of the acknowledged documents; there after the end.
    """

    proof: Verification

    def __init__(self, access: Access, zones: Mapping[str, str]) -> None:
        self._zones = zones
        # A wave may be three neighbours in the client's rotation: a search asks every node before it is lost.
        self._load = Load(access, LoadProfile(search_attempts=len(zones)))
        self.watcher = Watcher(access, zones)

    def __enter__(self) -> Self:
        self._load.start()
        self._load.wait_acknowledged(200)
        self.watcher.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.watcher.stop()
        self._load.stop()
        if error is None:
            self.proof = self._load.verify()

    def told(self) -> str:
        """Two lines of figures."""
        result, proof = self._load.result(), self.proof
        searching = result.searching
        return (
            f"load: {proof.acknowledged} documents acknowledged, {len(proof.missing)} missing, "
            f"{len(proof.duplicated)} twice; failed requests: {result.indexing.failed} of "
            f"{result.indexing.sent} index, {searching.failed} of {searching.sent} search, "
            f"{searching.partial} more without some shard; {searching.abandoned} searches failed with retries"
            f"\n  watcher: {self.watcher.told()}"
        )

    def assert_nothing_was_lost(self, went: Sequence[Wave]) -> None:
        """No document, no search, no shard; `went` were away, and never nodes of two zones together.

        What would make each fail: a shard whose two copies were stopped together (all of them: the pair in
        `test_waves_on_nodes.py` shows it), a second wave before the first is back (nodes of two zones), nodes
        of a wave one after the other, or a watcher that slept (a wave that was never read as away).
        """
        seen, told = self.watcher.seen, self.told()
        assert self.proof.whole, told
        assert self._load.result().searching.abandoned == 0, told
        assert seen.lost == [], told
        assert seen.fewest is not None, told
        for away in seen.away:
            assert len({self._zones[name] for name in away}) == 1, told
        for wave in went:
            assert seen.saw_away(wave), f"{wave} was not read as away together: {told}"
