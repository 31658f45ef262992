"""Riak's commands, run where its nodes are: what the store asks, over the host port."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Final

from orchestrator.hosts.connection import CommandResult, Lost, Unreachable
from orchestrator.hosts.port import Hosts
from orchestrator.hosts.script import TIMEOUT_EXIT
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.stores.riak.admin import Command
from orchestrator.stores.riak.output import CommandOutput

_KEPT: Final = 1_000_000
"""Bytes of an output: a line for every partition of the largest rings."""


class HostRunner:
    """`Runner` over the hosts of a cluster.

    Args:
        hosts: the hosts, with this node among them.
    """

    def __init__(self, hosts: Callable[[NodeName], Hosts]) -> None:
        self._hosts = hosts

    def run(self, node: NodeName, command: Command) -> CommandOutput | Unknown:
        """Run it; an output without an exit code is one that was cut."""
        line = shlex.join(command.argv)
        hosts = self._hosts(node)
        done = hosts.run(node, line, as_root=command.as_root, timeout=command.timeout, keep=_KEPT)
        match done:
            case CommandResult(exit=code, truncated=cut):
                ended = code != TIMEOUT_EXIT and not cut
                return CommandOutput(exit=code if ended else None, stdout=done.stdout, stderr=done.stderr)
            case Lost(output=output):
                return CommandOutput(exit=None, stdout=output)
            case Unreachable(reason=reason):
                return Unknown(reason=f"{line}: {reason}")
