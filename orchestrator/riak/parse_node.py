"""One node: ping, services, stop and start, version, Erlang VM, `/stats`; and the `n_val` of bucket types.

`bucket-type list` and `bucket-type status`, from 2.0 on: where an `n_val` of its own may stand.

The form comes from Riak's source, not from a recording. A bucket of the default type can have its own
`n_val`, but no command lists such buckets. A name with a special meaning in a shell makes the list `Unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final

from orchestrator.model.cluster import NodeName
from orchestrator.model.riak import NodeStats, ServiceWait
from orchestrator.riak.output import (
    CommandOutput,
    RiakDialect,
    RiakUnreadable,
    blank,
    is_noise,
    lines_of,
    node_down,
    parsing,
    shown,
)
from orchestrator.riak.terms import counts_by_node, node_name, node_names
from orchestrator.untrusted_json import parsed

PONG: Final = "pong"
"""The line of `riak ping` if the node answers."""
_STOPPED: Final = "ok"
_RUNNING_ALREADY: Final = re.compile(r"Node is already running!")
_STARTING: Final = re.compile(r"riak start is deprecated\b.*\bRiak starting \.\.")
"""Of `riak start` from 3.0 on, before it does what `riak daemon` does (`start_message` in the source)."""
_NOT_YET: Final = re.compile(r"[Rr]iak failed to start within \d+ seconds,")
"""Of `riak start` before 3.0 (source). The node may still start: only a ping shows whether it runs."""
_REFUSED: Final = (
    re.compile(r"Usage: riak\b.*"),  # recorded on 3.2.1 for an unknown command
    # From the source of 1.4 to 3.0, and of the programs that change the user:
    re.compile(r"Error (?:reading|generating config)\b.*"),
    re.compile(r"(?:vm|node)\.args needs to have .*"),
    re.compile(r"sudo doesn't appear to be installed and your EUID isn't .*"),
    re.compile(r"su: .*|runuser: .*|This account is currently not available\."),
)
"""Lines of `riak stop` and `riak start` that mean that nothing was stopped or started."""
_PID: Final = re.compile(r"\d{1,10}")
_VERSION: Final = re.compile(r"\*\s+(\S+)\s+permanent")
_NUMBER: Final = re.compile(r"\d{1,4}\.\d{1,4}(?:[.-]?[0-9A-Za-z]{1,20}){0,4}")


class Stop(Enum):
    """The result that `riak stop` reports.

    WAS_DOWN: the node did not answer. SILENT: no output, as from 3.2 if the node is down. After both, only a
    ping shows whether the node runs.
    """

    STOPPED = auto()
    WAS_DOWN = auto()
    SILENT = auto()
    REFUSED = auto()


class StartReport(Enum):
    """The result that `riak start` or `riak daemon` reports.

    STARTED: the command succeeded, but the node may not run yet. NOT_YET: it stopped waiting for a node that
    may still start.
    """

    STARTED = auto()
    WAS_RUNNING = auto()
    NOT_YET = auto()
    REFUSED = auto()


@parsing("riak ping")
def parse_ping(output: CommandOutput) -> bool:
    """`riak ping`: whether the node answers. Even if it does, all its vnodes may be missing.

    The text alone decides on False, with any exit code. Any other text is `Unknown`, and so is `pong` with an
    exit code other than 0, or together with the line that the node is down.
    """
    lines = _own_lines(output)
    if node_down(output) is not None and PONG not in lines:
        return False
    if output.exit == 0 and lines == [PONG]:
        return True
    raise RiakUnreadable(_odd(output, f"neither {PONG} nor the word that the node is down"))


@parsing("riak stop")
def parse_stop(output: CommandOutput) -> Stop:
    """`riak stop`, by its text. `ok` with an exit code other than 0 is `Unknown`."""
    lines = _own_lines(output)
    if any(_is_refusal(line) for line in lines):
        return Stop.REFUSED
    if node_down(output) is not None and _STOPPED not in lines:
        return Stop.WAS_DOWN
    if not lines:
        return Stop.SILENT
    if output.exit == 0 and lines == [_STOPPED]:
        return Stop.STOPPED
    raise RiakUnreadable(_odd(output, f"not {_STOPPED}"))


@parsing("riak start")
def parse_start(output: CommandOutput) -> StartReport:
    """`riak start` or `riak daemon`, by its text.

    A successful start prints nothing, or that `riak start` is deprecated; with an exit code other than 0
    that is `Unknown`.
    """
    lines = _own_lines(output)
    if any(_RUNNING_ALREADY.fullmatch(line) for line in lines):
        return StartReport.WAS_RUNNING
    if any(_is_refusal(line) for line in lines):
        return StartReport.REFUSED
    if any(_NOT_YET.fullmatch(line) for line in lines):
        return StartReport.NOT_YET
    if output.exit == 0 and all(_STARTING.fullmatch(line) for line in lines):
        return StartReport.STARTED
    raise RiakUnreadable(_odd(output, "no start that went well"))


@parsing("riak pid")
def parse_pid(output: CommandOutput) -> int:
    """`riak pid`: the pid of the Erlang VM."""
    if output.exit != 0 or not _PID.fullmatch(_text(output)):
        raise RiakUnreadable(node_down(output) or f"exit code {output.exit}, {shown(_text(output))}")
    return int(_text(output))


@parsing("riak version")
def parse_version(output: CommandOutput) -> str:
    """`riak version` before 3.0: only the number. 3.x does not have this command."""
    if output.exit != 0 or not _NUMBER.fullmatch(_text(output)):
        raise RiakUnreadable(f"{shown(_text(output))} is no version")
    return _text(output)


@parsing("riak versions")
def parse_versions(output: CommandOutput) -> str:
    """`riak versions` of 3.x: the permanently installed release."""
    found = [match[1] for line in lines_of(output.stdout) if (match := _VERSION.fullmatch(line))]
    if output.exit != 0 or len(found) != 1:
        raise RiakUnreadable(f"not exactly one version is permanent: {shown(_text(output))}")
    return found[0]


@parsing("riak_core_node_watcher nodes")
def parse_watched_nodes(output: CommandOutput) -> tuple[NodeName, ...]:
    """`riak rpc riak_core_node_watcher nodes [riak_kv]` of 3.x: nodes on which the service is up."""
    if output.exit != 0:
        raise RiakUnreadable(f"exit {output.exit}: {shown(_text(output))}")
    return node_names(" ".join(lines_of(output.stdout)))


@parsing("wait-for-service")
def parse_wait_for_service(output: CommandOutput, service: str) -> ServiceWait:
    """`wait-for-service`, which prints a line every few seconds and may never end.

    Our own time limit ends it, so cut output is an answer here: not up yet, with any exit code (the packaged
    script exits 0 when sudo ends its command). The service is up only if the command ended by itself and its
    last line says so.
    """
    up = f"{service} is up"
    waits = f"{service} is not up: "
    lines = [line.strip() for line in lines_of(output.stdout) if not blank(line)]
    if not lines:
        raise RiakUnreadable("it said nothing")
    if output.exit == 0 and lines[-1] == up and all(line.startswith(waits) for line in lines[:-1]):
        return ServiceWait(service=service, up=True, last=lines[-1])
    if all(line.startswith(waits) for line in lines):
        return ServiceWait(service=service, up=False, last=lines[-1].removeprefix(waits))
    raise RiakUnreadable(f"neither up nor waiting: {shown(lines[-1])}")


def _text(output: CommandOutput) -> str:
    return " ".join(line.strip() for line in lines_of(output.stdout) if not blank(line))


def _own_lines(output: CommandOutput) -> list[str]:
    """The output of `riak` itself, from both streams, without blank lines.

    Raises:
        RiakUnreadable: the command did not end by itself.
    """
    if output.exit is None:
        raise RiakUnreadable("the command did not come to its end")
    lines = (*lines_of(output.stdout), *lines_of(output.stderr))
    return [line.strip() for line in lines if not blank(line) and not is_noise(line)]


def _is_refusal(line: str) -> bool:
    return any(pattern.fullmatch(line) for pattern in _REFUSED)


def _odd(output: CommandOutput, what: str) -> str:
    said = " ".join(_own_lines(output))
    return f"{what}: exit code {output.exit}, {shown(said) if said else 'no output'}"


_SCHEDULERS: Final = re.compile(r"\[smp:(\d{1,4}):(\d{1,4})\]")
_LARGEST_RING: Final = 65_536
_PIPE: Final = "riak_pipe_vnodes_running"


@parsing("/stats")
def parse_stats(body: str) -> NodeStats:
    """The body of `/stats`. Cut JSON is invalid, so the result is complete or `Unknown`."""
    stats = _object(body)
    size = _count(stats, "ring_num_partitions")
    if not 0 < size <= _LARGEST_RING:
        raise RiakUnreadable(f"a ring of {size} partitions")
    ownership = counts_by_node(_string(stats, "ring_ownership"))
    if sum(ownership.values()) != size:
        raise RiakUnreadable("ring_ownership does not add up to ring_num_partitions")
    members = _nodes(stats, "ring_members")
    if not members.issuperset(node for node, number in ownership.items() if number):
        raise RiakUnreadable("ring_ownership names a node that is no member")
    total, online = _schedulers(stats)
    release = stats.get("sys_otp_release")
    return NodeStats(
        node=node_name(stats.get("nodename")),
        kv_vnodes=_count(stats, "riak_kv_vnodes_running"),
        pipe_vnodes=_count(stats, _PIPE) if _PIPE in stats else 0,
        connected=_nodes(stats, "connected_nodes"),
        members=members,
        ring_size=size,
        ownership=ownership,
        schedulers=total,
        schedulers_online=online,
        release=release if isinstance(release, str) else None,
    )


def _object(body: str) -> Mapping[str, Any]:
    try:
        found = parsed(body)
    except ValueError as error:
        raise RiakUnreadable(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RiakUnreadable("no JSON object")
    return found


def _count(stats: Mapping[str, Any], key: str) -> int:
    value = stats.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RiakUnreadable(f"{key} is {value!r} instead of a number")
    return value


def _string(stats: Mapping[str, Any], key: str) -> str:
    value = stats.get(key)
    if not isinstance(value, str):
        raise RiakUnreadable(f"{key} is {value!r} instead of a text")
    return value


def _nodes(stats: Mapping[str, Any], key: str) -> frozenset[NodeName]:
    value = stats.get(key)
    if not isinstance(value, list):
        raise RiakUnreadable(f"{key} is {value!r} instead of a list of nodes")
    return frozenset(node_name(each) for each in value)


def _schedulers(stats: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Total and online schedulers, from the Erlang VM's title line."""
    title = stats.get("sys_system_version")
    found = _SCHEDULERS.search(title) if isinstance(title, str) else None
    return (int(found[1]), int(found[2])) if found else (None, None)


