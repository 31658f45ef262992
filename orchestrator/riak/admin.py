"""Riak's commands as argument lists, each with our own time limit, and their results.

Several commands may never end by themselves: `wait-for-service` for a service that does not start, 3.x
`riak start` for a node that does not answer. So every command has a time limit, and one that reaches it has
no result. No command here changes the members of the cluster: never `riak admin down` in a restart.

The packaged `riak` of 3.x writes its arguments, unquoted, into a script for a second shell. So no word here
may have a special meaning in a shell, and names that have one are refused (`terms`, bucket types).
`riak eval` is not used, since its argument is full of such characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Seconds, Unknown
from orchestrator.model.riak import (
    ClusterStatus,
    LimitSet,
    NodePartitions,
    RingReady,
    ServiceWait,
    TransferLimits,
    Transfers,
)
from orchestrator.riak import parse_handoff, parse_node
from orchestrator.riak.output import CommandOutput, RiakDialect, RiakUnreadable
from orchestrator.riak.parse_handoff import parse_transfers
from orchestrator.riak.parse_ring import parse_cluster_status, parse_partitions, parse_ringready

T = TypeVar("T")

READ_SECONDS: Final[Seconds] = 60.0
"""For a reading. They took 0.2 to 4 s on a small idle cluster (recorded); Riak itself waits up to 30 s for a
member that hangs, in `transfers` and `ringready`."""
KV: Final = "riak_kv"
_TIMER: Final = "vnode_management_timer"
_MANAGER: Final = "riak_core_vnode_manager"
_OWN: Final = "transfer_limit"
"""Any key works: `show` lists only the node that runs it, with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCommand:
    """One command line."""

    argv: tuple[str, ...]  # its words; none has a special meaning in a shell
    timeout: Seconds = READ_SECONDS  # seconds until we end it
    as_root: bool = True  # whether it needs the rights of root or of the user `riak`, as Riak's scripts do


class Runner(Protocol):
    """Runs a command on a node's machine, as the user that Riak's scripts need."""

    def run(self, node: NodeName, command: AdminCommand) -> CommandOutput | Unknown:
        """How it ended; an output without an exit code when our limit or a lost connection ended it.

        `Unknown` when it was certainly not run. Never raises, and returns within the command's limit and a
        little.
        """
        ...


