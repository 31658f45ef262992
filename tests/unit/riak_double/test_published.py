"""What nobody recorded: held to the product's published source, and to what the double says elsewhere.

The program reads these texts with parsers that were written from the same source. So the parsers alone prove
little here: each partition is held against `/stats`, the lines against the source's layout.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.stores.riak.dialect import Dialect, dialect_of
from orchestrator.stores.riak.output import CommandOutput
from orchestrator.stores.riak.parse_bucket_types import parse_bucket_types, parse_n_val
from orchestrator.stores.riak.parse_members import parse_cluster_status, parse_member_status
from orchestrator.stores.riak.parse_ring import parse_partitions, ring_of
from orchestrator.stores.riak.parse_stats import parse_stats
from tests.doubles.riak_double.commands import answer
from tests.doubles.riak_double.report import View
from tests.doubles.riak_double.settings import BucketType, read_own
from tests.doubles.riak_double.stats import stats
from tests.doubles.riak_double.versions import dialect
from tests.unit.riak_double.world import World

NAMES = tuple(f"riak{number}@127.0.0.1" for number in range(1, 6))
FIRST, SECOND = NAMES[:2]
OLD_AND_NEW = ["2.9.10", "3.0.16", "3.2.1"]
TYPES = (
    BucketType(name="big", n_val=5),
    BucketType(name="new", n_val=1, status="ready"),
    BucketType(name="fresh", n_val=2, status="created"),
)


def settled() -> World:
    world = World(names=NAMES, size=64)
    world.run(300)
    return world


def read(view: View, words: str, version: str = "3.2.1") -> tuple[CommandOutput, Dialect]:
    """What `riak admin WORDS` prints and exits with in a version, and how the program reads that version."""
    manner, known = dialect(version), dialect_of(version)
    assert known is not None
    said = answer(["admin", *words.split()], view).said
    return CommandOutput(exit=manner.code(said), stdout=manner.text(said)), known


def ring_told(view: View) -> object:
    counted = parse_stats(json.dumps(stats(view)))
    assert not isinstance(counted, Unknown)
    owned = {}
    for name in NAMES:
        found = parse_partitions(*read(view, f"cluster partitions -n {name}"))
        assert not isinstance(found, Unknown), found
        assert found[0] == name
        owned[found[0]] = found[1]
    return ring_of(owned, counted)


def test_the_ring_that_partitions_tell_is_the_one_that_stats_count() -> None:
    world = settled()
    told = ring_told(world.view(FIRST))
    assert not isinstance(told, Unknown)
    assert getattr(told, "owners", None) == world.view(FIRST).ring.owners


def test_a_node_that_is_down_owns_what_it_owned_and_nothing_of_it_runs() -> None:
    world = settled()
    before = ring_told(world.view(FIRST))
    world.stop(SECOND)
    text = read(world.view(FIRST), f"cluster partitions -n {SECOND}")[0].stdout
    assert text.count("| stopped |") == len(world.view(FIRST).ring.owned(SECOND))
    assert (text.count("| primary |"), text.count("|secondary|")) == (1, 1)  # a line of dashes each
    assert ring_told(world.view(FIRST)) == before


def test_a_node_that_starts_has_them_stopped_then_running_and_its_fallbacks_are_not_its_own() -> None:
    world = settled()
    before = ring_told(world.view(FIRST))
    world.stop(SECOND)
    world.start(SECOND)
    kinds = []
    for seconds in (3, 12):
        world.run(seconds)
        text = read(world.view(FIRST), f"cluster partitions --node={SECOND}")[0].stdout
        kinds.append({kind: text.count(f"{kind} |") for kind in ("primary", "stopped")})
        assert ring_told(world.view(FIRST)) == before
    assert kinds[0]["stopped"] > 1
    assert kinds[1] == {"primary": len(world.view(FIRST).ring.owned(SECOND)), "stopped": 1}
    assert text.count("|secondary|") == 64 - kinds[1]["primary"]


def test_the_layout_of_partitions() -> None:
    world = World(names=NAMES[:3])
    world.run(300)
    own = [(str(number * 2**160 // 16), str(number)) for number in (1, 2, 5, 9, 13)]
    rows = [*(("primary", *each) for each in own), ("secondary", "--", "--"), ("stopped", "--", "--")]
    text, known = read(world.view(SECOND), "cluster partitions")
    lines = text.stdout.splitlines()
    assert lines[0] == f"Partitions owned by '{SECOND}':"
    assert lines[1] == lines[3] == lines[-3] == f"+---------+{'-' * 49}+--+"
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == ["type", "index", "id"]
    found = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines[4:-3]]
    assert found == rows
    assert lines[-2:] == ["", "ok"]
    assert not isinstance(parse_partitions(text, known), Unknown)


@pytest.mark.parametrize("version", OLD_AND_NEW)
def test_a_name_that_is_no_member_is_refused(version: str) -> None:
    output, known = read(settled().view(FIRST), "cluster partitions -n riak9@127.0.0.1", version)
    newest = version == "3.2.1"
    assert output.stdout == "Invalid node name\n" + ("{error,1}\n" if newest else "")
    assert output.exit == (0 if newest else 1)
    assert isinstance(parse_partitions(output, known), Unknown)


@pytest.mark.parametrize("version", OLD_AND_NEW)
def test_bucket_types_and_their_n_vals(version: str) -> None:
    view = replace(World(names=NAMES, size=64).view(FIRST), bucket_types=TYPES)
    output, known = read(view, "bucket-type list", version)
    lines = ["default (active)", "big (active)", "new (not active)", "fresh (not active)"]
    assert output.stdout.splitlines()[:4] == lines
    assert parse_bucket_types(output, known) == ("default", "big", "new", "fresh")
    for name, n_val in (("default", 3), ("big", 5), ("new", 1)):
        status, _ = read(view, f"bucket-type status {name}", version)
        assert parse_n_val(status, name) == n_val
    ready, _ = read(view, "bucket-type status new", version)
    assert ready.stdout.startswith("new has been created and may be activated\n\n")
    assert f"active: false\nclaimant: '{view.ring.claimant}'\n" in ready.stdout


@pytest.mark.parametrize("version", OLD_AND_NEW)
@pytest.mark.parametrize(
    ("name", "first", "term"),
    [
        ("fresh", "fresh has been created but cannot be activated yet", "{error,not_ready}"),
        ("none", "none is not an existing bucket type", "{error,undefined}"),
    ],
)
def test_a_bucket_type_that_is_not_there_or_not_everywhere(
    version: str, name: str, first: str, term: str
) -> None:
    view = replace(World(names=NAMES, size=64).view(FIRST), bucket_types=TYPES)
    output, _ = read(view, f"bucket-type status {name}", version)
    assert output.stdout.splitlines()[0] == first
    if version == "3.2.1":
        assert (output.stdout.splitlines()[-1], output.exit) == (term, 0)
    else:
        assert (term in output.stdout, output.exit) == (False, 1)
    assert isinstance(parse_n_val(output, name), Unknown)


def test_bucket_types_are_configured(tmp_path: Path) -> None:
    conf = tmp_path / "double.conf"
    conf.write_text("bucket_types = big:5, new:1:ready,fresh:2:created\n")
    assert read_own({"RIAK_DOUBLE_HOME": str(tmp_path)}).bucket_types == TYPES
    for wrong in ("big", "big:many", "big:5:off", ":5"):
        conf.write_text(f"bucket_types = {wrong}\n")
        with pytest.raises(ValueError, match=re.escape(f"bucket type {wrong} is not NAME:N_VAL")):
            read_own({"RIAK_DOUBLE_HOME": str(tmp_path)})


def test_owners_of_names_that_the_program_knows() -> None:
    """A name from a text is the name that the program asks with again."""
    found = parse_partitions(*read(settled().view(FIRST), f"cluster partitions --node {SECOND}"))
    assert not isinstance(found, Unknown)
    assert found[0] == NodeName(SECOND)


def test_locations_stand_beside_the_members_whether_they_are_up_or_not() -> None:
    """A column of `cluster status` from the first location on; in `member-status` behind the name."""
    world = settled()
    world.stop(SECOND)
    view = replace(world.view(FIRST), locations={FIRST: "rack a", SECOND: "rack b"})
    status = parse_cluster_status(*read(view, "cluster status"))
    members = parse_member_status(*read(view, "member-status"))
    assert not isinstance(status, Unknown), status
    assert not isinstance(members, Unknown), members
    expected = {name: {FIRST: "rack a", SECOND: "rack b"}.get(name) for name in NAMES}
    assert {each.node: each.location for each in status.members} == expected
    assert {each.node: each.location for each in members} == expected
    assert "location" not in read(world.view(FIRST), "cluster status")[0].stdout