DEFAULT: Final = "default"
_TYPE: Final = re.compile(r"([\w.-]+) \((?:not )?active\)", re.ASCII)
_IS: Final = re.compile(r"(\S+) (?:is active|has been created and may be activated)")
_N_VAL: Final = re.compile(r"n_val: (\d{1,4})")
_RETURNED: Final = ("ok", "true")
"""The return term of the list is that of closing its iterator."""


@parsing("bucket-type list")
def parse_bucket_types(output: CommandOutput, dialect: RiakDialect) -> tuple[str, ...]:
    """The names of all types, the default first; an inactive type may become active soon."""
    lines = _lines(output)
    ended = bool(lines) and lines[-1] in _RETURNED
    if dialect.returns_term and not ended:
        raise RiakUnreadable("cut: the return term is missing")
    found = [_TYPE.fullmatch(line) for line in (lines[:-1] if ended else lines)]
    names = tuple(each[1] for each in found if each is not None)
    if len(names) != len(found) or names[:1] != (DEFAULT,) or len(set(names)) != len(names):
        raise RiakUnreadable(f"no list of bucket types: {shown(' '.join(lines))}")
    return names


def parse_n_val(output: CommandOutput, name: str) -> int:
    """The `n_val` of this type. The list after it may be cut; that cannot change the value."""
    with parsing(f"bucket-type status {name}"):
        lines = _lines(output)
        named = _IS.fullmatch(lines[0]) if lines else None
        if named is None or named[1] != name:
            raise RiakUnreadable(f"it is not of {name}: {shown(lines[0] if lines else '')}")
        found = [int(each[1]) for line in lines[1:-1] if (each := _N_VAL.fullmatch(line))]
        if len(found) != 1 or found[0] < 1:
            raise RiakUnreadable("there is not exactly one n_val, with a line after it")
        return found[0]


def _lines(output: CommandOutput) -> list[str]:
    if output.exit != 0:
        raise RiakUnreadable(node_down(output) or f"exit code {output.exit}")
    return [line for line in lines_of(output.stdout) if not blank(line)]
