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
    is_noise,
    lines_of,
    node_down,
    reading,
    said,
    shown,
)
from orchestrator.stores.riak.terms import atoms, node_names, parse_term

PONG: Final = "pong"
"""What `riak ping` prints of a node that answers, on a line of its own."""
_STOPPED: Final = "ok"
_RUNNING_ALREADY: Final = re.compile(r"Node is already running!")
_STARTING: Final = re.compile(r"riak start is deprecated\b.*\bRiak starting \.\.")
"""Of `riak start` from 3.0 on, before it does what `riak daemon` does (`start_message` in the source)."""
_NOT_YET: Final = re.compile(r"[Rr]iak failed to start within \d+ seconds,")
"""Of `riak start` before 3.0 (source), whose node may still come up: only a ping tells."""
_REFUSED: Final = (
    re.compile(r"Usage: riak\b.*"),  # recorded on 3.2.1 for a word that it does not have
    # From the source of 1.4 to 3.0, and of the programs that change the user:
    re.compile(r"Error (?:reading|generating config)\b.*"),
    re.compile(r"(?:vm|node)\.args needs to have .*"),
    re.compile(r"sudo doesn't appear to be installed and your EUID isn't .*"),
    re.compile(r"su: .*|runuser: .*|This account is currently not available\."),
)
"""Lines of `riak stop` and `riak start` after which nothing was stopped or started."""
_PID: Final = re.compile(r"\d{1,10}")
_VERSION: Final = re.compile(r"\*\s+(\S+)\s+permanent")
_NUMBER: Final = re.compile(r"\d{1,4}\.\d{1,4}(?:[.-]?[0-9A-Za-z]{1,20}){0,4}")
_CONFIG_OK: Final = re.compile(r"config is OK")
_COUNT: Final = re.compile(r"Cluster-wide partition-count: (\d{1,6})")
_NO_STAGED: Final = "There are no staged changes"


class Stop(Enum):
    """What `riak stop` says that it did.

    WAS_DOWN: the node did not answer. SILENT: it printed nothing, as 3.2 does of a node that is down. After
    both only a ping tells whether the node runs.
    """

    STOPPED = auto()
    WAS_DOWN = auto()
    SILENT = auto()
    REFUSED = auto()


class Start(Enum):
    """What `riak start` or `riak daemon` says that it did.

    STARTED: the command ended well, which is no sign of life. NOT_YET: it stopped waiting for a node that may
    still come up.
    """

    STARTED = auto()
    WAS_RUNNING = auto()
    NOT_YET = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedulers:
    """Erlang schedulers of a running node."""

    total: int
    online: int


def parse_ping(output: CommandOutput) -> Reading[bool]:
    """`riak ping`: whether the node answers. True says nothing of its vnodes, which may all be missing.

    False by its text alone, whatever the exit code is. Every other text than these two is `Unknown`, and so
    is `pong` with another exit code than 0, or beside the line that the node is down.
    """

    def parse() -> bool:
        lines = _own_lines(output)
        if node_down(output) is not None and PONG not in lines:
            return False
        if output.exit == 0 and lines == [PONG]:
            return True
        raise Malformed(_odd(output, f"neither {PONG} nor the word that the node is down"))

    return reading("riak ping", parse)


def parse_stop(output: CommandOutput) -> Reading[Stop]:
    """`riak stop`, by its text. `ok` with another exit code than 0 is `Unknown`."""

    def parse() -> Stop:
        lines = _own_lines(output)
        if any(_is_refusal(line) for line in lines):
            return Stop.REFUSED
        if node_down(output) is not None and _STOPPED not in lines:
            return Stop.WAS_DOWN
        if not lines:
            return Stop.SILENT
        if output.exit == 0 and lines == [_STOPPED]:
            return Stop.STOPPED
        raise Malformed(_odd(output, f"not {_STOPPED}"))

    return reading("riak stop", parse)


def parse_start(output: CommandOutput) -> Reading[Start]:
    """`riak start` or `riak daemon`, by its text.

    A start that goes well prints nothing, or that `riak start` is deprecated; with another exit code than 0
    that is `Unknown`.
    """

    def parse() -> Start:
        lines = _own_lines(output)
        if any(_RUNNING_ALREADY.fullmatch(line) for line in lines):
            return Start.WAS_RUNNING
        if any(_is_refusal(line) for line in lines):
            return Start.REFUSED
        if any(_NOT_YET.fullmatch(line) for line in lines):
            return Start.NOT_YET
        if output.exit == 0 and all(_STARTING.fullmatch(line) for line in lines):
            return Start.STARTED
        raise Malformed(_odd(output, "no start that went well"))

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

    Our own limit ends it, so that an output which was cut is an answer here: not up so far, whatever the exit
    code is (the packaged script exits 0 when sudo ends what it runs). Up is only what came to its end, with
    that word last.
    """
    up = f"{service} is up"
    waits = f"{service} is not up: "

    def parse() -> ServiceWait:
        lines = [line.strip() for line in lines_of(output.stdout) if not blank(line)]
        if not lines:
            raise Malformed("it said nothing")
        if output.exit == 0 and lines[-1] == up and all(line.startswith(waits) for line in lines[:-1]):
            return ServiceWait(service=service, up=True, last=lines[-1])
        if all(line.startswith(waits) for line in lines):
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
        found = parse_term(_text(output)) if output.exit == 0 else None
        if not isinstance(found, int):
            raise Malformed(f"{shown(_text(output))} is no number")
        return found

    return reading("riak rpc", parse)


def parse_schedulers(output: CommandOutput) -> Reading[Schedulers]:
    """`riak eval` of a tuple that begins with the schedulers, total and online, of 3.x."""

    def parse() -> Schedulers:
        found = parse_term(_text(output)) if output.exit == 0 else None
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


def _own_lines(output: CommandOutput) -> list[str]:
    """What `riak` itself printed, on both streams, without blank lines.

    Raises:
        Malformed: the command did not come to its end.
    """
    if output.exit is None:
        raise Malformed("the command did not come to its end")
    lines = (*lines_of(output.stdout), *lines_of(output.stderr))
    return [line.strip() for line in lines if not blank(line) and not is_noise(line)]


def _is_refusal(line: str) -> bool:
    return any(pattern.fullmatch(line) for pattern in _REFUSED)


def _odd(output: CommandOutput, what: str) -> str:
    said = " ".join(_own_lines(output))
    return f"{what}: exit code {output.exit}, {shown(said) if said else 'no output'}"
