"""A Riak cluster to read: nodes of the double on one clock, their commands and their HTTP ports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.riak.admin import AdminCommand, Programs
from orchestrator.riak.cluster import RiakCluster
from orchestrator.riak.contact import Reach
from orchestrator.riak.output import CommandOutput
from tests.doubles.riak_double.stats import stats
from tests.fakes.riak_world import World
from tests.fakes.scripted_http import Answerer, Asked, ScriptedServer, Wire, reply
from tests.riak_nodes import RiakCommand

DEV1, DEV2, DEV3 = NAMES = tuple(NodeName(f"dev{number}@127.0.0.1") for number in (1, 2, 3))
BOOT = "3f1c2b1a-0000-4000-8000-123456789abc"
VERSIONS = "* 3.2.1\tpermanent\n"


def stat_line(pid: int, start: int, name: str = "beam.smp") -> str:
    """`/proc/PID/stat` with these; every other field is a number of its own, so that none is taken for it."""
    return f"{pid} ({name}) S " + " ".join(str(90 + n) for n in range(4, 22)) + f" {start} 1 2 3\n"


@dataclass(slots=True, kw_only=True)
class Scripted:
    """Runs commands in the double's world."""

    world: World  # the nodes
    # every command, with the node that was asked, in order
    asked: list[tuple[NodeName, str]] = field(default_factory=list)
    # what is answered to a command on a node, in place of the double; by its last words
    instead: dict[tuple[NodeName, str], CommandOutput | Unknown] = field(default_factory=dict)
    # the start of each node's process
    starts: dict[NodeName, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 1000))
    command: RiakCommand = RiakCommand.RELEASE  # whose exit codes the nodes' `riak` has
    # what becomes of an output on its way, by node and last words
    spoil: Callable[[NodeName, str, CommandOutput], CommandOutput | Unknown] | None = None
    refused: tuple[str, ...] = ()  # first words of commands that sudo refuses

    def run(self, node: NodeName, command: AdminCommand) -> CommandOutput | Unknown:
        line = " ".join(command.argv[1:])
        self.asked.append((node, line))
        output = self.instead[node, line] if (node, line) in self.instead else self._run(node, command)
        if self.spoil is None or isinstance(output, Unknown):
            return output
        return self.spoil(node, line, output)

    def _run(self, node: NodeName, command: AdminCommand) -> CommandOutput:
        output = self._said(node, command)
        packaged = self.command is RiakCommand.PACKAGED and command.argv[0] != "cat"
        return replace(output, exit=0) if packaged and output.exit is not None else output

    def _said(self, node: NodeName, command: AdminCommand) -> CommandOutput:
        program, *words = command.argv
        line = " ".join(words)
        if words[0] in self.refused:
            return CommandOutput(exit=1, stdout="", stderr="sudo: a password is required\n")
        if node not in self.world.machines:
            return CommandOutput(exit=1, stdout=f"Node {node} is not responding to pings\n")
        number = 100 + NAMES.index(node)
        if program == "cat":
            return CommandOutput(exit=0, stdout=f"{BOOT}\n{stat_line(number, self.starts[node])}")
        if line == "pid":
            return CommandOutput(exit=0, stdout=f"{number}\n")
        if line == "versions":
            return CommandOutput(exit=0, stdout=VERSIONS)
        if words[:2] == ["admin", "wait-for-service"]:
            up = words[3] in self.world.machines
            return CommandOutput(exit=0 if up else None, stdout=f"{words[2]} is {'up' if up else 'not up'}\n")
        return CommandOutput(exit=0, stdout=self.world.ask(node, line))

    def starts_of_vms(self) -> dict[NodeName, int]:
        """How many commands started an Erlang VM, by node: all but the reading of `/proc`."""
        vms = [node for node, line in self.asked if not line.startswith("/proc/")]
        return {node: vms.count(node) for node in NAMES}

    def on(self, *words: str) -> list[NodeName]:
        """The nodes that were asked such a command, in order."""
        return [node for node, line in self.asked if line == " ".join(words)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The cluster and what stands behind it."""

    cluster: RiakCluster
    runner: Scripted
    world: World
    ports: Mapping[NodeName, ScriptedServer]
    clock: list[float]

    def later(self, seconds: float) -> None:
        """The cluster's own clock goes on; the nodes' does not."""
        self.clock[0] += seconds


@contextmanager
def staged(command: RiakCommand = RiakCommand.RELEASE) -> Iterator[Staged]:
    """Three nodes that are up; one endpoint each."""
    world = World(names=NAMES)
    world.run(60)
    runner = Scripted(world=world, command=command)
    with ExitStack() as stack:
        ports = {name: stack.enter_context(ScriptedServer()) for name in NAMES}
        for name, port in ports.items():
            port.on("/ping", _while_up(world, name, b"OK"))
            port.on("/stats", _while_up(world, name, None))
        reach = Reach(
            endpoints=[port.url for port in ports.values()],
            runner=runner,
            address=lambda _node: "127.0.0.1",
            machine=lambda node: node,
            programs=lambda _node: Programs(riak=("/usr/sbin/riak",)),
        )
        clock = [0.0]
        cluster = RiakCluster("ring", reach, now=lambda: clock[0])
        try:
            yield Staged(cluster=cluster, runner=runner, world=world, ports=ports, clock=clock)
        finally:
            cluster.close()


def _while_up(world: World, name: NodeName, body: bytes | None) -> Answerer:
    def answer(asked: Asked, wire: Wire) -> None:
        if name not in world.machines:
            raise OSError("the node is down")
        said = body if body is not None else json.dumps(stats(world.view(name))).encode()
        reply(said, headers={"Connection": "close"})(asked, wire)

    return answer
