"""What one node says of itself: ping, services, stop and start, its version and its Erlang machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading
from orchestrator.model.riak import ServiceWait
from orchestrator.stores.riak.dialect import Dialect
from orchestrator.stores.riak.output import (
    CommandOutput,
    Malformed,
    blank,
    lines_of,
    node_down,
    reading,
    said,
    shown,
)
from orchestrator.stores.riak.terms import atoms, node_names, parse_term

_PONG: Final = "pong"
_STOPPED: Final = "ok"
_RUNNING_ALREADY: Final = re.compile(r"Node is already running!")
_WARNING: Final = re.compile(r"!!!!.*")
_PID: Final = re.compile(r"\d{1,10}")
_VERSION: Final = re.compile(r"\*\s+(\S+)\s+permanent")
_NUMBER: Final = re.compile(r"\d{1,4}\.\d{1,4}(?:[.-]?[0-9A-Za-z]{1,20}){0,4}")
_CONFIG_OK: Final = re.compile(r"config is OK")
_COUNT: Final = re.compile(r"Cluster-wide partition-count: (\d{1,6})")
_NO_STAGED: Final = "There are no staged changes"


class Stop(Enum):
    """What `riak stop` did."""

    STOPPED = auto()
    WAS_DOWN = auto()


class Start(Enum):
    """What `riak start` or `riak daemon` did. STARTED: the command ended well, which is no sign of life."""

    STARTED = auto()
    WAS_RUNNING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedulers:
    """Erlang schedulers of a running node."""

    total: int
    online: int


def parse_ping(output: CommandOutput) -> Reading[bool]:
    """`riak ping`: whether the node answers. True says nothing of its vnodes, which may all be missing."""

    def parse() -> bool:
        if output.exit is None:
            raise Malformed("the command did not come to its end")
        if node_down(output) is not None:
            return False
        if output.exit == 0 and _text(output) == _PONG:
            return True
        raise Malformed(f"neither {_PONG} nor the word that the node is down: {shown(_text(output))}")

    return reading("riak ping", parse)


def parse_stop(output: CommandOutput) -> Reading[Stop]:
    """`riak stop`. On a node that is down: exit code 1 and no word (3.2), or the word that it is."""

    def parse() -> Stop:
        if output.exit is None:
            raise Malformed("the command did not come to its end")
        if output.exit == 0 and _text(output) == _STOPPED:
            return Stop.STOPPED
        if output.exit == 1 and (node_down(output) is not None or not _text(output)):
            return Stop.WAS_DOWN
        raise Malformed(f"exit code {output.exit}, {shown(_text(output))}")

    return reading("riak stop", parse)


def parse_start(output: CommandOutput) -> Reading[Start]:
    """`riak start` or `riak daemon`. All that it prints when it went well is a warning about `ulimit -n`."""

    def parse() -> Start:
        if output.exit is None:
            raise Malformed("the command did not come to its end")
        lines = [line for line in lines_of(output.stdout) if not blank(line)]
        if any(_RUNNING_ALREADY.fullmatch(line) for line in (*lines, *lines_of(output.stderr))):
            return Start.WAS_RUNNING
        if output.exit == 0 and all(_WARNING.fullmatch(line) for line in lines):
            return Start.STARTED
        raise Malformed(f"exit code {output.exit}, {shown(_text(output))}")

    return reading("riak start", parse)


def parse_pid(output: CommandOutput) -> Reading[int]:
    """`riak pid`: the process of the Erlang machine."""

    def parse() -> int:
        if output.exit != 0 or not _PID.fullmatch(_text(output)):
            raise Malformed(node_down(output) or f"exit code {output.exit}, {shown(_text(output))}")
        return int(_text(output))

    return reading("riak pid", parse)


def parse_version(output: CommandOutput) -> Reading[str]:
    """`riak version` of the versions before 3.0: the number alone. 3.x does not know the word."""

    def parse() -> str:
        if output.exit != 0 or not _NUMBER.fullmatch(_text(output)):
            raise Malformed(f"{shown(_text(output))} is no version")
        return _text(output)

    return reading("riak version", parse)


def parse_versions(output: CommandOutput) -> Reading[str]:
    """`riak versions` of 3.x: the release that is installed for good."""

    def parse() -> str:
        found = [match[1] for line in lines_of(output.stdout) if (match := _VERSION.fullmatch(line))]
        if output.exit != 0 or len(found) != 1:
            raise Malformed(f"not exactly one version is permanent: {shown(_text(output))}")
        return found[0]

    return reading("riak versions", parse)


def parse_config_check(output: CommandOutput) -> Reading[bool]:
    """`riak chkconfig`: True when a start would take the configuration as it stands."""

    def parse() -> bool:
        if output.exit is None:
            raise Malformed("the command did not come to its end")
        lines = lines_of(output.stdout)
        return output.exit == 0 and any(_CONFIG_OK.fullmatch(line) for line in lines)

    return reading("riak chkconfig", parse)


def parse_services(output: CommandOutput, dialect: Dialect) -> Reading[tuple[str, ...]]:
    """`services`: those of the node that was asked. Unknown on 3.2, where it prints `[]` whatever runs."""

    def parse() -> tuple[str, ...]:
        if not dialect.lists_services and node_down(output) is None:
            raise Malformed("this version does not tell; ask riak_core_node_watcher")
        return _services(output)

    return reading("services", parse)


def parse_watched_services(output: CommandOutput) -> Reading[tuple[str, ...]]:
    """`riak rpc riak_core_node_watcher services` of 3.x; with a node as argument, what is seen of it here."""
    return reading("riak_core_node_watcher services", lambda: _services(output))


def parse_watched_nodes(output: CommandOutput) -> Reading[tuple[NodeName, ...]]:
    """`riak rpc riak_core_node_watcher nodes [riak_kv]` of 3.x: where the asked node sees the service up."""

    def parse() -> tuple[NodeName, ...]:
        if output.exit != 0:
            raise Malformed(f"exit {output.exit}: {shown(_text(output))}")
        return node_names(" ".join(lines_of(output.stdout)))

    return reading("riak_core_node_watcher nodes", parse)


def parse_wait_for_service(output: CommandOutput, service: str) -> Reading[ServiceWait]:
    """`wait-for-service`, which prints a line every few seconds and may never end.

    Our own limit ends it, so that an output which was cut is an answer here: not up so far. Up is only what
    came to its end, with that word last.
    """
    up = f"{service} is up"
    waits = f"{service} is not up: "

    def parse() -> ServiceWait:
        lines = [line.strip() for line in lines_of(output.stdout) if not blank(line)]
        if not lines:
            raise Malformed("it said nothing")
        if output.exit == 0 and lines[-1] == up and all(line.startswith(waits) for line in lines[:-1]):
            return ServiceWait(service=service, up=True, last=lines[-1])
        if output.exit != 0 and all(line.startswith(waits) for line in lines):
            return ServiceWait(service=service, up=False, last=lines[-1].removeprefix(waits))
        raise Malformed(f"neither up nor waiting: {shown(lines[-1])}")

    return reading("wait-for-service", parse)


def parse_partition_count(output: CommandOutput, dialect: Dialect) -> Reading[int]:
    """`cluster partition-count`, from 2.0 on: the size of the ring."""

    def parse() -> int:
        answer = said(output, dialect)
        answer.must_be_ok()
        found = _COUNT.fullmatch(answer.text)
        if found is None:
            raise Malformed(f"{shown(answer.text)} is no count of partitions")
        return int(found[1])

    return reading("cluster partition-count", parse)


def parse_staged(output: CommandOutput, dialect: Dialect) -> Reading[bool]:
    """`cluster plan`: whether somebody has staged changes of the cluster that are not committed yet."""

    def parse() -> bool:
        answer = said(output, dialect)
        answer.must_be_ok()
        if answer.text == _NO_STAGED:
            return False
        if any(line.strip("= ") == "Staged Changes" for line in answer.lines):
            return True
        raise Malformed(f"neither staged changes nor none: {shown(answer.text)}")

    return reading("cluster plan", parse)


def parse_count(output: CommandOutput) -> Reading[int]:
    """`riak rpc erlang system_info [schedulers]` and the like, of 3.x: one number."""

    def parse() -> int:
        found = parse_term(output.stdout) if output.exit == 0 else None
        if not isinstance(found, int):
            raise Malformed(f"{shown(_text(output))} is no number")
        return found

    return reading("riak rpc", parse)


def parse_schedulers(output: CommandOutput) -> Reading[Schedulers]:
    """`riak eval` of a tuple that begins with the schedulers, total and online, of 3.x."""

    def parse() -> Schedulers:
        found = parse_term(output.stdout) if output.exit == 0 else None
        if not isinstance(found, tuple) or len(found) < 2:  # noqa: PLR2004  (total, online)
            raise Malformed(f"{shown(_text(output))} is no pair of numbers")
        total, online = found[:2]
        if not (isinstance(total, int) and isinstance(online, int) and 0 < online <= total):
            raise Malformed(f"{shown(_text(output))} is no pair of numbers")
        return Schedulers(total=total, online=online)

    return reading("riak eval", parse)


def _services(output: CommandOutput) -> tuple[str, ...]:
    if output.exit != 0 or node_down(output) is not None:
        raise Malformed(node_down(output) or f"exit code {output.exit}")
    return tuple(sorted(atoms(" ".join(lines_of(output.stdout)))))


def _text(output: CommandOutput) -> str:
    return " ".join(line.strip() for line in lines_of(output.stdout) if not blank(line))
