"""First contact with a Riak cluster: its members, its version, and where each member's HTTP port is.

Of each node's HTTP interface a restart needs `/ping` and `/stats`.

`/ping` answers 200 as soon as the listener is up, even if no vnode runs (seen). So it shows that the node
runs, not that it serves requests.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import urllib3

from orchestrator.bounded_http import AnswerLimit, Bounds, bounded, exchange
from orchestrator.daemons import Daemons
from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Reading, Seconds, Unknown, reasons_by_place
from orchestrator.model.riak import NodeStats
from orchestrator.riak.admin import Commands, Programs, RiakAdmin, Runner, commands_for, output_of
from orchestrator.riak.output import RiakDialect, RiakUnreadable, dialect_of, reading, unsupported
from orchestrator.riak.parse_node import parse_stats, parse_version, parse_versions
from orchestrator.tls import REMEDIES, broken, refused_form
from orchestrator.untrusted import one_line

_OK: Final = 200
_ALIVE: Final = "OK"
LIMITS: Final = Bounds(connect=5.0, silence=10.0, whole=30.0, answer_bytes=4_000_000)
"""`/stats` has about 20 kB, and a busy node may need several seconds for it."""


class NodeHttp:
    """One node's HTTP interface. Connections are not kept: the node may restart between two readings.

    Args:
        url: such as `http://10.0.0.1:8098`.
        tls: how an `https` URL is verified.
        fingerprint: SHA-256 of the only trusted certificate, in hexadecimal; nothing else of it is checked.
        redact: removes secrets from an answer and from the reason of a failure.
        now: monotonic clock, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: Bounds = LIMITS,
        tls: ssl.SSLContext | None = None,
        fingerprint: str | None = None,
        redact: Callable[[str], str] = str,
        now: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._limits, self._redact = limits, redact
        self._tls, self._fingerprint = tls, fingerprint
        self._now = now

    def ping(self) -> bool:
        """True if it answers `OK`; unreadable if not, although the node may still be up."""
        if self._get("/ping").strip() != _ALIVE:
            raise RiakUnreadable(f"{self._url}/ping: the answer is not {_ALIVE}: is this a Riak?")
        return True

    def stats(self) -> NodeStats:
        """The statistics of the node and of its ring."""
        body = self._get("/stats")
        try:
            return parse_stats(body)
        except RiakUnreadable as error:
            raise RiakUnreadable(f"{self._url}{error.reason}") from None

    def _get(self, path: str) -> str:
        manager = urllib3.PoolManager(
            num_pools=1, ssl_context=self._tls, assert_fingerprint=self._fingerprint
        )
        try:
            answered = exchange(
                bounded(manager.connection_from_url(self._url)),
                "GET",
                urllib3.util.parse_url(self._url + path).request_uri,
                headers={"Accept": "application/json, text/plain, text/html", "Connection": "close"},
                bounds=self._limits,
                now=self._now,
            )
        except (urllib3.exceptions.HTTPError, OSError, AnswerLimit) as error:
            raise self._failed(path, self._redact(one_line(self._in_words(error)))) from None
        finally:
            manager.clear()
        if answered.status != _OK:
            raise self._failed(path, f"HTTP {answered.status}")
        return self._redact(answered.body.decode(errors="replace"))

    def _failed(self, path: str, why: str) -> RiakUnreadable:
        return RiakUnreadable(f"{self._url}{path}: {why}")

    def _in_words(self, error: Exception) -> str:
        """Why the node was not reached, without the library's own object names."""
        cause = error.__cause__
        if isinstance(error, urllib3.exceptions.NameResolutionError):
            return "the host name does not resolve"
        if isinstance(error, urllib3.exceptions.NewConnectionError) and isinstance(cause, OSError):
            return f"no connection: {cause.strerror or cause}"
        strict = self._tls is not None and bool(self._tls.verify_flags & ssl.VERIFY_X509_STRICT)
        form = refused_form(error, strict=strict)
        if form is None:
            return str(error)
        return f"the certificate, or that of its authority, {broken(form)}: {REMEDIES}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How a Riak cluster is reached."""

    endpoints: Sequence[str]  # URLs of the HTTP ports of some of its nodes
    runner: Runner  # runs commands on the nodes' machines
    address: Callable[[NodeName], str]  # address of a member's machine, by member name
    # identity of a member's machine: an address, or a mark for this machine
    machine: Callable[[NodeName], str]
    programs: Callable[[NodeName], Programs]  # Riak's programs on a member's machine
    tls: ssl.SSLContext | None = None  # how an `https` endpoint is verified
    # SHA-256 of the only trusted certificate, in hexadecimal; None: `tls` decides
    fingerprint: str | None = None
    redact: Callable[[str], str] = str  # removes the known secrets from answers of HTTP


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """Facts about the cluster that do not change while the program runs."""

    admin: RiakAdmin
    version: str
    members: tuple[NodeName, ...]  # the members that the first endpoint to answer listed


