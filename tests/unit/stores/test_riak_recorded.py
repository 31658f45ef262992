# ruff: noqa: E501  (the page has tables)
"""Every output that was recorded on a real Riak, read; a page of the docs tells what each one means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.model.reading import Unknown
from orchestrator.model.riak import Availability, NodeStats, Transfers
from orchestrator.stores.riak.parse_stats import parse_stats
from tests.fakes.riak_meanings import meaning, parser_of, table, told, value_of
from tests.fakes.riak_transcripts import FILES, Recorded, recorded
from tests.riak_transcripts import STATS, wrapper_recordings

PAGE = Path(__file__).parents[3] / "docs" / "development" / "riak-outputs.md"
REWRITE = "ORCHESTRATE_REWRITE_GOLDEN"
HEAD = """# What Riak's commands say

<!-- Written by `tests/unit/stores/test_riak_recorded.py` with ORCHESTRATE_REWRITE_GOLDEN=1. -->

Every command that was recorded on a real Riak 3.2.1 of three nodes (`more`: of five), and what the program
takes its output to mean. The texts are in `tests/data/riak/`; the line is where the command stands in its
file. Equal neighbours share a line, with their number. Node names are cut at the `@`.

A reading is a value or UNKNOWN with a reason, and UNKNOWN is never healthy. Exit codes prove nothing on 3.2.
`cut` is a command that its recorder ended, as the program's own limits do. What to look for:

- `transfers` prints `No transfers active` in the state `dev2down` too; that is not CLEAN.
- `member-status` lists a stopped node as valid; only `cluster status` has it as down.
- `ring-status` calls the ring ready and all nodes reachable in the state `misc`, when a node is down that was
  marked as down; `ringready` and `cluster status` do not.
- `handoff summary` shows no active transfer in the first state `active`, while `transfers` shows one; and
  known ones in the state `settled`, when `transfers` is CLEAN. The program does not read it.
- `transfer-limit` returns `ok` though a node did not get the limit.
- `services` prints `[]` on 3.2, whatever runs.

## The packaged command

The files `commands`, `timeline` and `more` are of the release's own `bin/riak`. The packages of 3.2.0 and
3.2.1 put a script at `/usr/sbin/riak`. Called as root, it exits 0 for everything (`packaged`). So the text
decides whether a node runs, and what came of a stop and a start. Every text of the table means the same with
both commands.

| command | text | means |
| --- | --- | --- |
| `riak ping` | `pong` | the service runs |
| `riak ping` | `Node … is not responding to pings`, `Node did not respond to ping!` | the service is stopped |
| `riak ping` | any other text; `pong` with another exit code than 0 | UNKNOWN: the run holds |
| `riak stop` | `ok` | done; `riak ping` tells when the node is down |
| `riak stop` | nothing, or that the node is not responding | in doubt: nothing was stopped, `riak ping` tells |
| `riak start` | nothing, the `ulimit` warning, `riak start is deprecated … Riak starting ..` | done; no sign of life |
| `riak start` | `Node is already running!` | done |
| `riak start` | `Riak failed to start within … seconds,` | in doubt: the node may still come up |
| `riak stop`, `riak start` | `Usage: riak …`, `Error reading …`, `su: …`, `… needs to have …` | refused |
| `riak stop`, `riak start` | any other text | in doubt, with the text |
| `wait-for-service` | `riak_kv is not up: …` as the last line | not up so far, whatever the exit code is |

`starting` and `stopping` are no texts of Riak: they are a service that is stopped, or runs, while its start
or its stop is at work. A command line of the cluster file that is not `riak ping`, `stop`, `start` or
`daemon` itself keeps its exit code, unless one of these lines in its output says otherwise.

## Load on the nodes

Every Riak command starts an Erlang VM on its node: about 0.4 s of a processor on an idle machine, 3 to 20 s on a busy
one. `/ping`, `/stats` and `/proc` start none; the `/stats` of five nodes take less than 0.1 s together.

| while | a reading sends |
|---|---|
| before a stop, and a plan | each command once, to the member with the fewest so far; `transfers` to two members, `cluster partitions` to each owner |
| the node is down | `cluster status` to one member, `riak ping` to the node |
| the node comes back | `cluster status` to one member; `ringready` and the `rpc` line once `/ping` and `/stats` show that it is ready |
| handoff runs | nothing while all `/stats` agree on the ring and count vnodes beyond the owned ones; else, and once a minute, `cluster status` and `transfers` to two members |
| handoff is hastened | also the timer of each node, the unstarted vnodes of a node until there are none, and every two seconds one command that forces handoff |