def output_of(runner: Runner, node: NodeName, command: AdminCommand) -> CommandOutput:
    """The output of a command that ran.

    Raises:
        RiakUnreadable: it was certainly not run.
    """
    output = runner.run(node, command)
    if isinstance(output, Unknown):
        raise RiakUnreadable(output.reason, passes=output.passes)
    return output


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The command lines."""

    riak: tuple[str, ...]  # the program, such as `/usr/sbin/riak`
    admin: tuple[str, ...]  # the start of an administrative command line, such as `riak admin`
    pid_word: str = "pid"  # the command for the pid; `getpid` before 3.0

    @property
    def pid(self) -> AdminCommand:
        """The pid of the Erlang VM, which changes with a restart."""
        return AdminCommand(argv=(*self.riak, self.pid_word))

    @property
    def versions(self) -> AdminCommand:
        """The release, from 3.0 on."""
        return AdminCommand(argv=(*self.riak, "versions"))

    @property
    def version(self) -> AdminCommand:
        """The release, before 3.0."""
        return AdminCommand(argv=(*self.riak, "version"))

    def asking(self, *words: str) -> AdminCommand:
        """An administrative command that reads."""
        return AdminCommand(argv=(*self.admin, *words))

    def wait_for_service(self, service: str, node: NodeName, seconds: Seconds) -> AdminCommand:
        """Ends when the node that runs it sees the service up on that node, or at our limit."""
        return AdminCommand(argv=(*self.admin, "wait-for-service", service, node), timeout=seconds)

    def watched_nodes(self, service: str) -> AdminCommand:
        """The nodes on which the node that runs it sees a service up.

        A second shell reads the brackets as a pattern for a file name of one letter. Riak's script runs in a
        folder without such a file, so the brackets stay. With such a file, the answer would be an error.
        """
        return AdminCommand(argv=(*self.riak, "rpc", "riak_core_node_watcher", "nodes", f"[{service}]"))

    # The words of `rpc` are terms without a blank; for the brackets see above.

    @property
    def timer(self) -> AdminCommand:
        """The time between two steps of the node's vnode manager."""
        return AdminCommand(argv=(*self.riak, "rpc", "application", "get_env", f"[riak_core,{_TIMER}]"))

    def set_timer(self, milliseconds: int) -> AdminCommand:
        """Set that time, only in the memory of the node."""
        words = f"[riak_core,{_TIMER},{milliseconds}]"
        return AdminCommand(argv=(*self.riak, "rpc", "application", "set_env", words))

    @property
    def force_handoff(self) -> AdminCommand:
        """Start all waiting handoffs now, on every node connected to the one that runs this."""
        return AdminCommand(argv=(*self.riak, "rpc", "rpc", "multicall", f"[{_MANAGER},force_handoffs,[]]"))

    @property
    def manager_state(self) -> AdminCommand:
        """The state of the node's vnode manager, with the whole ring."""
        return AdminCommand(argv=(*self.riak, "rpc", "sys", "get_state", f"[{_MANAGER}]"))

    def set_transfer_limit(self, node: NodeName, limit: int) -> AdminCommand:
        """Set one node's limit. A command for all nodes does not show the earlier limit of each."""
        return AdminCommand(argv=(*self.admin, "transfer-limit", node, str(limit)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Riak's programs on one node's machine."""

    riak: tuple[str, ...]  # the program, as words
    admin: tuple[str, ...] = ()  # the start of an administrative command line; empty if the version decides


def commands_for(
    dialect: RiakDialect, *, riak: tuple[str, ...] = ("riak",), admin: tuple[str, ...] = ()
) -> Commands:
    """The commands of a version, with the overrides of the cluster file.

    Args:
        dialect: dialect of the version.
        riak: the program.
        admin: the start of an administrative command line; if empty, the version's, in the folder of `riak`.
    """
    return Commands(
        riak=riak, admin=admin or _admin(dialect, riak), pid_word="pid" if dialect.has_eval else "getpid"
    )


def _admin(dialect: RiakDialect, riak: tuple[str, ...]) -> tuple[str, ...]:
    *before, program = riak
    folder, _, name = program.rpartition("riak")
    if name:  # a wrapper of the operator: the files beside it are unknown
        return (*riak, "admin") if dialect.has_eval else dialect.admin
    return tuple(before) + tuple(
        f"{folder}{word}" if word.startswith("riak") else word for word in dialect.admin
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RiakAdmin:
    """Runs commands on a cluster: every method one command on one node.

    What cannot be read raises `RiakUnreadable`.
    """

    runner: Runner
    commands: Callable[[NodeName], Commands]  # by node
    dialect: RiakDialect

    def pid(self, node: NodeName) -> int:
        """The pid of its Erlang VM."""
        return self._ask(node, self.commands(node).pid, lambda output, _: parse_node.parse_pid(output))

    def ring_ready(self, node: NodeName) -> RingReady:
        """`ringready`."""
        return self._ask(node, self.commands(node).asking("ringready"), parse_ringready)

    def cluster_status(self, node: NodeName) -> ClusterStatus:
        """`cluster status`."""
        return self._ask(node, self.commands(node).asking("cluster", "status"), parse_cluster_status)

    def transfers(self, node: NodeName) -> Transfers:
        """`transfers`."""
        return self._ask(node, self.commands(node).asking("transfers"), parse_transfers)

    def transfer_limits(self, node: NodeName) -> TransferLimits:
        """`transfer-limit`: the limits of all nodes that answer."""
        return self._ask(
            node, self.commands(node).asking("transfer-limit"), parse_handoff.parse_transfer_limits
        )

    def set_transfer_limit(self, asked: NodeName, node: NodeName, limit: int) -> LimitSet:
        """Set one node's limit; any node can run the command."""
        command = self.commands(asked).set_transfer_limit(node, limit)
        return self._ask(asked, command, parse_handoff.parse_limit_set)

    def timer(self, node: NodeName) -> int:
        """Milliseconds between two steps of its vnode manager."""
        return self._ask(node, self.commands(node).timer, lambda output, _: parse_handoff.parse_timer(output))

    def set_timer(self, node: NodeName, milliseconds: int) -> bool:
        """Set that time on one node."""
        command = self.commands(node).set_timer(milliseconds)
        return self._ask(node, command, lambda output, _: parse_handoff.parse_done(output))

    def force_handoff(self, asked: NodeName) -> int:
        """Start all waiting handoffs on all nodes. Returns the number of nodes that accepted."""
        command = self.commands(asked).force_handoff
        return self._ask(asked, command, lambda output, _: parse_handoff.parse_forced(output))

    def unstarted(self, node: NodeName) -> int:
        """The number of vnodes that the node has not started since its own start."""
        command = self.commands(node).manager_state
        return self._ask(node, command, lambda output, _: parse_handoff.parse_unstarted(output))

    def who_answers(self, node: NodeName) -> NodeName:
        """The name of the node that answers on this one's machine; no other command shows its own name."""
        command = self.commands(node).asking("show", _OWN)
        return self._ask(
            node, command, lambda output, dialect: parse_handoff.parse_shown(output, dialect, _OWN)
        )[0]

    def wait_for_service(self, asked: NodeName, node: NodeName, seconds: Seconds) -> ServiceWait:
        """Wait until a peer sees the key-value store of one node up, at most this long."""
        command = self.commands(asked).wait_for_service(KV, node, seconds)
        return self._ask(asked, command, lambda output, _: parse_node.parse_wait_for_service(output, KV))

    def where_it_is_up(self, asked: NodeName) -> frozenset[NodeName]:
        """The nodes whose key-value store is up, as seen by one node; unreadable before 3.0.

        It answers at once. `wait-for-service` waits, and ending it from outside leaves its loop behind on the
        host (seen on 3.2.1).
        """
        if not self.dialect.has_eval:
            raise RiakUnreadable("riak rpc: this version has no such command")
        command = self.commands(asked).watched_nodes(KV)
        return frozenset(self._ask(asked, command, lambda output, _: parse_node.parse_watched_nodes(output)))

    def partitions(self, asked: NodeName, node: NodeName) -> NodePartitions:
        """The partitions that a node owns, and those that it holds for others."""
        command = self.commands(asked).asking("cluster", "partitions", "-n", node)
        found = self._ask(asked, command, parse_partitions)
        if found.node != node:
            raise RiakUnreadable(f"asked on {asked}: partitions of {found.node} instead of {node}")
        return found

    def n_vals(self, asked: NodeName) -> Mapping[str, int]:
        """The `n_val` of every bucket type."""
        types = self._ask(
            asked, self.commands(asked).asking("bucket-type", "list"), parse_node.parse_bucket_types
        )
        return {name: self._n_val(asked, name) for name in types}

    def _n_val(self, asked: NodeName, name: str) -> int:
        command = self.commands(asked).asking("bucket-type", "status", name)
        return self._ask(asked, command, lambda output, _: parse_node.parse_n_val(output, name))

    def _ask(
        self, node: NodeName, command: AdminCommand, parse: Callable[[CommandOutput, RiakDialect], T]
    ) -> T:
        output = output_of(self.runner, node, command)
        try:
            return parse(output, self.dialect)
        except RiakUnreadable as error:
            raise RiakUnreadable(f"asked on {node}: {error.reason}", passes=error.passes) from None
