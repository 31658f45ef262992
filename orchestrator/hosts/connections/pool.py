"""The connections of a run: as few per host as it allows, and one shared connection per jump host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from orchestrator.hosts.connection import Connection, Trouble, Unreachable
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.connections.sessions import Sessions
from orchestrator.hosts.connections.ssh.commands import SshConnection
from orchestrator.hosts.connections.ssh.config_file import RouteError, read_config
from orchestrator.hosts.connections.ssh.link import Link
from orchestrator.hosts.connections.ssh.route import Route, find_route
from orchestrator.hosts.settings import HostSettings, Limits
from orchestrator.model.hosts import Connect
from orchestrator.model.reading import Seconds


class Connections:
    """Makes connections when they are first needed and keeps them. Thread-safe.

    Args:
        clock: monotonic seconds.
        wait: waits between attempts to connect; None = a wait that `close` interrupts.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], Seconds] = time.monotonic,
        wait: Callable[[Seconds], object] | None = None,
    ) -> None:
        self._clock, self._wait = clock, wait
        self._lock = threading.Lock()
        self._jumps: dict[Route, Link] = {}
        self._sessions: dict[Route, Sessions[Link]] = {}
        self._routes: dict[tuple[object, ...], Route] = {}
        self._closed = False

    def to(self, settings: HostSettings) -> Connection | Unreachable:
        """The connection to a node's host; nothing is sent until it is used."""
        if settings.connect is Connect.LOCAL:
            return LocalConnection(settings.environment, clock=self._clock)
        try:
            route = self.route(settings)
        except RouteError as error:
            return Unreachable(trouble=Trouble.SETTINGS, reason=str(error))
        with self._lock:
            if self._closed:
                return Unreachable(trouble=Trouble.CLOSED, reason="the connections of this run are closed")
            return SshConnection(self._sessions_on(route, settings.limits), clock=self._clock)

    def here(self) -> Connection:
        """The connection to this machine."""
        return LocalConnection(clock=self._clock)

    def route(self, settings: HostSettings) -> Route:
        """The hops to a host, computed once.

        Raises:
            RouteError: the SSH configuration cannot be followed.
        """
        key = (
            settings.address,
            settings.port,
            settings.user,
            settings.identities,
            settings.known_hosts,
            settings.use_agent,
            settings.ssh_config,
        )
        with self._lock:
            if key not in self._routes:
                self._routes[key] = find_route(settings, read_config(settings.ssh_config))
            return self._routes[key]

    def close(self) -> None:
        """Close all connections, those behind a jump host first."""
        with self._lock:
            self._closed = True
            sessions = tuple(self._sessions.values())
            jumps = [self._jumps[route] for route in sorted(self._jumps, key=len, reverse=True)]
        for targets in sessions:
            targets.close()
        for jump in jumps:
            jump.close()

    def _sessions_on(self, route: Route, limits: Limits) -> Sessions[Link]:
        if route not in self._sessions:
            parent = self._jump(route[:-1], limits)
            self._sessions[route] = Sessions(
                lambda: Link(route[-1], parent, limits, wait=self._wait), str(route[-1])
            )
        return self._sessions[route]

    def _jump(self, route: Route, limits: Limits) -> Link | None:
        """The one connection to a jump host, shared by all hosts behind it; it carries no sessions."""
        if route and route not in self._jumps:
            self._jumps[route] = Link(route[-1], self._jump(route[:-1], limits), limits, wait=self._wait)
        return self._jumps.get(route)