`riak pid` is sent when the process in `/proc` has changed. `vnode-status` is never sent: a vnode hands off only after a
time without messages. `/stats` only prove that handoff continues; `transfers` on two members, in several readings,
prove that it is complete.

## Every recorded command

"""


def page() -> str:
    return HEAD + table()


def test_the_page_says_what_every_recorded_command_means() -> None:
    if os.environ.get(REWRITE):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), f"run with {REWRITE}=1 and read the diff"


def test_every_command_of_the_files_is_walked() -> None:
    bodies = [file.read_bytes() for file in FILES]
    heads = [line for body in bodies for line in body.split(b"\n") if line.startswith(b"===")]
    packaged = len(wrapper_recordings())
    assert (len(recorded()), len(heads), packaged) == (598, 594, 4)


def of(state: str, command: str) -> list[Recorded]:
    return [each for each in recorded() if each.state == state and each.command == command]


def test_only_an_answer_that_riak_withholds_is_unknown(
    subtests: pytest.Subtests,
) -> None:
    for record in recorded():
        with subtests.test(str(record)):
            if parser_of(record.command) is None:
                assert meaning(record).startswith("not read: ")
                continue
            unidentified = "is not responding to pings" in record.text or "Invalid " in record.text
            answers_in_any_case = record.command.startswith(("riak ping", "riak stop", "riak admin wait-for"))
            assert isinstance(value_of(record), Unknown) is (unidentified and not answers_in_any_case)


def test_clean_is_what_stands_after_every_drain_and_nowhere_else() -> None:
    """The oracle knows nothing of the parser: the text of the clean ones is one and the same."""
    clean = [each for each in recorded() if each.text == "No transfers active\n\nActive Transfers:\n\n\nok\n"]
    read = [each for each in recorded() if isinstance(value := value_of(each), Transfers) and value.clean]
    assert read == clean
    assert len(clean) == 7


def test_no_transfers_beside_a_node_that_is_down_is_not_clean() -> None:
    (record,) = of("dev2down", "riak admin transfers")
    assert "No transfers active" in record.text
    assert meaning(record) == "not clean: dev2 down; dev2 not contacted"


def test_only_cluster_status_tells_that_a_node_is_down() -> None:
    (status,) = of("dev2down", "riak admin cluster status")
    assert [each.availability for each in value_of(status).members] == [
        Availability.UP,
        Availability.DOWN,
        Availability.UP,
    ]
    (members,) = of("dev2down", "riak admin member-status")
    assert "dev2 valid" in meaning(members)


def test_a_wrapped_list_is_one_list() -> None:
    record = of("joining1", "riak admin ringready")[0]
    assert record.text.count("\n") == 3
    assert meaning(record) == "ring ready: dev1, dev2, dev3 agree"


def test_stats_tell_vnodes_ring_and_schedulers() -> None:
    stats = parse_stats(STATS.read_text())
    assert isinstance(stats, NodeStats)
    assert (stats.kv_vnodes, stats.ring_size, sum(stats.ownership.values())) == (6, 16, 16)
    assert sorted(stats.members) == ["dev1@127.0.0.1", "dev2@127.0.0.1", "dev3@127.0.0.1"]
    assert sorted(stats.connected) == ["dev2@127.0.0.1", "dev3@127.0.0.1"]
    assert (stats.schedulers, stats.schedulers_online, stats.release) == (2, 2, "25")


def test_stats_that_are_cut_are_unknown(subtests: pytest.Subtests) -> None:
    for length in range(0, 16_000, 531):
        with subtests.test(length=length):
            assert isinstance(parse_stats(STATS.read_text()[:length]), Unknown)


def test_stats_that_contradict_themselves_are_unknown(subtests: pytest.Subtests) -> None:
    for was, now in [
        ('"riak_kv_vnodes_running":6', '"riak_kv_vnodes_running":"undefined"'),
        ('"ring_num_partitions":16', '"ring_num_partitions":64'),
        ("{'dev3@127.0.0.1',5},", ""),
        ('"connected_nodes":["dev2@127.0.0.1","dev3@127.0.0.1"]', '"connected_nodes":null'),
        ('"ring_members":["dev1@127.0.0.1",', '"ring_members":['),
        ('"nodename":"dev1@127.0.0.1"', '"nodename":"dev1"'),
    ]:
        with subtests.test(was=was, now=now):
            body = STATS.read_text()
            assert was in body
            assert isinstance(parse_stats(body.replace(was, now)), Unknown)


def test_an_unknown_is_told_with_its_reason() -> None:
    assert told(Unknown(reason="why")) == "UNKNOWN: why"