class Contacts:
    """Finds the cluster through its endpoints, once, and holds the HTTP port of each member. Thread-safe."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._lock = threading.Lock()
        self._found: Contact | None = None
        self._urls: dict[NodeName, str] = {}
        self._known: set[NodeName] = set()

    def find(self) -> Contact:
        """The contact. Endpoints are asked until one lists the members, then a member for its version."""
        with self._lock:
            if self._found is None:
                self._found = self._look()
            return self._found

    def endpoints(self) -> dict[str, str | None]:
        """The problem of each endpoint; None if it answers."""
        return {
            url: answer.reason if isinstance(answer, Unknown) else None
            for url, answer in self._asked().items()
        }

    def address(self, node: NodeName) -> str:
        """The address of a member's machine."""
        return self._reach.address(node)

    def http(self, node: NodeName) -> NodeHttp:
        """The HTTP port of a member: its own endpoint, else the port of the first endpoint on its machine."""
        if (url := self._urls.get(node)) is None:
            first = urlsplit(self._reach.endpoints[0])
            address = self._reach.address(node)
            host = f"[{address}]" if ":" in address else address
            url = f"{first.scheme}://{host}:{first.port}"
            if url in self._urls.values():
                # Nodes of one machine: this node was down when the endpoints were read.
                self._asked()
                url = self._urls.get(node, url)
        return self._http(url)

    def _http(self, url: str) -> NodeHttp:
        reach = self._reach
        return NodeHttp(url, tls=reach.tls, fingerprint=reach.fingerprint, redact=reach.redact)

    def stats(self, node: NodeName) -> NodeStats:
        """The `/stats` of a member; unreadable if another node answers at its address."""
        found = self.http(node).stats()
        if found.node == node:
            return found
        raise RiakUnreadable(
            f"where {node} is looked for, {found.node} answers /stats: name both under `endpoints`"
        )

    def refuse_stranger(self, admin: RiakAdmin, node: NodeName) -> None:
        """Refuse a member whose name the node on its machine has not reported.

        The cluster file maps names to machines. If it is wrong, the run would stop another node than the
        safety predicates allowed. A node that has reported its name is not asked again.

        Raises:
            RiakUnreadable: another node answers there, or none.
        """
        if node not in self._known:
            found = admin.who_answers(node)
            if found != node:
                raise RiakUnreadable(self._other(node, found))
            self._known.add(node)

    def _other(self, node: NodeName, found: NodeName) -> str:
        """The message that another node answers, with the key of the cluster file to correct."""
        programs = self._reach.programs(node)
        where = f"on the machine of {node} ({self.address(node)}) {found} answers"
        if self._reach.machine(found) != self._reach.machine(node):
            return f"{where}: correct `hosts.nodes` or `hosts.overrides` in the cluster file"
        line, key = (programs.admin, "admin") if programs.admin else (programs.riak, "command")
        own = f'{{"{node}": {{riak: {{{key}: COMMAND}}}}}}'
        return (
            f"{where} to `{' '.join(line)}`, and both nodes are there: give each its own command. Put"
            f" {{node}}, {{name}} or {{host}} into `riak.{key}` of the cluster file, or add"
            f" `hosts.overrides: {own}`"
        )

    def _asked(self) -> dict[str, Reading[NodeStats]]:
        urls = self._reach.endpoints
        with Daemons(max(1, len(urls)), "riak-endpoint") as pool:
            answers = pool.map(lambda url: reading(self._http(url).stats), urls)
            found = dict(zip(urls, answers, strict=True))
        for url, stats in found.items():
            if not isinstance(stats, Unknown):
                # What was found first stays: a page that claims another node's name moves nobody.
                self._urls.setdefault(stats.node, url.rstrip("/"))
        return found

    def _look(self) -> Contact:
        answers = self._asked()
        answered = [stats for stats in answers.values() if not isinstance(stats, Unknown)]
        if not answered:
            wrong = {url: stats.reason for url, stats in answers.items() if isinstance(stats, Unknown)}
            raise RiakUnreadable(reasons_by_place(wrong))
        _require_one_cluster(answered)
        members = tuple(sorted(frozenset[NodeName]().union(*(stats.members for stats in answered))))
        reason = "no node of it was asked"
        for stats in answered:
            try:
                version = self._version(stats.node)
            except RiakUnreadable as error:
                reason = error.reason
                continue
            dialect = dialect_of(version)
            if dialect is None:
                raise RiakUnreadable(f"{stats.node} is a Riak {version}, {unsupported(version)}")
            return Contact(admin=self._admin(dialect), version=version, members=members)
        raise RiakUnreadable(f"which version it is: {reason}")

    def _version(self, node: NodeName) -> str:
        """Read the version, by the command of 3.x or that of earlier versions; each script has only one."""
        commands = Commands(riak=self._reach.programs(node).riak, admin=())
        reasons = []
        for command, parse in ((commands.versions, parse_versions), (commands.version, parse_version)):
            output = output_of(self._reach.runner, node, command)
            try:
                return parse(output)
            except RiakUnreadable as error:
                reasons.append(error.reason)
        raise RiakUnreadable(f"asked on {node}: {'; '.join(reasons)}")

    def _admin(self, dialect: RiakDialect) -> RiakAdmin:
        def commands(node: NodeName) -> Commands:
            programs = self._reach.programs(node)
            return commands_for(dialect, riak=programs.riak, admin=programs.admin)

        return RiakAdmin(runner=self._reach.runner, commands=commands, dialect=dialect)


def _require_one_cluster(answered: Sequence[NodeStats]) -> None:
    """Check that the endpoints are of one cluster, which has no name: each must list the others."""
    for stats in answered:
        strangers = sorted({other.node for other in answered} - stats.members)
        if strangers:
            raise RiakUnreadable(
                f"{stats.node} does not call {', '.join(strangers)} a member, and `endpoints` names"
                " both: they are not of one cluster"
            )


def usable(members: Collection[NodeName], avoided: Collection[NodeName]) -> tuple[NodeName, ...]:
    """Members in the order in which they are asked: those that go down or are down come last."""
    return tuple(sorted(members, key=lambda node: (node in avoided, node)))
