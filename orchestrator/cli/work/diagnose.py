"""Samples hosts or reads their records, and names what is wrong with them. Needs no rights."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.cli.context import Context, context_of
from orchestrator.cli.options import Output
from orchestrator.config.cluster import ClusterFile
from orchestrator.config.quantities import format_duration, parse_duration
from orchestrator.diagnosis.findings import diagnose as look_for_all
from orchestrator.diagnosis.records import signs_of_records
from orchestrator.diagnosis.sampler import LONGEST, SHORTEST, sample
from orchestrator.errors import ExitCode, JournalError, UsageError
from orchestrator.hosts.connections.pool import Connections
from orchestrator.model.cluster import NodeName
from orchestrator.model.diagnosis import Diagnosis, Signs
from orchestrator.model.reading import Reading, Seconds, Unknown
from orchestrator.next_command import next_command
from orchestrator.runs.from_file import FilePorts
from orchestrator.runs.past_runs import histories
from orchestrator.runs.reach import host_settings
from orchestrator.runs.tuning import in_zone, select
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.store import StateMissing
from orchestrator.view.diagnosis import diagnosis_lines, diagnosis_objects
from orchestrator.view.history import past_run

_RECORD_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of one recorded file; a week of `sar` is smaller."""


def diagnose_hosts(
    cluster: str | None,
    *,
    length: str,
    only: tuple[str, ...],
    zone: str | None,
    records: Path | None,
    output: Output,
    state: str | None,
) -> int:
    """Name the syndromes of a cluster's hosts, or of the hosts in `records`. Returns the exit code.

    Raises:
        UsageError: neither or both of them are given, or a flag or a folder is wrong.
    """
    context = context_of(output)
    seconds = _seconds(length)
    if (cluster is None) == (records is None):
        raise UsageError(
            f"diagnose needs either --cluster or --from; see `{next_command('diagnose', '--help')}`"
        )
    if records is not None and zone is not None:
        raise UsageError("--zone: not with --from: records of hosts have no zones")
    if records is not None:
        hosts = _recorded(records, only)
    else:
        hosts = _sampled(cluster or "", seconds, only, zone, context, state)
    found = look_for_all(hosts)
    return int(_tell(found, context, seconds if records is None else None))


def _tell(found: Diagnosis, context: Context, seconds: Seconds | None) -> ExitCode:
    if context.output is Output.JSON:
        for line in diagnosis_objects(found):
            context.say_json(line)
    else:
        context.say(*diagnosis_lines(found))
    code = ExitCode.HELD if found.findings else ExitCode.DONE
    if not found.complete:
        # A caller that acts on code 3 assumes that the findings are complete.
        code = ExitCode.FAILED
    return context.end(
        code,
        findings=len(found.findings),
        examined=list(found.examined),
        unread=list(found.unread),
        sample_seconds=seconds,
    )


def _seconds(text: str) -> Seconds:
    try:
        seconds = 0.0 if re.fullmatch(r"0+[smhd]", text) else parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--sample {text}: {error}") from None
    if not SHORTEST <= seconds <= LONGEST:
        bounds = f"{format_duration(SHORTEST)} to {format_duration(LONGEST)}"
        raise UsageError(f"--sample {text}: must be {bounds}: less is noise, and more is monitoring")
    return seconds


def _sampled(
    cluster: str,
    seconds: Seconds,
    only: tuple[str, ...],
    zone: str | None,
    context: Context,
    state: str | None,
) -> Mapping[NodeName, Reading[Signs]]:
    """The hosts of a cluster file, sampled."""
    file = context.hosts(cluster)
    ports = context.ports(file)
    connections = Connections()
    try:
        addresses = _addresses(ports, context)
        chosen = in_zone(ports, select(tuple(addresses), only, ()), zone)
        settings = host_settings(file, {node: addresses[node] for node in chosen}, ports.resolver)

        def wait(length: Seconds) -> None:
            context.note(f"sampling for {format_duration(length)} …")
            context.clock.wait(length)

        hosts = sample(
            settings.values(),
            connections,
            seconds=seconds,
            wait=wait,
            report=context.note,
            redact=ports.redact,
        )
    finally:
        connections.close()
        ports.close()
    if not isinstance(file, ClusterFile):
        context.note("not compared: past restarts, which hosts without a cluster do not have")
        return hosts
    recoveries = _recoveries(file.spec.name, context, state)
    return {
        node: signs if isinstance(signs, Unknown) else replace(signs, recovery=recoveries.get(node, _NEVER))
        for node, signs in hosts.items()
    }


_NEVER: Final = Unknown(reason="no restart of it is in the state database")


def _addresses(ports: FilePorts, context: Context) -> Mapping[NodeName, str]:
    """The nodes and their addresses; if there is a cluster and it does not answer, those in the file.

    Raises:
        UsageError: it is another cluster, or it does not answer and the file lists no host.
    """
    members = ports.known_members()
    unread = members.unread
    if unread is None:
        return members.addresses
    named = {node: address for node, address in members.addresses.items() if address}
    if not named:
        raise UsageError(
            f"the cluster cannot be read, so its nodes are not known: {unread.reason}. Nodes that have"
            f" an `address` in `hosts.overrides` of {ports.file.path} can still be diagnosed"
        )
    context.warn(f"the cluster cannot be read ({unread.reason}): only hosts that the file names are")
    return named


def _recoveries(cluster: str, context: Context, state: str | None) -> Mapping[NodeName, Seconds]:
    """How long each node took in its last restart; empty if there is no state."""
    try:
        store = context.open_state(state, DatabaseUse.READ)
    except StateMissing:
        return {}
    except JournalError as error:
        context.warn(f"past restarts are not compared: {error}")
        return {}
    with closing(store):
        took: dict[NodeName, Seconds] = {}
        for entry, records in histories(store, cluster=cluster):
            past = past_run(records, entry.outcome)
            took |= past.node_seconds if past else {}
        return took


def _recorded(folder: Path, only: tuple[str, ...]) -> Mapping[NodeName, Reading[Signs]]:
    """Signs of recorded hosts, from a folder.

    Raises:
        UsageError: the folder cannot be read, or contains something that is no record.
    """
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
        inner = [entry for entry in entries if entry.is_dir()]
        hosts = {entry.name: entry for entry in inner} if inner else {folder.resolve().name: folder}
        chosen = select([NodeName(name) for name in hosts], only, ())
        texts = {name: _texts(hosts[name]) for name in chosen}
    except FileNotFoundError:
        raise UsageError(f"--from {folder}: there is no such folder") from None
    except OSError as error:
        raise UsageError(f"--from {folder}: {error.strerror or error}") from None
    empty = [name for name, found in texts.items() if not found]
    if empty:
        raise UsageError(f"--from {folder}: no records of {', '.join(empty)}")
    return {name: signs_of_records(name, found) for name, found in texts.items()}


def _texts(folder: Path) -> Mapping[str, str]:
    found = {}
    for path in sorted(folder.iterdir()):
        status = path.stat()
        if path.name.startswith(".") or path.suffix == ".md" or not stat.S_ISREG(status.st_mode):
            continue
        if status.st_size > _RECORD_BYTES:
            raise UsageError(f"{path} is larger than {_RECORD_BYTES // 1024**2} MB: cut it to one hour")
        found[path.name] = path.read_text(errors="replace")
    return found
