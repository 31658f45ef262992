"""The program's own questions, put to nodes of the double: its commands are run, `RiakAdmin` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.model.cluster import NodeName
from orchestrator.stores.riak.admin import Command, RiakAdmin, commands_for
from orchestrator.stores.riak.dialect import dialect_of
from orchestrator.stores.riak.output import CommandOutput
from tests.riak_nodes import RiakNode

CUT_OFF = 124


@dataclass(frozen=True, slots=True)
class OnThisMachine:
    """Runs commands where the nodes are."""

    nodes: Sequence[RiakNode]

    def run(self, node: NodeName, command: Command) -> CommandOutput:
        asked = next(each for each in self.nodes if each.name == node)
        program, *words = command.argv
        ask = asked.riak_admin if program == "riak-admin" else asked.riak
        done = ask(*words, seconds=command.timeout)
        code = None if done.returncode == CUT_OFF else done.returncode
        return CommandOutput(exit=code, stdout=done.stdout, stderr=done.stderr)


def admin_of(nodes: Sequence[RiakNode], version: str = "3.2.1") -> RiakAdmin:
    """Asks these nodes."""
    dialect = dialect_of(version)
    assert dialect is not None
    return RiakAdmin(runner=OnThisMachine(nodes), commands=lambda _: commands_for(dialect), dialect=dialect)
