"""The hosts that a run reaches by paramiko: few connections each, and one to each jump host."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.hosts.connection import Trouble
from orchestrator.hosts.connections.sessions import LinkError, SessionConnection, Sessions
from orchestrator.hosts.connections.ssh.commands import ChannelSession
from orchestrator.hosts.connections.ssh.config_file import RouteError, read_config
from orchestrator.hosts.connections.ssh.link import SshLink
from orchestrator.hosts.connections.ssh.route import Route, find_route
from orchestrator.hosts.settings import HostLimits, HostSettings
from orchestrator.model.reading import Seconds


class SshHosts:
    """Makes connections when they are first needed and keeps them. The caller locks.

    Args:
        clock: monotonic seconds.
        wait: waits between attempts to connect; None = a wait that `close` interrupts.
    """

    def __init__(
        self, *, clock: Callable[[], Seconds], wait: Callable[[Seconds], object] | None = None
    ) -> None:
        self._clock, self._wait = clock, wait
        self._jumps: dict[Route, SshLink] = {}
        self._sessions: dict[Route, Sessions[SshLink]] = {}
        self._routes: dict[tuple[object, ...], Route] = {}

    def to(self, settings: HostSettings) -> SessionConnection[SshLink]:
        """The connection to a host; nothing is sent until it is used.

        Raises:
            LinkError: the SSH configuration cannot be followed.
        """
        try:
            route = self._route(settings)
        except RouteError as error:
            raise LinkError(Trouble.SETTINGS, str(error)) from error
        if route not in self._sessions:
            limits, parent = settings.limits, self._jump(route[:-1], settings.limits)
            self._sessions[route] = Sessions(
                lambda: SshLink(route[-1], parent, limits, wait=self._wait), str(route[-1])
            )
        return SessionConnection(
            self._sessions[route], lambda link, order: ChannelSession(link, order, self._clock)
        )

    def close(self) -> None:
        """Close all connections, those behind a jump host first."""
        for sessions in self._sessions.values():
            sessions.close()
        for route in sorted(self._jumps, key=len, reverse=True):
            self._jumps[route].close()

    def _route(self, settings: HostSettings) -> Route:
        """The hops to a host, computed once."""
        key = (
            settings.address,
            settings.port,
            settings.user,
            settings.identities,
            settings.known_hosts,
            settings.use_agent,
            settings.ssh_config,
        )
        if key not in self._routes:
            self._routes[key] = find_route(settings, read_config(settings.ssh_config))
        return self._routes[key]

    def _jump(self, route: Route, limits: HostLimits) -> SshLink | None:
        """The one connection to a jump host; it carries no sessions."""
        if route and route not in self._jumps:
            self._jumps[route] = SshLink(route[-1], self._jump(route[:-1], limits), limits, wait=self._wait)
        return self._jumps.get(route)
