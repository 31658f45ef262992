"""What each recorded command means, by the parser that reads it: `data/riak/meanings.md`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from orchestrator.riak import (
    parse_handoff,
    parse_node,
    parse_ring,
)
from orchestrator.riak.output import CommandOutput, RiakDialect, dialect_of, reading
from tests.fakes.plain import plain
from tests.riak_transcripts import COMMANDS, MORE, TIMELINE, WRAPPER, Recording, recorded

_found = dialect_of("3.2.1")
assert _found is not None
DIALECT: RiakDialect = _found

Parser = Callable[[CommandOutput], Any]


def _with(parse: Callable[[CommandOutput, RiakDialect], Any]) -> Parser:
    return lambda output: parse(output, DIALECT)


PARSERS: Mapping[str, Parser] = {
    "riak ping": parse_node.parse_ping,
    "riak pid": parse_node.parse_pid,
    "riak stop": parse_node.parse_stop,
    "riak daemon": parse_node.parse_start,
    "riak start": parse_node.parse_start,
    "riak versions": parse_node.parse_versions,
    "riak admin wait-for-service riak_kv": lambda it: parse_node.parse_wait_for_service(it, "riak_kv"),
    "riak admin wait-for-service nosuch": lambda it: parse_node.parse_wait_for_service(it, "nosuch"),
    "riak admin ringready": _with(parse_ring.parse_ringready),
    "riak admin cluster status": _with(parse_ring.parse_cluster_status),
    "riak admin cluster partitions": _with(parse_ring.parse_partitions),
    "riak admin bucket-type list": _with(parse_node.parse_bucket_types),
    "riak admin bucket-type status default": lambda it: parse_node.parse_n_val(it, "default"),
    "riak admin transfers": _with(parse_handoff.parse_transfers),
    "riak admin show transfer_limit": lambda it: parse_handoff.parse_shown(it, DIALECT, "transfer_limit"),
    "riak admin show handoff.outbound": lambda it: parse_handoff.parse_shown(it, DIALECT, "handoff.outbound"),
    "riak admin show nosuch": lambda it: parse_handoff.parse_shown(it, DIALECT, "nosuch"),
    "riak admin show riak_core": lambda it: parse_handoff.parse_shown(it, DIALECT, "riak_core"),
    "riak admin set transfer_limit": _with(parse_handoff.parse_limit_set),
    "riak admin transfer-limit ": _with(parse_handoff.parse_limit_set),
    "riak admin transfer-limit": _with(parse_handoff.parse_transfer_limits),
}
NOT_READ: Mapping[str, str] = {
    "riak chkconfig": "the start shows it",
    "riak eval": "not asked: `riak rpc` does what is needed",
    "riak rpc erlang": "not needed for a restart",
    "riak rpc riak_core_node_watcher services": "peers are asked where a service is up",
    "riak admin ring-status": "`cluster status` has it",
    "riak admin member-status": "`cluster status` has it",
    "riak admin services": "prints `[]` on 3.2, whatever runs",
    "riak admin vnode-status": "raw bytes; `/stats` counts the vnodes",
    "riak admin cluster plan": "what is staged and not committed changes nothing",
    "riak admin cluster partition-count": "`/stats` has it",
    "riak admin handoff config": "`transfer-limit` and `show` have it",
    "riak status": "prints nothing; `riak ping` tells",
    "riak restart": "the applications start anew in the same process; it is no restart of the node",
    "riak config": "`riak` has no such command",
    "riak admin status": "the text form of `/stats`",
    "riak admin handoff details": "one node's view: seen without a transfer while `transfers` showed one",
    "riak admin handoff summary": "`transfers` has the same of each node",
    "riak admin handoff summary --help": "help",
    "riak admin handoff disable": "changes handoff, which the program never does",
    "riak admin handoff enable": "changes handoff, which the program never does",
    "riak admin handoff": "help",
    "riak admin aae-status": "not needed for a restart",
    "riak admin ensemble-status": "not needed for a restart",
    "riak admin describe": "help",
    "riak admin cluster join": "changes the cluster, which the program never does",
    "riak admin cluster commit": "changes the cluster, which the program never does",
    "riak admin down": "never in a rolling restart",
}


def parser_of(command: str) -> Parser | None:
    """The parser of the longest beginning; None for what is not read on purpose."""
    wanted = command.partition("{")[0]
    known = sorted({*PARSERS, *NOT_READ}, key=len, reverse=True)
    for start in known:
        if wanted.startswith(start):
            return PARSERS.get(start)
    raise AssertionError(f"nobody says what {command} means")


def why_not_read(command: str) -> str:
    return NOT_READ[max((start for start in NOT_READ if command.startswith(start)), key=len)]


def value_of(record: Recording) -> Any:
    parse = parser_of(record.command)
    return None if parse is None else reading(lambda: parse(record.output))


def meaning(record: Recording) -> str:
    """One line for people."""
    if parser_of(record.command) is None:
        return f"not read: {why_not_read(record.command)}"
    return plain(value_of(record)).replace("@127.0.0.1", "")


_SHORT: Mapping[str, str] = {
    COMMANDS.name: "commands",
    TIMELINE.name: "timeline",
    MORE.name: "more",
    WRAPPER.name: "packaged",
}


def table() -> str:
    """All meanings: equal neighbours in one line."""
    rows = [
        "| file, from line | state | asked | command | exit | means |",
        "| --- | --- | --- | --- | --- | --- |",
    ]

    def key(each: Recording) -> tuple[str, ...]:
        ended = "cut" if each.exit is None else str(each.exit)
        return (each.file, each.state, each.node, each.command, ended, meaning(each))

    for (file, state, node, command, ended, means), group in groupby(recorded(), key):
        same = list(group)
        where = f"{_SHORT[file]} {same[0].line}"
        times = f" ({len(same)} times)" if len(same) > 1 else ""
        rows.append(
            f"| {where}{times} | {state} | {node} | `{command}` | {ended} | {means.replace('|', '/')} |"
        )
    return "\n".join(rows) + "\n"
